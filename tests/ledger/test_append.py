"""Our own feed: what append promises, and what is left of it after a crash at any step."""

from collections.abc import Callable

import msgspec
import pytest

from ledger.bodies import Accept, Grant, Release, consent_bytes, read_body
from ledger.guard import MemoryGuard
from ledger.ledger import Ledger, Taken
from ledger.store import MemoryStore
from protocol.errors import LocalFault, PeerFault, Unavailable
from protocol.units import Digest, PublicKey
from tests.make_ledger import (
    HOUR,
    NET,
    OWNER,
    RENTER,
    STRANGER,
    UNIT,
    UNIT2,
    Feed,
    at,
    genesis,
    grant,
    lease_request,
    ledger,
    opened_ledger,
    sealed,
    sealed_request,
    statement,
)
from tests.make_ledger_faults import Crash, FaultyGuard, FaultyStore, Fuse, copy_of


def test_entries_follow_each_other() -> None:
    mine = opened_ledger()
    entry = mine.append(statement(), at(5))
    head = mine.head(mine.feed)
    assert head is not None
    assert (head.seq, head.id, head.ts_ms, head.fork) == (1, entry.id, at(5), None)
    assert mine.entry(entry.id) == entry
    assert list(mine.entries(mine.feed, 1, 2)) == [entry.raw]
    assert mine.verify().broken is None


def test_time_in_a_feed_does_not_run_back() -> None:
    mine = opened_ledger()
    mine.append(statement(), at(100))
    assert mine.clamped(at(50)) == at(100)
    assert mine.append(statement(ctr=1), at(50)).header.ts_ms == at(100)


def test_while_it_is_held_nothing_writes_our_feed() -> None:
    mine = opened_ledger()
    mine.hold("Others are asked.")
    writers: tuple[Callable[[], object], ...] = (
        lambda: mine.append(statement(), at(1)),
        lambda: mine.append_all([statement()], at(1)),
        lambda: mine.grant(sealed_request(), at(1)),
        lambda: mine.accept(Digest(bytes(32)), at(1)),
        lambda: mine.checkpoint(at(1)),
    )
    for write in writers:
        with pytest.raises(LocalFault, match="Others are asked"):
            write()
    assert mine.fault() is None
    mine.hold(None)
    assert mine.append(statement(), at(1)).seq == 1


def test_a_request_is_granted_once() -> None:
    mine = opened_ledger()
    granted = mine.grant(sealed_request(), at(10))
    assert mine.grant(sealed_request(), at(20)) == granted
    assert mine.grant_for(RENTER.public, lease_request().nonce) == granted
    assert mine.grant_for(STRANGER.public, lease_request().nonce) is None
    lease = mine.lease(granted.id)
    assert lease is not None
    assert lease.renter == RENTER.public


def test_a_grant_of_several_units_names_its_witnesses() -> None:
    mine = opened_ledger()
    units = ((UNIT, 0), (UNIT2, 0))
    request = sealed(lease_request(units, witnesses=(STRANGER.public,), quorum=1))
    granted = mine.grant(request, at(0))
    body = read_body(granted.draft)
    assert isinstance(body, Grant)
    assert [turn.unit for turn in body.units] == [UNIT, UNIT2]
    assert (body.witnesses, body.quorum) == ((STRANGER.public,), 1)


def test_a_unit_that_is_taken_is_unavailable() -> None:
    mine = opened_ledger()
    mine.grant(sealed_request(), at(0))
    with pytest.raises(Unavailable, match="has turn 1 next"):
        mine.grant(sealed_request(nonce=1), at(0))
    with pytest.raises(Unavailable, match="is leased in that time"):
        mine.grant(sealed_request(((UNIT, 1),), start=HOUR, end=2 * HOUR, nonce=1), at(0))
    mine.grant(sealed_request(((UNIT, 1),), start=2 * HOUR, end=3 * HOUR, nonce=1), at(0))


def test_a_unit_has_at_most_sixteen_leases_outstanding() -> None:
    mine = opened_ledger()
    for n in range(16):
        request = sealed_request(((UNIT, n),), start=n * 100, end=n * 100 + 100, nonce=n)
        mine.grant(request, at(0))
    late = sealed_request(((UNIT, 16),), start=2_000, end=2_100, nonce=16)
    with pytest.raises(Unavailable, match="16 leases outstanding"):
        mine.grant(late, at(0))
    mine.grant(late, at(100))
    assert mine.offences() == []


