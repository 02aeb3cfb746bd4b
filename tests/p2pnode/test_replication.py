"""Replicas over streams in memory, on virtual time: they agree, whatever is lost."""

from pathlib import Path

import pytest
import trio

from ledger.bodies import Accept
from ledger.entry import Entry
from ledger.guard import MemoryGuard
from ledger.leveldb_store import open_leveldb
from ledger.limits import INGEST_AT_ONCE, RUN_MAX, TRUST_FROM
from ledger.store import MemoryStore
from p2pnode.replication.conversation import cost_of
from p2pnode.replication.replication import ROUND_S
from protocol.errors import Unavailable
from protocol.units import PublicKey
from tests.make_ledger import RENTER, Feed, cosigned, ledger, signer, statement, witnessed_lease
from tests.make_replication import Member, Town, peer
from tests.make_sync import feed_of


@pytest.fixture
def town(nursery: trio.Nursery) -> Town:
    return Town(nursery)


def check_agreed(members: list[Member]) -> None:
    """All have the same entries, and nothing that does not hold."""
    assert len({tuple(member.ids()) for member in members}) == 1
    assert len({tuple(member.ledger.evidence()) for member in members}) == 1
    first = members[0].ledger
    for member in members:
        report = member.ledger.verify()
        assert report.broken is None
        assert report.feeds == len(first.heads())
        assert member.ledger.state == first.state


async def ring(town: Town, count: int) -> list[Member]:
    members = [await town.add() for _ in range(count)]
    for one, other in zip(members, members[1:] + members[:1], strict=True):
        await town.join(one, other)
    return members


async def test_new_neighbours_agree_at_once(town: Town, autojump_clock: trio.abc.Clock) -> None:
    one, other = await town.add(), await town.add()
    one.write(3)
    other.write(5)
    await town.join(one, other)
    await trio.sleep(1)
    check_agreed([one, other])
    assert [entry.seq for entry in one.seen] == [0, 1, 2, 3, 4, 5]
    assert {entry.feed for entry in one.seen} == {other.feed}
    assert one.replication.statistics.entries == 6


async def test_a_session_that_is_lost_goes_on_at_once(
    town: Town, autojump_clock: trio.abc.Clock
) -> None:
    one, other = await town.add(), await town.add()
    other.write(3 * RUN_MAX)
    town.weather.odds = 12
    await town.join(one, other)
    await trio.sleep(ROUND_S / 3)
    assert town.weather.broken > 0
    check_agreed([one, other])


async def test_what_is_written_later_reaches_all_by_and_by(
    town: Town, autojump_clock: trio.abc.Clock
) -> None:
    members = await ring(town, 8)
    for member in members:
        member.write(member.name)
    await trio.sleep(20 * ROUND_S)
    check_agreed(members)
    for member in members:
        member.write(1)
    await trio.sleep(20 * ROUND_S)
    check_agreed(members)
    assert all(len(member.seen) == sum(range(3, 11)) - member.name - 2 for member in members)


@pytest.mark.slow
async def test_replicas_agree_over_streams_that_break(
    town: Town, autojump_clock: trio.abc.Clock
) -> None:
    members = await ring(town, 5)
    town.weather.delay_s, town.weather.odds = 0.05, 8
    for member in members:
        for _ in range(6):
            member.write(10)
            await trio.sleep(ROUND_S)
        assert member.ledger.verify().broken is None
    assert town.weather.broken >= 40
    town.weather.odds = 0
    await trio.sleep(20 * ROUND_S)
    check_agreed(members)


async def test_a_late_joiner_catches_up(town: Town, autojump_clock: trio.abc.Clock) -> None:
    members = await ring(town, 3)
    for member in members:
        member.write(100)
    await trio.sleep(20 * ROUND_S)
    late = await town.add()
    await town.join(late, members[0])
    await trio.sleep(2)
    check_agreed([*members[:1], late])
    feeds: dict[PublicKey, list[int]] = {}
    for entry in late.seen:
        feeds.setdefault(entry.feed, []).append(entry.seq)
    assert feeds == {member.feed: list(range(101)) for member in members}


