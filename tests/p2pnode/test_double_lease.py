"""An owner that grants one GPU to two renters at once, in whole networks in memory.

The same test build as that of `python -m testnet double-lease`, which runs real processes.
"""

from pathlib import Path

import pytest
import trio

from ledger.bodies import Accept, read_body
from ledger.entry import read_entry
from p2pnode.network.memory_transport import MemoryHub
from p2pnode.node import Node
from protocol.auction import Refusal
from protocol.codec import decode
from protocol.limits import AUCTION_BYTES_MAX
from protocol.scoring import AuctionRecord
from protocol.units import Micros, MillisSpan
from protocol.wire import unpack
from testnet.double_lease_node import cheating, victim_of
from tests.make_job import make_limits, make_submission
from tests.make_node import LISTED_S, Party, Started, ended

CHEAP = Micros(150_000)
KNOWN_S = 10
PROVED = {"A1", "A4"}


@pytest.fixture
def party(tmp_path: Path, nursery: trio.Nursery) -> Party:
    return Party(tmp_path, nursery, MemoryHub())


async def deceive(party: Party, *, are_victims_light: bool) -> tuple[Node, list[Started]]:
    """A network in which two renters have accepted one GPU for one time: the owner, the others."""
    first = await party.add(ask=300_000)
    ask, gossip = (None, "auto") if are_victims_light else (400_000, "on")
    victims = [party.build(ask=ask, gossip=gossip) for _ in range(2)]
    told = tuple(victim_of(victim.identity) for victim in victims)
    offender = party.build(ask=CHEAP, wrap=lambda ports, own: cheating(ports, own.feed, told))
    await party.start(offender)
    honest = [first, *[await party.start(victim) for victim in victims]]
    honest += [await party.add(ask=350_000 + i) for i in range(3)]
    honest += [await party.add(ask=None, gossip="auto") for _ in range(2)]
    await trio.sleep(LISTED_S)
    for node in victims:
        limits = make_limits(time_ms=3_600_000)
        node.jobs.submit(make_submission(node, limits=limits))
    with trio.fail_after(5):
        while not all(leases_of(node) for node in victims):  # noqa: ASYNC110 - as people look
            await trio.sleep(0.01)
    return offender, honest


def leases_of(node: Node) -> list[str]:
    """What this renter has accepted, by its own entries."""
    ledger = node.ports.ledger
    bodies = [
        read_body(read_entry(raw, ledger.net).draft) for raw in ledger.entries(ledger.feed, 0, 99)
    ]
    return [body.grant.hex() for body in bodies if isinstance(body, Accept)]


def proved(node: Node, offender: Node) -> set[str]:
    """What this node can prove against the owner; nothing is proved against anybody else."""
    offences = node.ports.ledger.offences()
    assert {each.offender for each in offences} <= {offender.identity.feed.public}
    return {each.rule for each in offences}


@pytest.mark.parametrize("are_victims_light", [True, False])
async def test_a_double_lease_is_proved_on_every_node_within_seconds(
    party: Party, autojump_clock: trio.abc.Clock, are_victims_light: bool
) -> None:
    offender, honest = await deceive(party, are_victims_light=are_victims_light)
    with trio.fail_after(KNOWN_S):
        while not all(proved(each.node, offender) >= PROVED for each in honest):  # noqa: ASYNC110
            await trio.sleep(0.01)
    for each in honest:
        assert each.node.ports.ledger.verify().broken is None


async def test_nobody_asks_or_serves_who_leased_twice(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    offender, honest = await deceive(party, are_victims_light=True)
    quoted, refused = offender.desk.quoted, dict(offender.desk.refused)
    assert quoted == 2
    await trio.sleep(KNOWN_S)
    for each in honest:
        order = make_submission(each.node, ask_max=CHEAP, patience_ms=MillisSpan(1))
        file = await ended(each, each.node.jobs.submit(order).id)
        assert "1 offender" in file.why
    assert (offender.desk.quoted, offender.desk.refused) == (quoted, refused)
    own = offender.jobs.submit(make_submission(offender, patience_ms=MillisSpan(1)))
    driver = offender.jobs.driver(own.id)
    while driver.file.state != "failed":
        await driver.changed.wait()
    raw = offender.ports.cabinet.get(f"jobs/{own.id}/auction-1")
    assert raw is not None
    record = decode(raw, AuctionRecord, size_max=AUCTION_BYTES_MAX)
    told = [unpack(refusal, offender.net, Refusal).body for refusal in record.refusals]
    owners = [each for each in honest if each.node.provider.posting.ask is not None]
    assert record.bids == ()
    assert len(told) == len(owners) == 4
    assert all((each.reason, (each.detail or "")[:10]) == ("POLICY", "proved: A4") for each in told)