@pytest.mark.parametrize(
    ("request_bytes", "rule"),
    [
        (sealed(lease_request(owner=STRANGER)), "grant.owner"),
        (sealed(lease_request(issued=-5_000)), "grant.late"),
        (sealed(lease_request(start=-1)), "grant.interval"),
        (b"\xff", "codec.form"),
    ],
)
def test_a_request_that_breaks_a_rule_is_the_renters_fault(request_bytes: bytes, rule: str) -> None:
    mine = opened_ledger()
    with pytest.raises(PeerFault) as caught:
        mine.grant(request_bytes, at(0))
    assert caught.value.rule == rule
    assert mine.append(statement(), at(0)).seq == 1


def test_a_lease_is_released_and_its_unit_leased_again() -> None:
    mine = opened_ledger()
    granted = mine.grant(sealed_request(), at(0))
    ended = mine.release(granted.id, at(2_000), at_ms=at(2_000), reason="unpaid")
    body = read_body(ended.draft)
    assert isinstance(body, Release)
    assert body.units[0].open == ()
    lease = mine.lease(granted.id)
    assert lease is not None
    assert (lease.ended_ms, lease.reason) == (at(2_000), "unpaid")
    again = sealed_request(((UNIT, 2),), start=3_000, end=4_000, nonce=1, issued=2_000)
    mine.grant(again, at(2_000))
    assert mine.referrers(granted.id) == [ended]
    assert mine.offences() == []


def test_a_release_with_consent_carries_it() -> None:
    mine = opened_ledger()
    granted = mine.grant(sealed_request(), at(0))
    consent = RENTER.sign("release-consent", NET, consent_bytes(granted.id, ((UNIT, 0),), at(9)))
    with pytest.raises(LocalFault, match="would contradict"):
        mine.release(granted.id, at(5), at_ms=at(8), reason="consent", consent=consent)
    ended = mine.release(granted.id, at(5), at_ms=at(9), reason="consent", consent=consent)
    body = read_body(ended.draft)
    assert isinstance(body, Release)
    assert body.consent == consent


def test_only_a_lease_of_ours_is_released() -> None:
    mine = opened_ledger()
    with pytest.raises(LocalFault, match="no lease"):
        mine.release(Digest(bytes(32)), at(0), at_ms=at(0), reason="end")
    owner = Feed(STRANGER)
    mine.ingest(owner.open().raw)
    request = lease_request(owner=STRANGER)
    theirs = owner.add(msgspec.structs.replace(grant(), request=sealed(request)))
    assert mine.ingest(theirs.raw) is Taken.NEW
    with pytest.raises(LocalFault, match="no lease"):
        mine.release(theirs.id, at(0), at_ms=at(0), reason="end")


def test_a_lease_is_accepted_once() -> None:
    owner, renter = opened_ledger(), opened_ledger(RENTER)
    granted = owner.grant(sealed_request(), at(0))
    for raw in owner.entries(owner.feed, 0, 9):
        assert renter.ingest(raw) is Taken.NEW
    accepted = renter.accept(granted.id, at(5))
    assert renter.accept(granted.id, at(6)) == accepted
    assert read_body(accepted.draft) == Accept(grant=granted.id)
    owner.ingest(next(renter.entries(renter.feed, 0, 1)))
    owner.ingest(accepted.raw)
    for each in (owner, renter):
        lease = each.lease(granted.id)
        assert lease is not None
        assert lease.is_accepted
    owner.release(granted.id, at(9), at_ms=at(HOUR), reason="unpaid")
    assert owner.accept(granted.id, at(9)).feed == owner.feed


