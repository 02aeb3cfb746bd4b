"""Entries taken on trust: invisible until judged, and judged as if they had just come (I7)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import keys
from ledger.debts import debts_of
from ledger.entry import Entry
from ledger.guard import MemoryGuard
from ledger.ledger import Ledger, Taken
from ledger.limits import TRUST_FROM
from ledger.rules import read_case
from ledger.store import MemoryStore
from ledger.trust import Trust
from ledger.view import look
from protocol.errors import PeerFault
from protocol.units import PublicKey, Signature
from testnet.replica import fold_digest
from tests.make_ledger import (
    NET,
    OWNER,
    RENTER,
    STRANGER,
    Feed,
    grant,
    ledger,
    signer,
    statement,
)
from tests.make_ledger_faults import copy_of
from tests.make_standing import MONEY, TODAY, Story
from tests.make_sync import Replica, feed_of, forked_feed, replica, talk

FEED = feed_of(101, 12)
AUTHOR = FEED[0].feed


def forged(entry: Entry) -> Entry:
    """The entry with a signature that is not its author's."""
    return Entry(draft=entry.draft, signature=Signature(bytes(64)))


def judge_all(here: Ledger, count: int = 64) -> list[Taken]:
    taken: list[Taken] = []
    while feeds := here.waiting_feeds():
        _, done = here.judge_waiting(feeds[0], count)
        taken += done.taken
    return taken


def test_what_waits_is_nowhere_to_be_seen() -> None:
    store = MemoryStore()
    here = ledger(STRANGER, store=store)
    bare = (here.state, here.heads(), here.evidence(), here.verify())
    assert here.take_on_trust(tuple(FEED))
    assert (here.state, here.heads(), here.evidence(), here.verify()) == bare
    assert list(here.entries(AUTHOR, 0, 99)) == []
    assert here.entry(FEED[3].id) is None
    assert here.referrers(FEED[0].id) == []
    end = here.waiting_end(AUTHOR)
    assert end is not None
    assert end.seq == 11
    assert judge_all(here, 5) == [Taken.NEW] * 12
    assert here.waiting_end(AUTHOR) is None
    assert list(store.range(keys.WAITING, b"v")) == []
    there = ledger(STRANGER)
    assert there.ingest_run(FEED).fault is None
    assert here.state == there.state
    assert here.heads() == there.heads()
    assert here.verify().broken is None


def test_what_waits_goes_on_where_it_ended_and_outlives_the_process() -> None:
    store, guard = MemoryStore(), MemoryGuard()
    here = ledger(STRANGER, store=store, guard=guard)
    assert here.ingest_run(FEED[:2]).fault is None
    assert here.take_on_trust(tuple(FEED[2:5]))
    assert here.take_on_trust(tuple(FEED[5:7]))
    with pytest.raises(PeerFault, match=r"entry\.seq"):
        here.take_on_trust(tuple(FEED[8:9]))
    again = ledger(STRANGER, store=store, guard=guard)
    assert again.waiting_feeds() == [AUTHOR]
    assert again.take_on_trust(tuple(FEED[7:9]))
    before = copy_of(store)
    assert judge_all(again) == [Taken.NEW] * 7
    # As after a crash between the judging and the forgetting.
    store.write(dict(before.range(keys.WAITING, b"v")), sync=True)
    late = ledger(STRANGER, store=store, guard=guard)
    assert judge_all(late) == [Taken.KNOWN] * 7
    assert late.waiting_feeds() == []


def test_a_run_whose_last_signature_is_bad_is_refused() -> None:
    here = ledger(STRANGER)
    with pytest.raises(PeerFault, match=r"entry\.seal"):
        here.take_on_trust((*FEED[:3], forged(FEED[3])))
    assert here.waiting_feeds() == []


def test_a_run_that_does_not_hang_together_is_refused() -> None:
    here, other = ledger(STRANGER), Feed(signer(101))
    other.open()
    apart = other.add(statement(ctr=7))
    for run, rule in (((FEED[1],), "entry.seq"), ((FEED[0], apart, FEED[2]), "entry.prev")):
        with pytest.raises(PeerFault) as caught:
            here.take_on_trust(run)
        assert caught.value.rule == rule
    swapped = Entry(draft=Feed(signer(101)).draft(statement()), signature=FEED[0].signature)
    with pytest.raises(PeerFault, match=r"entry\.kind"):
        here.take_on_trust((swapped,))
    assert here.waiting_feeds() == []


def test_a_bad_signature_found_later_drops_what_follows_and_is_not_trusted_again() -> None:
    store = MemoryStore()
    here = ledger(STRANGER, store=store)
    assert here.take_on_trust((*FEED[:4], forged(FEED[4]), *FEED[5:]))
    entries, done = here.judge_waiting(AUTHOR)
    assert [entry.seq for entry in entries] == [0, 1, 2, 3]
    assert done.fault is not None
    assert done.fault.rule == "entry.seal"
    assert here.waiting_feeds() == []
    assert list(store.range(keys.WAITING, b"v")) == []
    assert here.offences() == []
    assert not here.take_on_trust(tuple(FEED[4:]))
    assert here.ingest_run(FEED[4:]).taken == (Taken.NEW,) * 8


def test_our_own_feed_and_forked_ones_are_judged_at_once() -> None:
    assert not ledger(OWNER).take_on_trust((Feed(OWNER).open(),))
    here = ledger(STRANGER)
    ours, theirs = forked_feed(103, 2, (2, 1))
    for entry in [*ours[:3], theirs[2]]:
        here.ingest(entry.raw)
    assert not here.take_on_trust((ours[3],))