async def test_a_long_feed_is_taken_first_and_judged_beside_everything_else(
    town: Town, autojump_clock: trio.abc.Clock
) -> None:
    one, other = await town.add(), await town.add()
    other.write(2 * TRUST_FROM)
    await town.join(one, other)
    with trio.fail_after(10):
        while not one.ledger.waiting_feeds():
            await trio.lowlevel.checkpoint()
    head = one.ledger.head(other.feed)
    assert head is None or head.seq < 2 * TRUST_FROM
    await one.replication.fetch(other.peer, other.feed, 2 * TRUST_FROM)
    await trio.sleep(1)
    check_agreed([one, other])
    assert one.replication.statistics.entries == 2 * TRUST_FROM + 1
    assert [entry.seq for entry in one.seen] == list(range(2 * TRUST_FROM + 1))
    # Who told us has them all: they are news when none waits any more.
    assert [seen for seen in one.news if seen > TRUST_FROM] == [2 * TRUST_FROM + 1]
    assert one.ledger.waiting_feeds() == []


async def test_what_waited_when_a_node_stopped_is_judged_when_it_starts(
    town: Town, autojump_clock: trio.abc.Clock
) -> None:
    store, guard = MemoryStore(), MemoryGuard()
    before = ledger(signer(1), store=store, guard=guard)
    feed = feed_of(90, 100)
    assert before.take_on_trust(tuple(feed))
    one, other = await town.add(store=store), await town.add()
    await town.join(one, other)
    await trio.sleep(2 * ROUND_S)
    assert [entry for entry in one.seen if entry.feed == feed[0].feed] == feed
    check_agreed([one, other])


def fork(length: int) -> tuple[list[Entry], list[Entry]]:
    """Two branches of one feed, each whole."""
    feed = Feed(signer(90))
    below = [feed.open(), feed.add(statement())]
    branch = feed.branch()
    return (
        below + [feed.add(statement(ctr=n, used=60_000 + n)) for n in range(1, length)],
        below + [branch.add(statement(ctr=100 + n, used=70_000 + n)) for n in range(1, length)],
    )


async def test_a_forked_feed_is_evidence_everywhere(
    town: Town, autojump_clock: trio.abc.Clock
) -> None:
    members = await ring(town, 6)
    for member, branch in zip((members[0], members[3]), fork(5), strict=True):
        for entry in branch:
            member.replication.take(entry.raw)
    await trio.sleep(30 * ROUND_S)
    check_agreed(members)
    for member in members:
        [offence] = member.ledger.offences()
        assert (offence.rule, offence.offender, offence.seq) == ("A1", signer(90).public, 2)
    sessions = sum(member.replication.statistics.rounds for member in members)
    entries = sum(member.replication.statistics.entries for member in members)
    await trio.sleep(10 * ROUND_S)
    assert sum(member.replication.statistics.rounds for member in members) <= sessions + 160
    assert sum(member.replication.statistics.entries for member in members) == entries


async def test_a_light_client_keeps_the_feeds_that_it_wants_and_all_evidence(
    town: Town, autojump_clock: trio.abc.Clock
) -> None:
    owner, stranger = await ring(town, 2)
    wanted = [owner.feed]
    light = await town.add(wants=wanted.__contains__)
    for member in (owner, stranger, light):
        member.write(3)
    for entries in fork(4):
        for entry in entries:
            stranger.replication.take(entry.raw)
    await trio.sleep(5 * ROUND_S)
    await town.join(light, stranger)
    await trio.sleep(5 * ROUND_S)
    assert light.feeds() == [light.feed]
    assert light.ledger.evidence() == stranger.ledger.evidence() != []
    await light.replication.fetch(stranger.peer, owner.feed, 1)
    owner.write(2)
    await trio.sleep(20 * ROUND_S)
    assert sorted(light.feeds()) == sorted([light.feed, owner.feed])
    head = light.ledger.head(owner.feed)
    assert head is not None
    assert head.seq == 5
    assert light.feed in owner.feeds()
    check_agreed([owner, stranger])


async def test_a_counterparty_is_told_without_waiting_for_a_round(
    town: Town, autojump_clock: trio.abc.Clock
) -> None:
    one, other = await town.add(), await town.add()
    one.write(2)
    for _ in range(5):
        one.replication.tell(other.peer)
    await trio.sleep(0.1)
    assert other.ledger.head(one.feed) == one.ledger.head(one.feed)
    assert one.ledger.head(other.feed) is None
    assert one.replication.statistics.rounds == 1


async def test_a_light_client_is_told_of_a_feed_that_it_wants_and_has_nothing_of(
    town: Town, autojump_clock: trio.abc.Clock
) -> None:
    owner, stranger = await town.add(), await town.add()
    wanted = [owner.feed]
    light = await town.add(wants=wanted.__contains__)
    owner.replication.tell(light.peer)
    stranger.replication.tell(light.peer)
    await trio.sleep(1)
    assert sorted(light.feeds()) == sorted([light.feed, owner.feed])
    other = await town.add(wants=wanted.__contains__)
    light.write(2)
    light.replication.meet(other.peer)
    other.replication.meet(light.peer)
    await trio.sleep(1)
    assert sorted(other.feeds()) == sorted([other.feed, owner.feed])