def test_what_would_accuse_us_is_not_signed() -> None:
    mine = opened_ledger()
    mine.append(grant(), at(0))
    for bad in (
        grant(start=2 * HOUR, end=3 * HOUR, nonce=1),
        grant(mine.state.turn(mine.feed, UNIT), start=2_000, end=3_000),
        grant(
            mine.state.turn(mine.feed, UNIT), start=2 * HOUR, end=3 * HOUR,
            opens=((2 * HOUR, 3 * HOUR, 1),),
        ),
    ):  # fmt: skip
        with pytest.raises(LocalFault, match="would contradict"):
            mine.append(bad, at(0))
    mine.append(statement(ctr=1, used=5), at(0))
    for ctr, used in ((1, 5), (0, 9), (2, 4)):
        with pytest.raises(LocalFault, match="would contradict"):
            mine.append(statement(ctr=ctr, used=used), at(0))
    mine.append(statement(ctr=2, used=5), at(0))
    mine.append(statement(ctr=0, used=1, money="EUR"), at(0))


def test_a_feed_begins_with_a_genesis() -> None:
    with pytest.raises(PeerFault, match=r"entry\.kind"):
        ledger().append(statement(), at(0))
    mine = opened_ledger()
    with pytest.raises(PeerFault, match=r"entry\.kind"):
        mine.append(genesis(OWNER), at(0))


SCRIPT: list[Callable[[Ledger], object]] = [
    lambda mine: mine.head(mine.feed) or mine.append(genesis(OWNER), at(0)),
    lambda mine: mine.grant(sealed_request(), at(1)),
    lambda mine: mine.grant(sealed_request(((UNIT2, 0),), nonce=1), at(2)),
    lambda mine: mine.accept(Digest(b"g" * 32), at(3)),
]
"""Each step may be done again after a crash."""


def run_to_a_crash(store: MemoryStore, guard: MemoryGuard, fuse: Fuse) -> list[bytes]:
    """The bytes handed out before the fuse blew; all of them if it did not."""
    handed: list[bytes] = []
    try:
        mine = ledger(store=FaultyStore(store, fuse), guard=FaultyGuard(guard, fuse))
        for step in SCRIPT:
            step(mine)
            handed = list(mine.entries(mine.feed, 0, 99))
    except Crash:
        pass
    return handed


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("n", range(1, 11))
def test_a_crash_at_any_step_leaves_the_same_entry_or_none(n: int, after: bool) -> None:
    store, guard, fuse = MemoryStore(), MemoryGuard(), Fuse(n, after=after)
    handed = run_to_a_crash(store, guard, fuse)
    assert fuse.is_blown == (n <= 9)
    promised = guard.reserved()
    again = ledger(store=store, guard=guard)
    entries = list(again.entries(again.feed, 0, 99))
    assert entries[: len(handed)] == handed
    assert len(entries) <= len(handed) + 1
    head = again.head(again.feed)
    assert (None if head is None else head.id) == (None if promised is None else promised.id)
    for step in SCRIPT:
        step(again)
    assert list(again.entries(again.feed, 0, 99))[: len(entries)] == entries
    assert again.head(again.feed) is not None
    assert len(list(again.entries(again.feed, 0, 99))) == 4
    assert again.verify().broken is None
    assert again.state == ledger(store=store, guard=guard).state


@pytest.mark.parametrize("n", [2, 3])
def test_after_a_failed_write_the_ledger_must_be_opened_again(n: int) -> None:
    store, guard = MemoryStore(), MemoryGuard()
    fuse = Fuse(n, after=True)
    mine = ledger(store=FaultyStore(store, fuse), guard=FaultyGuard(guard, fuse))
    with pytest.raises(Crash):
        mine.append(genesis(OWNER), at(0))
    for act in (
        lambda: mine.append(statement(), at(0)),
        lambda: mine.grant(sealed_request(), at(0)),
        lambda: mine.ingest(Feed(STRANGER).open().raw),
    ):
        with pytest.raises(LocalFault, match="failed before"):
            act()


def test_after_a_failed_ingest_too_the_ledger_must_be_opened_again() -> None:
    store = MemoryStore()
    mine = ledger(store=FaultyStore(store, Fuse(2, after=True)))
    theirs = Feed(STRANGER).open()
    with pytest.raises(Crash):
        mine.ingest(theirs.raw)
    with pytest.raises(LocalFault, match="failed before"):
        mine.append(genesis(OWNER), at(0))
    assert ledger(store=store).ingest(theirs.raw) is Taken.KNOWN


