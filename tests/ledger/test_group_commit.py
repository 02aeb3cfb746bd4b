"""Entries of ours that are made durable together, and what a crash leaves of them."""

from contextlib import suppress

import msgspec
import pytest

from ledger.bodies import Accept, Body
from ledger.entry import Draft
from ledger.guard import MemoryGuard
from ledger.ledger import Taken
from ledger.store import MemoryStore
from protocol.errors import LocalFault, PeerFault
from protocol.units import Digest
from tests.make_evidence import capacity
from tests.make_ledger import (
    OWNER,
    STRANGER,
    Feed,
    at,
    genesis,
    ledger,
    opened_ledger,
    statement,
)
from tests.make_ledger_faults import Crash, FaultyGuard, FaultyStore, Fuse, copy_of


def group(count: int = 3, first: int = 0) -> list[Body]:
    return [statement(ctr=n, used=n) for n in range(first, first + count)]


def test_a_group_is_one_write_and_one_reservation() -> None:
    mine = opened_ledger()
    entries = mine.append_all(group(), at(5))
    assert [entry.seq for entry in entries] == [1, 2, 3]
    assert list(mine.entries(mine.feed, 1, 9)) == [entry.raw for entry in entries]
    assert mine.append(statement(ctr=9, used=9), at(0)).seq == 4
    assert mine.verify().broken is None
    fuse = Fuse(99, after=False)
    store, guard = MemoryStore(), MemoryGuard()
    mine = ledger(store=FaultyStore(store, fuse), guard=FaultyGuard(guard, fuse))
    mine.append(genesis(OWNER), at(0))
    before = fuse.left
    mine.append_all(group(50), at(0))
    assert before - fuse.left == 2
    held, head = guard.reserved(), mine.head(mine.feed)
    assert held is not None
    assert head is not None
    assert held.id == head.id
    assert ledger(store=store, guard=guard).state == mine.state


def test_a_group_of_none_is_none() -> None:
    assert opened_ledger().append_all([], at(0)) == []


def test_a_new_feed_begins_with_a_reservation() -> None:
    mine = ledger()
    entries = mine.append_all([genesis(OWNER), *group()], at(0))
    assert [entry.seq for entry in entries] == [0, 1, 2, 3]
    assert mine.fault() is None


def test_each_of_a_group_is_judged_after_those_before_it() -> None:
    mine = opened_ledger()
    falling = [statement(ctr=0, used=5), statement(ctr=1, used=4), statement(ctr=2, used=9)]
    with pytest.raises(LocalFault, match="would contradict"):
        mine.append_all(falling, at(0))
    head = mine.head(mine.feed)
    assert head is not None
    assert head.seq == 1
    bad = msgspec.structs.replace(statement(ctr=3, used=9), money="gold")
    with pytest.raises(PeerFault, match=r"codec\.shape"):
        mine.append_all([Accept(grant=Digest(b"g" * 32)), bad], at(0))
    assert mine.append(statement(ctr=2, used=9), at(0)).seq == 3
    assert mine.verify().broken is None


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("n", range(1, 6))
def test_a_crash_leaves_all_of_a_group_or_none(n: int, after: bool) -> None:
    store, guard = MemoryStore(), MemoryGuard()
    mine = ledger(store=store, guard=guard)
    mine.append(genesis(OWNER), at(0))
    fuse = Fuse(n, after=after)
    handed: list[bytes] = []
    try:
        mine = ledger(store=FaultyStore(store, fuse), guard=FaultyGuard(guard, fuse))
        for first in (0, 3):
            mine.append_all(group(3, first), at(0))
            handed = list(mine.entries(mine.feed, 0, 99))
    except Crash:
        assert list(mine.entries(mine.feed, 0, 99))[:7] == (handed or mine_first(store))
    assert fuse.is_blown == (n <= 4)
    again = ledger(store=store, guard=guard)
    entries = list(again.entries(again.feed, 0, 99))
    assert len(entries) in {1, 4, 7}
    assert entries[: len(handed)] == handed
    held, head = guard.reserved(), again.head(again.feed)
    assert held is not None
    assert head is not None
    assert held.id == head.id
    again.append_all(group(3, 10), at(0))
    assert again.verify().broken is None
    assert again.state == ledger(store=store, guard=guard).state