async def test_a_counterparty_that_is_away_is_told_when_it_is_back(
    town: Town, autojump_clock: trio.abc.Clock
) -> None:
    one = await town.add()
    one.replication.tell(peer(2))
    await trio.sleep(ROUND_S)
    other = await town.add()
    await trio.sleep(2 * ROUND_S)
    assert one.feed in other.feeds()


async def test_who_is_never_there_is_told_a_few_times_only(
    town: Town, autojump_clock: trio.abc.Clock
) -> None:
    one = await town.add()
    for number in range(300):
        one.replication.tell(peer(50 + number % 100))
        await trio.lowlevel.checkpoint()
    await trio.sleep(10 * ROUND_S)
    assert one.replication._untold == {}


async def test_an_entry_is_fetched_from_who_has_it(
    town: Town, autojump_clock: trio.abc.Clock
) -> None:
    one, other, third = await town.add(), await town.add(), await town.add()
    other.write(1_500)
    third.write(3)
    await town.join(other, third)
    await trio.sleep(2)
    await one.replication.fetch(third.peer, other.feed, 4)
    head = one.ledger.head(other.feed)
    assert head is not None
    assert 4 <= head.seq < 1_500
    await one.replication.fetch(third.peer, other.feed, 1_500)
    assert one.feeds() == sorted([one.feed, other.feed])
    before = one.replication.statistics.rounds
    await one.replication.fetch(peer(99), other.feed, 1_500)
    assert one.replication.statistics.rounds == before
    with pytest.raises(Unavailable, match="does not have"):
        await one.replication.fetch(third.peer, other.feed, 1_501)
    with pytest.raises(Unavailable, match="no address"):
        await one.replication.fetch(peer(99), other.feed, 1_501)


class Growth(trio.abc.Instrument):
    """How much a member has heard of in each step of any task; between two steps others run."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._known = len(member.seen)
        self.pieces: list[int] = []

    def after_task_step(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002  trio hands it over
        if piece := len(self._member.seen) - self._known:
            self.pieces.append(piece)
            self._known += piece


async def test_a_long_catch_up_lets_others_run(town: Town, autojump_clock: trio.abc.Clock) -> None:
    one, other = await town.add(), await town.add()
    other.write(600)
    steps = 0

    async def count() -> None:
        nonlocal steps
        while True:
            steps += 1
            await trio.lowlevel.checkpoint()

    growth = Growth(one)
    trio.lowlevel.add_instrument(growth)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        await one.replication.fetch(other.peer, other.feed, 600)
        nursery.cancel_scope.cancel()
    trio.lowlevel.remove_instrument(growth)
    assert sum(growth.pieces) == 601
    assert max(growth.pieces) <= INGEST_AT_ONCE
    assert steps >= len(growth.pieces) > 600 // INGEST_AT_ONCE


async def test_an_entry_that_came_another_way_is_told_once(
    town: Town, autojump_clock: trio.abc.Clock
) -> None:
    one = await town.add()
    first = Feed(signer(90)).open()
    one.replication.take(first.raw)
    one.replication.take(first.raw)
    assert one.seen == [first]


async def test_replicas_on_disk_agree_and_remember(
    tmp_path: Path, town: Town, autojump_clock: trio.abc.Clock
) -> None:
    stores = [open_leveldb(str(tmp_path / f"{n}")) for n in range(3)]
    members = [await town.add(store=store) for store in stores]
    for member in members:
        member.write(30)
    for member in members[1:]:
        await town.join(member, members[0])
    await trio.sleep(10 * ROUND_S)
    check_agreed(members)
    kept = members[1].ids()
    for store in stores:
        store.close()
    again = open_leveldb(str(tmp_path / "1"))
    reopened = ledger(signer(2), store=again)
    assert sorted(entry.id for entry in reopened._records.all_entries()) == kept
    again.close()


def test_an_acceptance_is_charged_by_the_signatures_in_it() -> None:
    granted, body = witnessed_lease()
    feed = Feed(RENTER)
    opener = feed.open()
    plain = feed.add(Accept(grant=granted.id))
    shown = feed.add(Accept(grant=granted.id, cosigned=cosigned(granted, body)))
    assert cost_of((opener, plain, granted)) == 3
    assert cost_of((shown,)) == 2