def test_a_store_that_lost_its_tail_is_not_continued_but_recovered() -> None:
    store, guard = MemoryStore(), MemoryGuard()
    mine = ledger(store=store, guard=guard)
    mine.append(genesis(OWNER), at(0))
    old = copy_of(store)
    for n in range(3):
        mine.append(statement(ctr=n), at(n))
    whole = list(mine.entries(mine.feed, 0, 9))
    again = ledger(store=old, guard=guard)
    fault = again.fault()
    assert fault is not None
    assert "entry 3 was signed, and the store ends at 0" in fault.what
    with pytest.raises(LocalFault, match="must not be continued"):
        again.append(statement(ctr=9), at(9))
    assert [again.ingest(raw) for raw in whole[1:3]] == [Taken.NEW, Taken.NEW]
    assert again.fault() is None
    assert again.append(statement(ctr=9), at(9)).seq == 4
    assert list(again.entries(again.feed, 0, 4)) == whole


def test_a_recovered_feed_knows_what_it_granted() -> None:
    guard = MemoryGuard()
    mine = ledger(guard=guard)
    mine.append(genesis(OWNER), at(0))
    granted = mine.grant(sealed_request(), at(0))
    again = ledger(guard=guard)
    for raw in mine.entries(mine.feed, 0, 9):
        again.ingest(raw)
    assert again.grant(sealed_request(), at(5)) == granted


def test_without_its_guard_a_feed_waits_until_its_head_is_confirmed() -> None:
    store = MemoryStore()
    mine = ledger(store=store)
    mine.append(genesis(OWNER), at(0))
    again = ledger(store=store, guard=MemoryGuard())
    with pytest.raises(LocalFault, match="guard is gone"):
        again.append(statement(), at(0))
    again.confirm_head()
    assert again.append(statement(), at(0)).seq == 1


def test_a_new_feed_has_no_head_to_confirm() -> None:
    mine = ledger()
    mine.confirm_head()
    assert mine.append(genesis(OWNER), at(0)).seq == 0


class DamagedGuard(MemoryGuard):
    def reserved(self) -> None:
        raise LocalFault("The guard file is damaged.")


def test_a_damaged_guard_does_not_keep_the_ledger_from_opening() -> None:
    mine = ledger(guard=DamagedGuard())
    with pytest.raises(LocalFault, match="damaged"):
        mine.append(genesis(OWNER), at(0))


def test_a_store_of_another_network_is_refused() -> None:
    store = MemoryStore()
    assert ledger(store=store).uuid == b"0123456789abcdef"
    store.write({b"mnet": bytes(32)}, sync=True)
    with pytest.raises(LocalFault, match="another network"):
        ledger(store=store)
    store.write({b"mnet": NET, b"mschema": b"\x02"}, sync=True)
    with pytest.raises(LocalFault, match="another version"):
        ledger(store=store)


def test_our_own_feed_is_verified_when_opened() -> None:
    store, guard = MemoryStore(), MemoryGuard()
    mine = ledger(store=store, guard=guard)
    mine.append(genesis(OWNER), at(0))
    entry = mine.append(statement(), at(0))
    key = b"e" + entry.feed + (1).to_bytes(8, "big")
    bad = copy_of(store)
    bad.write({key: entry.raw[:-70] + b"\1" + entry.raw[-69:]}, sync=True)
    with pytest.raises(LocalFault, match=r"damaged in the store: entry"):
        ledger(store=bad, guard=guard)
    tail = MemoryStore()
    tail.write({k: v for k, v in store.range(b"\0", b"\xff") if k != key}, sync=True)
    with pytest.raises(LocalFault, match="does not end where it should"):
        ledger(store=tail, guard=guard)


def test_a_forked_feed_of_ours_is_not_continued() -> None:
    mine = opened_ledger()
    mine.append(statement(used=1), at(0))
    other = Feed(OWNER)
    other.open()
    assert mine.ingest(other.add(statement(used=2)).raw) is Taken.CONFLICT
    with pytest.raises(LocalFault, match="forked"):
        mine.append(statement(ctr=1), at(0))


def test_feeds_are_named_by_their_keys() -> None:
    assert opened_ledger().feed == PublicKey(OWNER.public)
