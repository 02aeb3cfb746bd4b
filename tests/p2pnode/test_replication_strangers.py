"""Made-up feeds shut nobody out: a peer brings them at a pace, and dealings go on without room."""

from pathlib import Path

import pytest
import trio

from ledger.frontier import Frontier
from p2pnode.network.memory_transport import MemoryHub
from p2pnode.replication.conduct import (
    ALL_FEEDS_BURST,
    ALL_FEEDS_PER_S,
    CONFLICT_ENTRIES,
    FEEDS_BURST,
    FEEDS_PER_S,
    SPARE,
    STRANGERS_BURST,
    STRANGERS_PER_S,
    Conduct,
)
from p2pnode.replication.replication import Replication
from protocol.signing import Signer
from protocol.units import PublicKey
from tests.make_job import make_submission
from tests.make_ledger import Feed
from tests.make_node import LISTED_S, Party, ended
from tests.make_replication import Member, Town, peer

HOUR_S = 3_600


@pytest.fixture
def town(nursery: trio.Nursery) -> Town:
    return Town(nursery)


@pytest.fixture
def party(tmp_path: Path, nursery: trio.Nursery) -> Party:
    return Party(tmp_path, nursery, MemoryHub())


def narrow(replication: Replication, feeds_max: int) -> None:
    """From now on it has room for so many feeds."""
    replication._frontier = Frontier(replication.ledger, feeds_max=feeds_max)


def make_up(member: Member, count: int) -> list[PublicKey]:
    """The member has so many feeds more, of authors that nobody knows."""
    feeds = []
    for number in range(count):
        feed = Feed(Signer(bytes([member.name]) + number.to_bytes(31, "big")))
        member.replication.take(feed.open().raw)
        feeds.append(feed.by.public)
    return feeds


async def test_a_peer_that_brings_many_strangers_is_slowed_and_others_are_not(
    town: Town, autojump_clock: trio.abc.Clock
) -> None:
    here, flooder, honest = [await town.add() for _ in range(3)]
    narrow(here.replication, 200)
    make_up(flooder, 300)
    await town.join(here, flooder)
    await trio.sleep(5)
    assert len(here.feeds()) == 100 + FEEDS_BURST
    few = make_up(honest, 5)
    await town.join(here, honest)
    await trio.sleep(5)
    assert {honest.feed, *few} <= set(here.feeds())
    before = len(here.feeds())
    await trio.sleep(HOUR_S / 4)
    assert len(here.feeds()) == pytest.approx(before + HOUR_S / 4 * FEEDS_PER_S, abs=1)
    assert here.replication.statistics.refused == {}


async def test_a_newcomer_has_a_whole_network_from_one_peer_at_once(
    town: Town, autojump_clock: trio.abc.Clock
) -> None:
    old, late = await town.add(), await town.add()
    make_up(old, 600)
    narrow(late.replication, 2 * 602)
    await town.join(late, old)
    await trio.sleep(5)
    assert late.ids() == old.ids()


async def test_many_peers_together_bring_strangers_at_a_pace_too(
    autojump_clock: trio.abc.Clock,
) -> None:
    conduct = Conduct()
    taken = [conduct.take_feed(peer(number)) for number in range(200) for _ in range(100)]
    assert sum(taken) == ALL_FEEDS_BURST
    assert not conduct.take_feed(peer(201))
    conduct.give_back_feed(peer(1))
    assert conduct.take_feed(peer(201))
    await trio.sleep(1.5 / ALL_FEEDS_PER_S)
    assert not conduct.take_feed(peer(2))
    assert conduct.take_feed(peer(201))


async def test_a_lease_with_a_newcomer_goes_through_where_no_stranger_has_room(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner = await party.add(ask=300_000)
    narrow(owner.node.replication, 1)
    stranger = await party.add(ask=400_000)
    renter = await party.add(ask=None, gossip="auto")
    narrow(renter.node.replication, 1)
    await trio.sleep(LISTED_S)
    done = await ended(renter, renter.node.jobs.submit(make_submission(renter.node)).id)
    assert (done.state, done.why) == ("done", "")
    await trio.sleep(60)
    feeds = [head.feed for head in owner.node.ports.ledger.heads()]
    parties = [each.node.identity.feed.public for each in (owner, renter)]
    assert feeds == sorted(parties)
    assert stranger.node.identity.feed.public not in feeds
    (lease,) = owner.node.ports.ledger.state.leases()
    assert lease.is_accepted
    assert (lease.owner, lease.renter) == tuple(parties)


async def test_strangers_entries_come_at_a_bounded_pace(autojump_clock: trio.abc.Clock) -> None:
    conduct = Conduct()
    for _ in range(STRANGERS_BURST):
        await conduct.wait_stranger(peer(1))
    assert trio.current_time() == pytest.approx(0, abs=0.01)
    for _ in range(100):
        await conduct.wait_stranger(peer(1), 64, spent_s=0.02)
    own_s = STRANGERS_PER_S / 64 * 0.02
    assert trio.current_time() == pytest.approx(100 * 0.02 / (SPARE + own_s), rel=0.1)


async def test_a_flood_of_many_strangers_leaves_half_of_the_time(
    autojump_clock: trio.abc.Clock,
) -> None:
    conduct = Conduct()
    spent = 0.0

    async def bring(number: int) -> None:
        nonlocal spent
        # So many at once are never within what is earned meanwhile.
        await conduct.wait_stranger(peer(number), STRANGERS_BURST)
        while True:
            await conduct.wait_stranger(peer(number), STRANGERS_BURST, spent_s=2)
            spent += 2

    with trio.move_on_after(30):
        async with trio.open_nursery() as nursery:
            for number in range(16):
                nursery.start_soon(bring, number)
    assert spent == pytest.approx(30 * SPARE, abs=2)


async def test_conflicts_come_at_a_pace_that_leaves_time_for_others(
    autojump_clock: trio.abc.Clock,
) -> None:
    conduct = Conduct()
    for _ in range((STRANGERS_BURST + STRANGERS_PER_S) // CONFLICT_ENTRIES):
        await conduct.wait_conflict(peer(1))
    assert trio.current_time() == pytest.approx(1, abs=0.2)
