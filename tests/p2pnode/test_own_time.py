"""What an owner has signed last, so that its next life does not sign anything earlier."""

from pathlib import Path

import pytest
import trio

from ledger.fold import Lease
from p2pnode.execution.fake_engine import Script
from p2pnode.execution.meter import METERED_BYTES_MAX, Metered
from p2pnode.network.memory_transport import MemoryHub
from p2pnode.own_time import latest_signed
from protocol.codec import decode
from protocol.tick import Tick
from protocol.units import MillisSpan
from protocol.wire import Sealed, unpack
from tests.make_job import make_submission
from tests.make_node import Party, Started

LASTS = MillisSpan(10_000)


@pytest.fixture
def party(tmp_path: Path, nursery: trio.Nursery) -> Party:
    return Party(tmp_path, nursery, MemoryHub())


def metered(owner: Started, lease: Lease) -> Sealed[Tick]:
    raw = owner.node.ports.cabinet.get(f"leases/{lease.id.hex()}/metered")
    assert raw is not None
    return unpack(decode(raw, Metered, size_max=METERED_BYTES_MAX).tick, owner.node.net, Tick)


async def test_ticks_after_a_bill_count_too(party: Party, autojump_clock: trio.abc.Clock) -> None:
    script = Script(lasts_ms=LASTS)
    owner = await party.start(party.build(ask=300_000, script=lambda _run: script))
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(5)
    renter.node.jobs.submit(make_submission(renter.node))
    await trio.sleep(5)
    [lease] = owner.node.books.leases()
    owner.node.books.close(lease, metered(owner, lease))
    ports = owner.node.ports
    billed = latest_signed(ports.ledger, ports.cabinet)
    await trio.sleep(3)
    assert latest_signed(ports.ledger, ports.cabinet) == metered(owner, lease).body.at_ms > billed


async def test_the_last_tick_counts_until_a_later_entry_closes_its_lease(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    script = Script(lasts_ms=LASTS)
    owner = await party.start(party.build(ask=300_000, script=lambda _run: script))
    renter = await party.add(ask=None, gossip="auto")
    ports = owner.node.ports
    head = ports.ledger.heads()[0]
    assert latest_signed(ports.ledger, ports.cabinet) == head.ts_ms
    await trio.sleep(5)
    renter.node.jobs.submit(make_submission(renter.node))
    await trio.sleep(7)
    [lease] = owner.node.books.leases()
    tick = metered(owner, lease).body
    assert tick.at_ms > lease.request.start_ms
    assert latest_signed(ports.ledger, ports.cabinet) == tick.at_ms
    await trio.sleep(60)
    closed = ports.ledger.head(ports.ledger.feed)
    assert closed is not None
    assert latest_signed(ports.ledger, ports.cabinet) == closed.ts_ms > tick.at_ms
