"""The ledger's invariants from I4 on, each by its number: what holds in whatever order things come.

I1 to I3 are in `test_invariants_of_evidence`; I6 has a machine of its own, `test_author_machine`.
"""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ledger.entry import Draft, Entry, Link, draft_entry, seal
from ledger.guard import MemoryGuard
from ledger.ledger import Ledger, Taken
from ledger.store import Batch, MemoryStore
from protocol.errors import LocalFault, PeerFault
from protocol.signing import Signer
from protocol.units import Digest, NetId, PublicKey, Signature
from tests.make_ledger import (
    NET,
    OWNER,
    RENTER,
    STRANGER,
    Feed,
    at,
    genesis,
    grant,
    ledger,
    release,
    statement,
    take,
    turn_of,
)
from tests.make_ledger_faults import Crash, FaultyGuard, FaultyStore, Fuse
from tests.make_sync import Replica, agree, feed_of, forked_feed, replica, sync


def contents(store: MemoryStore) -> dict[bytes, bytes]:
    return dict(store.range(b"\0", b"\xff"))


def store_entries(of: Ledger) -> list[bytes]:
    return list(of.entries(OWNER.public, 0, 100))


def story() -> list[Entry]:
    """A lease, its release, a fork with a second lease, and an honest feed besides."""
    feed = Feed(OWNER)
    entries = [feed.open(), feed.add(statement(used=1))]
    other = feed.branch()
    body = grant()
    granted = feed.add(body)
    entries += [granted, feed.add(release(turn_of(granted, body), granted))]
    entries += [other.add(grant(nonce=1)), other.add(statement(ctr=1, used=2))]
    return entries + feed_of(102, 3)


STORY = story()


def delivered(order: list[Entry]) -> Replica:
    """Hands everything in until nothing new comes of it."""
    here, left = replica(), list(order)
    while left:
        left = [entry for entry in left if here.ledger.ingest(entry.raw) is Taken.MISSING]
    for entry in order:
        here.frontier.refresh(entry.feed)
    here.frontier.refresh_proofs()
    return here


@settings(max_examples=40)
@given(
    st.permutations(STORY),
    st.lists(st.sampled_from(STORY), max_size=4),
    st.lists(st.integers(0, 2), min_size=len(STORY), max_size=len(STORY)),
)
def test_i4_any_order_and_batching_give_equal_digests(
    order: list[Entry], again: list[Entry], part_of: list[int]
) -> None:
    known = delivered(STORY)
    shuffled = delivered([*order, *again])
    # Each part goes to a replica of its own, as far as it follows there; sync does the rest.
    parts = [replica(51 + number) for number in range(3)]
    for entry, number in zip(STORY, part_of, strict=True):
        for each in (parts[number], parts[0]) if entry.seq == 0 else (parts[number],):
            each.ledger.ingest(entry.raw)
            each.frontier.refresh(entry.feed)
            each.frontier.refresh_proofs()
    for each in parts:
        agree(each, shuffled)
    for each in (*parts, shuffled):
        agree(each, known)
    for each in (*parts, shuffled):
        assert each.roots() == known.roots()
        assert each.ledger.state == known.ledger.state
        assert each.ledger.evidence() == known.ledger.evidence()


@settings(max_examples=40)
@given(st.permutations(STORY), st.lists(st.sampled_from(STORY), max_size=6))
def test_i5_heads_go_forward_evidence_grows_and_forks_only_fall(
    order: list[Entry], again: list[Entry]
) -> None:
    here = ledger(STRANGER)
    for entry in (*order, *again, *order):
        before = {head.feed: head for head in here.heads()}
        offences = {(each.offender, each.key) for each in here.offences()}
        here.ingest(entry.raw)
        assert offences <= {(each.offender, each.key) for each in here.offences()}
        for feed, old in before.items():
            new = here.head(feed)
            assert new is not None
            assert new.seq >= old.seq
            [raw] = here.entries(feed, old.seq, old.seq + 1)
            assert here.entry(old.id) is not None
            assert [entry.raw for entry in STORY if entry.id == old.id] == [raw]
            assert old.fork is None or (new.fork is not None and new.fork <= old.fork)


class NotedStore(MemoryStore):
    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines

    def write(self, batch: Batch, *, sync: bool) -> None:
        super().write(batch, sync=sync)
        self._lines.append("synced" if sync else "written")


class NotedGuard(MemoryGuard):
    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines

    def reserve(self, draft: Draft) -> None:
        super().reserve(draft)
        self._lines.append("reserved")


class NotedSigner(Signer):
    def __init__(self, lines: list[str]) -> None:
        super().__init__(bytes([1]) * 32)
        self._lines = lines

    def sign(self, domain: str, net: NetId, data: bytes) -> Signature:
        self._lines.append("signed")
        return super().sign(domain, net, data)


def test_i6_an_entry_is_reserved_then_signed_then_durable_and_only_then_handed_out() -> None:
    lines: list[str] = []
    mine = ledger(NotedSigner(lines), store=NotedStore(lines), guard=NotedGuard(lines))
    mine.append(genesis(OWNER), at(0))
    lines.clear()
    mine.append(statement(), at(0))
    assert lines == ["reserved", "signed", "synced"]