def mine_first(store: MemoryStore) -> list[bytes]:
    """Entry 0 alone: what a peer may have seen before the first group was shown."""
    return [next(value for key, value in store.range(b"e", b"f"))]


class FullGuard(MemoryGuard):
    """Takes nothing more once its disk is full."""

    is_full = False

    def reserve(self, draft: Draft) -> None:
        if self.is_full:
            raise LocalFault("The disk is full.")
        super().reserve(draft)


def test_what_the_guard_does_not_know_is_not_shown() -> None:
    store, guard = MemoryStore(), FullGuard()
    mine = ledger(store=store, guard=guard)
    mine.append(genesis(OWNER), at(0))
    shown = list(mine.entries(mine.feed, 0, 99))
    guard.is_full = True
    accept = Accept(grant=Digest(b"g" * 32))
    with pytest.raises(LocalFault, match="full"):
        mine.append_all([accept, *group()], at(0))
    assert list(mine.entries(mine.feed, 0, 99)) == shown
    with pytest.raises(LocalFault, match="failed before"):
        mine.accept(accept.grant, at(0))
    with pytest.raises(LocalFault, match="full"):
        ledger(store=store, guard=guard)
    guard.is_full = False
    again = ledger(store=store, guard=guard)
    assert len(list(again.entries(again.feed, 0, 99))) == 5
    again.append(statement(ctr=9, used=9), at(0))


@pytest.mark.parametrize("is_whole_group", [True, False], ids=["group", "parts"])
def test_nothing_written_later_undoes_that_a_write_has_failed(is_whole_group: bool) -> None:
    store, guard = MemoryStore(), FullGuard()
    mine = ledger(store=store, guard=guard)
    mine.append(genesis(OWNER), at(0))
    guard.is_full = True
    bodies = group() if is_whole_group else [*group(), capacity()]
    with pytest.raises(LocalFault, match="full"):
        mine.append_all(bodies, at(0))
    guard.is_full = False
    other = Feed(STRANGER).open()
    for write in (
        mine.flush,
        lambda: mine.ingest(other.raw),
        lambda: mine.append(statement(ctr=9), at(0)),
    ):
        with suppress(LocalFault):
            write()
    with pytest.raises(LocalFault, match="failed before"):
        mine.flush()
    assert len(list(mine.entries(mine.feed, 0, 99))) == 1
    again = ledger(store=store, guard=guard)
    assert len(list(again.entries(again.feed, 0, 99))) == 4
    assert again.verify().broken is None


def test_a_store_that_fails_within_a_group_is_not_written_again() -> None:
    fuse = Fuse(99, after=False)
    mine = ledger(store=FaultyStore(MemoryStore(), fuse))
    mine.append(genesis(OWNER), at(0))
    fuse.left = 1
    with pytest.raises(Crash):
        mine.append_all([*group(), capacity()], at(0))
    assert fuse.left == 0
    with pytest.raises(LocalFault, match="failed before"):
        mine.append(statement(ctr=9), at(0))


def test_a_store_that_lost_a_group_is_not_continued() -> None:
    store, guard = MemoryStore(), MemoryGuard()
    mine = ledger(store=store, guard=guard)
    mine.append(genesis(OWNER), at(0))
    old = copy_of(store)
    mine.append_all(group(), at(0))
    with pytest.raises(LocalFault, match="entry 3 was signed, and the store ends at 0"):
        ledger(store=old, guard=guard).append(statement(ctr=9), at(9))


def test_what_peers_had_of_our_feed_is_reserved() -> None:
    guard = MemoryGuard()
    mine = ledger(guard=guard)
    mine.append(genesis(OWNER), at(0))
    old = MemoryGuard()
    reserved = guard.reserved()
    assert reserved is not None
    old.reserve(reserved)
    mine.append_all(group(), at(0))
    again = ledger(guard=old)
    for raw in mine.entries(mine.feed, 1, 99):
        assert again.ingest(raw) is Taken.NEW
    held = old.reserved()
    assert held is not None
    assert held.header.seq == 3


def test_another_feed_has_no_head_of_ours() -> None:
    mine = ledger(STRANGER)
    assert list(mine.entries(OWNER.public, 0, 9)) == []
