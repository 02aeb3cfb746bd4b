"""After a bad end a node asks for its own feed before it signs. ledger/SPEC.md 6. In memory."""

import math
from contextlib import closing
from pathlib import Path

import pytest
import trio

from ledger.guard import MemoryGuard
from ledger.ledger import Ledger
from ledger.store import MemoryStore, Store
from p2pnode.cabinet import MemoryCabinet
from p2pnode.jobs.jobfile import ENDED, JobFile
from p2pnode.network.exchange import Refused
from p2pnode.network.memory_transport import MemoryHub
from p2pnode.node import Node
from p2pnode.own_feed import note_closed
from p2pnode.own_store import open_own_guard, open_own_store, opened_store
from p2pnode.rejoin import FEW_ANSWERS_S, ORDERLY_MS, PATIENCE_S, Rejoin
from p2pnode.status import status_of
from protocol.errors import LocalFault, Unavailable
from protocol.genesis import net_of
from protocol.units import Digest, Micros, Millis, PeerId, PublicKey
from tests.make_job import make_submission
from tests.make_ledger import ledger, opened_ledger, statement
from tests.make_ledger_faults import copy_of
from tests.make_node import EPOCH, GENESIS, Party, Started, VirtualClock, stop

LISTED_S = 5
"""By then every owner is in the directory, where light renters look."""


@pytest.fixture
def party(tmp_path: Path, nursery: trio.Nursery) -> Party:
    return Party(tmp_path, nursery, MemoryHub())


async def rent(renter: Started) -> JobFile:
    """A job from submission to receipt."""
    await trio.sleep(LISTED_S)
    file = renter.node.jobs.submit(make_submission(renter.node))
    with trio.fail_after(600):
        while True:
            driver = renter.node.jobs.driver(file.id)
            if driver.file.state in ENDED:
                return driver.file
            await driver.changed.wait()


def lose_power(node: Node) -> None:
    """The node did not end in order after all."""
    node.ports.cabinet.remove("feed/closed")


def feed_ids(ledger: Ledger, feed: PublicKey) -> list[Digest]:
    heads = [head.seq for head in ledger.heads() if head.feed == feed]
    entries = ledger.entries(feed, 0, heads[0] + 1) if heads else iter(())
    return [Digest(raw) for raw in entries]


async def held_for(node: Node) -> float:
    """How long the node signs nothing."""
    began = trio.current_time()
    with trio.fail_after(7_200):
        await node.rejoin.wait()
    return trio.current_time() - began


async def tenancy(party: Party) -> tuple[Started, Started]:
    """An owner from which a renter has rented once."""
    owner = await party.add(ask=300_000)
    renter = await party.add(ask=None, gossip="auto")
    assert (await rent(renter)).state == "done"
    await trio.sleep(5)
    return owner, renter


async def goes_on(owner: Node, renter: Started) -> None:
    """The owner's feed is whole and is continued, and nobody can prove an offence."""
    before = feed_ids(renter.node.ports.ledger, owner.ports.ledger.feed)
    assert (await rent(renter)).state == "done"
    await trio.sleep(5)
    theirs, ours = renter.node.ports.ledger, owner.ports.ledger
    assert feed_ids(ours, ours.feed) == feed_ids(theirs, ours.feed)
    assert len(feed_ids(ours, ours.feed)) > len(before) > 1
    assert feed_ids(ours, ours.feed)[: len(before)] == before
    assert theirs.evidence() == ours.evidence() == []
    assert ours.verify().broken is None