@pytest.mark.parametrize("n", [1, 2])
def test_i6_what_is_not_durable_is_handed_out_by_nobody(n: int) -> None:
    store, guard, fuse = MemoryStore(), MemoryGuard(), Fuse(n, after=False)
    ledger(OWNER, store=store, guard=guard).append(genesis(OWNER), at(0))
    mine = ledger(OWNER, store=FaultyStore(store, fuse), guard=FaultyGuard(guard, fuse))
    with pytest.raises(Crash):
        mine.append(statement(), at(0))
    assert len(store_entries(mine)) == 1
    with pytest.raises(LocalFault):
        mine.append(statement(ctr=1), at(0))


@given(st.sampled_from(STORY), st.data())
def test_i7_nothing_unverified_is_stored_or_counted(entry: Entry, data: st.DataObject) -> None:
    store = MemoryStore()
    here, untouched = ledger(STRANGER, store=store), ledger(STRANGER)
    for each in (here, untouched):
        take(each, *STORY[: STORY.index(entry)])
    before = contents(store)
    raw = bytearray(entry.raw)
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        taken = here.ingest(bytes(raw))
    except PeerFault:
        taken = Taken.MISSING
    assert taken is Taken.MISSING
    assert contents(store) == before
    assert here.state == untouched.state


def test_i7_an_entry_signed_by_another_is_neither_evidence_nor_account() -> None:
    feed = Feed(OWNER)
    here = ledger(RENTER)
    take(here, feed.open())
    own, forged = feed.branch(), feed.branch()
    draft = forged.draft(statement(used=9))
    with pytest.raises(PeerFault, match=r"entry\.seal"):
        here.ingest(seal(draft, signer=STRANGER, net=NET).raw)
    assert take(here, own.add(statement(used=1))) == [Taken.NEW]
    halves = here.state.halves(OWNER.public, RENTER.public, money="USD")
    assert [half.statement.used_ms for half in halves] == [1]
    assert here.evidence() == []


@given(st.integers(0, 3), st.permutations([0, 1, 2]))
def test_i8_a_relay_keeps_conflicts_by_their_ids(stem: int, order: list[int]) -> None:
    branches = forked_feed(103, stem + 1, (1, 1, 2))
    sources = [replica(51 + number) for number in range(3)]
    for source, branch in zip(sources, branches, strict=True):
        source.take(*branch)
    relay, last = replica(60), replica(61)
    for number in order:
        sync(relay, sources[number])
        sync(last, relay)
    agree(last, relay)
    everything = sorted({entry.id for branch in branches for entry in branch})
    assert relay.ids() == last.ids() == everything
    assert last.ledger.evidence() == relay.ledger.evidence() != []


@settings(max_examples=40)
@given(st.integers(0, 9), st.integers(0, 9), st.booleans())
def test_i10_sync_ends_and_leaves_both_with_the_union(
    mine: int, theirs: int, is_forked: bool
) -> None:
    one, two = replica(51), replica(52)
    ours, other = forked_feed(103, 3, (4, 6)) if is_forked else [feed_of(101, 9)] * 2
    one.take(*ours[:mine])
    two.take(*other[:theirs])
    union = sorted({*one.ids(), *two.ids()})
    assert agree(one, two) <= 2
    assert one.ids() == two.ids() == union
    assert len(sync(one, two).frames) == len(sync(two, one).frames) == 2


@given(st.binary(min_size=32, max_size=32), st.integers(1, 6))
def test_i12_no_entry_becomes_a_head_that_does_not_name_the_one_before(
    prev: bytes, seq: int
) -> None:
    feed, here = Feed(OWNER), ledger(STRANGER)
    take(here, feed.open(), feed.add(statement()), feed.add(statement(ctr=1, used=60_001)))
    head = here.head(OWNER.public)
    assert head is not None
    assume(prev != head.id)
    stray = Feed(OWNER, last=Link(seq=seq - 1, id=Digest(prev), ts_ms=at(0)))
    taken = here.ingest(stray.add(statement(ctr=9, used=70_000)).raw)
    after = here.head(OWNER.public)
    assert after is not None
    assert (after.seq, after.id) == (head.seq, head.id)
    if seq > head.seq + 1:
        assert (taken, here.evidence()) == (Taken.MISSING, [])
    else:
        assert taken is Taken.CONFLICT
        assert after.fork is not None
        assert after.fork < seq + 1


def test_i12_entry_0_follows_nothing() -> None:
    draft = draft_entry(
        feed=PublicKey(OWNER.public),
        after=Link(seq=-1, id=Digest(b"x" * 32), ts_ms=at(0)),
        ts_ms=at(0),
        kind=0,
        rules=b"rules-01",
        body=Feed(OWNER).draft(genesis(OWNER)).body,
        net=NET,
    )
    with pytest.raises(PeerFault, match=r"entry\.prev"):
        ledger(STRANGER).ingest(seal(draft, signer=OWNER, net=NET).raw)