def test_a_fork_that_waits_is_found_when_it_is_judged() -> None:
    ours, theirs = forked_feed(103, 2, (2, 2))
    here = ledger(STRANGER)
    assert here.take_on_trust(tuple(ours))
    assert here.offences() == []
    assert here.ingest_run(theirs).taken == (Taken.NEW,) * 4
    assert judge_all(here) == [Taken.KNOWN, Taken.KNOWN, Taken.CONFLICT, Taken.CONFLICT]
    assert [offence.seq for offence in here.offences()] == [2]
    assert here.verify().broken is None


def test_a_double_lease_that_waits_is_no_evidence_yet() -> None:
    feed = Feed(OWNER)
    first = feed.open()
    run = (first, feed.add(grant()), feed.add(grant(nonce=1)))
    here = ledger(STRANGER)
    assert here.take_on_trust(run)
    assert here.evidence() == []
    judge_all(here)
    assert {offence.rule for offence in here.offences()} >= {"A4"}


SELLER = signer(4)


def traded() -> dict[PublicKey, list[Entry]]:
    """Two feeds that settle 9 USD, and a third that leases one counter twice."""
    story = Story()
    story.settle(SELLER, RENTER, 9_000_000)
    story.claim(SELLER, RENTER, 1_000_000, is_paid=False)
    feed = story.feed(OWNER)
    entries = [*story.entries, feed.add(grant()), feed.add(grant(nonce=1))]
    return {
        by.public: [entry for entry in entries if entry.feed == by.public]
        for by in (SELLER, RENTER, OWNER)
    }


TRADED = traded()


def counted(here: Ledger) -> list[object]:
    """All that entries can add up to: evidence, offences, the fold, debts, standing."""
    cases = tuple(read_case(raw, NET) for raw in here.evidence())
    trust = Trust(look(here.state, cases, ego=RENTER.public, epoch=TODAY))
    return [
        here.evidence(),
        here.offences(),
        fold_digest(here.state),
        debts_of(here.state, SELLER.public),
        trust.view.facts,
        trust.view.kept,
        trust.credit(SELLER.public, MONEY),
        trust.reliability(SELLER.public, MONEY),
    ]


@settings(max_examples=20)
@given(st.data())
def test_i7_what_waits_reaches_neither_evidence_nor_the_fold_nor_debts_nor_trust(
    data: st.DataObject,
) -> None:
    here, judged = ledger(STRANGER), ledger(STRANGER)
    for entries in TRADED.values():
        place = data.draw(st.integers(0, 2))
        for each in (here, judged):
            assert each.ingest_run(entries[:place]).fault is None
    before = counted(here)
    for feed, entries in TRADED.items():
        head = here.head(feed)
        rest = entries[0 if head is None else head.seq + 1 :]
        split = data.draw(st.integers(0, len(rest)))
        for run in (rest[:split], rest[split:]):
            assert not run or here.take_on_trust(tuple(run))
            assert counted(here) == before
    while feeds := here.waiting_feeds():
        taken, _ = here.judge_waiting(
            data.draw(st.sampled_from(feeds)), data.draw(st.integers(1, 3))
        )
        assert judged.ingest_run(taken).fault is None
        assert counted(here) == counted(judged)
    for told, nothing in zip(counted(here), counted(ledger(STRANGER)), strict=True):
        assert told != nothing


LONG = feed_of(104, TRUST_FROM + 100)


def far_behind() -> tuple[Replica, Replica]:
    one, two = replica(50), replica(51)
    one.take(LONG[0])
    two.take(*LONG)
    return one, two


def test_a_long_catch_up_waits_and_is_not_asked_for_again() -> None:
    one, two = far_behind()
    session = one.session(is_opener=True, may_trust=True)
    talk(session, two.session(is_opener=False))
    assert session.has_learned
    assert one.ids() == [LONG[0].id]
    end = one.ledger.waiting_end(LONG[0].feed)
    assert end is not None
    assert end.id == LONG[-1].id
    again = talk(one.session(is_opener=True, may_trust=True), two.session(is_opener=False))
    assert again.entries == 0
    assert judge_all(one.ledger) == [Taken.NEW] * (len(LONG) - 1)
    one.frontier.refresh(LONG[0].feed)
    assert one.roots() == two.roots()


def test_without_trust_a_long_catch_up_is_judged_as_it_comes() -> None:
    one, two = far_behind()
    talk(one.session(is_opener=True), two.session(is_opener=False))
    assert one.ledger.waiting_feeds() == []
    assert one.ids() == two.ids()


@settings(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from(["trust", "take", "judge"]), st.integers(1, 4))))
def test_however_entries_come_the_record_is_the_same(steps: list[tuple[str, int]]) -> None:
    here, place = ledger(STRANGER), 0
    for what, count in steps:
        run = tuple(FEED[place : place + count])
        if what == "judge":
            if here.waiting_feeds():
                here.judge_waiting(AUTHOR, count)
        elif run and what == "trust":
            assert here.take_on_trust(run)
            place += len(run)
        elif run and here.waiting_end(AUTHOR) is None:
            assert here.ingest_run(run).fault is None
            place += len(run)
    judge_all(here)
    there = ledger(STRANGER)
    there.ingest_run(FEED[:place])
    assert here.state == there.state
    assert here.heads() == there.heads()
    assert here.verify().broken is None