async def test_after_an_end_in_order_nothing_is_asked(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner, renter = await tenancy(party)
    await stop(owner)
    await stop(renter)
    again = await party.start(party.revive(owner.node))
    assert again.node.rejoin.why_held is None
    assert again.node.provider.shelves


async def test_a_home_restored_whole_from_before_asks_although_it_ended_in_order(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner, renter = await tenancy(party)
    await stop(owner)
    store, guard = copy_of(owner.node.ports.ledger._store), MemoryGuard()
    draft = owner.node.ports.ledger._author._guard.reserved()
    closed = owner.node.ports.cabinet.get("feed/closed")
    assert draft is not None
    assert closed is not None
    guard.reserve(draft)
    again = await party.start(party.revive(owner.node))
    assert (await rent(renter)).state == "done"
    await trio.sleep(5)
    await stop(again)
    await trio.sleep(ORDERLY_MS // 1_000)
    again.node.ports.cabinet.put("feed/closed", closed)
    restored = await party.start(party.revive(again.node, store=store, guard=guard))
    assert "older copy of our home" in (restored.node.rejoin.why_held or "")
    assert await held_for(restored.node) < PATIENCE_S / 2
    await goes_on(restored.node, renter)


@pytest.mark.parametrize(
    ("passed_ms", "is_held"), [(0, False), (ORDERLY_MS, False), (ORDERLY_MS + 1, True), (-1, True)]
)
async def test_an_end_in_order_is_believed_for_a_while(
    passed_ms: int, is_held: bool, autojump_clock: trio.abc.Clock
) -> None:
    mine, cabinet, clock = opened_ledger(), MemoryCabinet(), VirtualClock()
    note_closed(mine, cabinet, Millis(clock.now() - passed_ms))
    rejoin = Rejoin(
        ledger=mine,
        cabinet=cabinet,
        neighbours=tuple,
        compare=no_answer,
        begin_feed=lambda _now: None,
        recovered=lambda: None,
        clock=clock,
    )
    rejoin.begin()
    assert (rejoin.why_held is not None) == is_held


async def no_answer(_peer: PeerId) -> None:
    raise Unavailable("gone")


async def test_a_feed_that_was_just_begun_is_not_asked_about(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner = await party.add(ask=300_000)
    assert owner.node.rejoin.why_held is None


async def test_after_a_bad_end_the_counterparty_is_asked(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner, renter = await tenancy(party)
    await stop(owner)
    lose_power(owner.node)
    again = await party.start(party.revive(owner.node))
    assert "not in order" in (again.node.rejoin.why_held or "")
    assert not again.node.provider.shelves
    assert await held_for(again.node) < PATIENCE_S / 2
    await goes_on(again.node, renter)


async def test_while_others_are_asked_no_payment_is_confirmed(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner, renter = await tenancy(party)
    await stop(owner)
    await stop(renter)
    lose_power(owner.node)
    again = await party.start(party.revive(owner.node))
    mine, payer = again.node.ports.ledger, renter.node.ports.ledger.feed
    before = mine.head(mine.feed)
    assert mine.fault() is None
    with pytest.raises(LocalFault, match="Others are asked"):
        again.node.settling.confirm(payer, Micros(1), GENESIS.money)
    assert mine.head(mine.feed) == before
    await held_for(again.node)
    again.node.settling.confirm(payer, Micros(1), GENESIS.money)


async def test_after_a_bad_end_where_nobody_answers_a_node_waits_and_goes_on(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner, renter = await tenancy(party)
    await stop(owner)
    await stop(renter)
    lose_power(owner.node)
    again = await party.start(party.revive(owner.node))
    assert PATIENCE_S - 1 <= await held_for(again.node) <= PATIENCE_S + 1
    await trio.sleep(1)
    assert again.node.provider.shelves


@pytest.mark.parametrize(
    ("store", "guard"),
    [(MemoryStore(), None), (None, MemoryGuard()), (MemoryStore(), MemoryGuard())],
    ids=["store", "guard", "both"],
)
async def test_an_owner_recovers_what_it_lost_from_its_renter_and_goes_on(
    party: Party,
    autojump_clock: trio.abc.Clock,
    store: Store | None,
    guard: MemoryGuard | None,
) -> None:
    owner, renter = await tenancy(party)
    before = feed_ids(owner.node.ports.ledger, owner.node.ports.ledger.feed)
    await stop(owner)
    again = await party.start(party.revive(owner.node, store=store, guard=guard))
    assert again.node.rejoin.why_held is not None
    assert not again.node.provider.shelves
    await held_for(again.node)
    ours = again.node.ports.ledger
    assert feed_ids(ours, ours.feed)[: len(before)] == before
    await goes_on(again.node, renter)


async def test_a_store_that_was_rolled_back_signs_nothing_until_somebody_has_its_end(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner, renter = await tenancy(party)
    backup = copy_of(owner.node.ports.ledger._store)
    assert (await rent(renter)).state == "done"
    await trio.sleep(5)
    await stop(owner)
    await stop(renter)
    again = await party.start(party.revive(owner.node, store=backup))
    with trio.move_on_after(10 * FEW_ANSWERS_S):
        await again.node.rejoin.wait()
    why = status_of(again.node, up_since=EPOCH).signing_held or ""
    assert "was signed, and the store ends at" in why
    with pytest.raises(LocalFault, match="recover our feed"):
        again.node.ports.ledger.append(statement(), EPOCH)
    back = await party.start(party.revive(renter.node))
    await held_for(again.node)
    await goes_on(again.node, back)


async def test_a_feed_that_is_gone_is_not_begun_again_where_nobody_answers(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner, renter = await tenancy(party)
    await stop(owner)
    await stop(renter)
    lost = party.revive(owner.node, store=MemoryStore(), guard=MemoryGuard())
    again = await party.start(lost)
    with trio.move_on_after(10 * FEW_ANSWERS_S):
        await again.node.rejoin.wait()
    assert "gone" in (again.node.rejoin.why_held or "")
    assert again.node.ports.ledger.head(again.node.ports.ledger.feed) is None
    back = await party.start(party.revive(renter.node))
    await held_for(again.node)
    await goes_on(again.node, back)


async def test_a_feed_that_few_are_there_to_deny_is_begun_after_a_long_time(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    other = await party.add(ask=300_000)
    gone = party.revive(party.build(ask=400_000), store=MemoryStore(), guard=MemoryGuard())
    started = await party.start(gone)
    assert await held_for(started.node) >= FEW_ANSWERS_S - 1
    head = started.node.ports.ledger.head(started.node.ports.ledger.feed)
    assert head is not None
    assert head.seq <= 1  # GENESIS, and at once the CAPACITY after it.
    assert other.node.rejoin.why_held is None


async def test_a_guard_that_is_lost_is_set_anew_once_enough_have_answered(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    for _ in range(3):
        await party.add(ask=300_000)
    guard = MemoryGuard()
    again = await party.start(party.revive(party.build(ask=400_000), guard=guard))
    assert await held_for(again.node) < 10
    head = again.node.ports.ledger.head(again.node.ports.ledger.feed)
    assert head is not None
    held = guard.reserved()
    assert held is not None
    assert held.id == head.id


async def test_whoever_asks_a_node_that_may_not_sign_is_told_why(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner = await party.add(ask=300_000)
    await stop(owner)
    renter = await party.add(ask=None)
    again = await party.start(party.revive(owner.node, guard=MemoryGuard()))
    await renter.node.peers.reach(again.peer)
    for kind in ("rfq", "lease.take", "lease.tick", "lease.settle"):
        with pytest.raises(Unavailable, match="the guard is gone") as told:
            await renter.node.links.ask(again.peer, kind, b"")
        assert not isinstance(told.value, Refused), "a renter would take it for a last word"


@pytest.mark.parametrize("kind", ["MANIFEST-*", "CURRENT"])
async def test_a_database_damaged_on_the_disk_is_set_aside_and_its_owner_earns_again(
    party: Party, autojump_clock: trio.abc.Clock, tmp_path: Path, kind: str
) -> None:
    database, net = tmp_path / "disk" / "ledger", net_of(GENESIS)
    database.mkdir(parents=True)
    with closing(open_own_store(database)) as store:
        guard = open_own_guard(database.with_name("guard"), net)
        owner = await party.start(party.build(ask=300_000, store=store, guard=guard))
        renter = await party.add(ask=None, gossip="auto")
        assert (await rent(renter)).state == "done"
        await trio.sleep(5)
        await stop(owner)
    [file] = database.glob(kind)
    file.write_bytes(b"?" + file.read_bytes()[1:])
    again = opened_store(
        database,
        lambda store: party.revive(
            owner.node, store=store, guard=open_own_guard(database.with_name("guard"), net)
        ),
    )
    with again as node:
        started = await party.start(node)
        assert "was signed, and the store ends at -1" in (node.rejoin.why_held or "")
        await held_for(node)
        await goes_on(node, renter)
        await stop(started)
    assert (database.with_name("ledger.damaged-1") / file.name).exists()


async def test_a_peer_that_hangs_does_not_keep_the_others_from_being_asked(
    autojump_clock: trio.abc.Clock,
) -> None:
    whole = opened_ledger()
    mine = ledger(store=whole._store, guard=MemoryGuard())

    async def compare(peer: PeerId) -> None:
        await trio.sleep(math.inf if peer == b"0" else 0)

    rejoin = Rejoin(
        ledger=mine,
        cabinet=MemoryCabinet(),
        neighbours=lambda: tuple(PeerId(b"%d" % n) for n in range(4)),
        compare=compare,
        begin_feed=lambda _now: None,
        recovered=lambda: None,
        clock=VirtualClock(),
    )
    rejoin.begin()
    assert mine.fault() is not None
    with trio.fail_after(5):
        await rejoin.run()
    assert rejoin.why_held is None
    assert mine.fault() is None


async def test_a_clock_that_was_set_back_does_not_run_behind_a_feed_that_was_recovered(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner, _ = await tenancy(party)
    await stop(owner)
    again = await party.start(party.revive(owner.node, store=MemoryStore()))
    assert party.told == []
    await held_for(again.node)
    head = again.node.ports.ledger.head(again.node.ports.ledger.feed)
    assert head is not None
    assert head.seq > 0
    assert party.told == [head.ts_ms]
