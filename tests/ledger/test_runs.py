"""Entries that are handed in together end as if each had been handed in alone."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.bodies import Accept
from ledger.entry import Entry
from ledger.ledger import Ledger, Taken
from ledger.store import MemoryStore
from protocol.errors import PeerFault
from protocol.units import Digest, Signature
from tests.ledger.test_ingest import ENTRIES
from tests.make_ledger import OWNER, RENTER, STRANGER, Feed, at, ledger, opened_ledger, statement
from tests.make_ledger_faults import FaultyStore, Fuse


def one_by_one(here: Ledger, run: list[Entry]) -> list[Taken | str]:
    told: list[Taken | str] = []
    for entry in run:
        try:
            told.append(here.ingest(entry.raw))
        except PeerFault as fault:
            return [*told, fault.rule]
    return told


def together(here: Ledger, run: list[Entry]) -> list[Taken | str]:
    told: list[Taken | str] = []
    while True:
        done = here.ingest_run(run)
        told += done.taken
        run = run[len(done.taken) :]
        if done.fault is not None:
            return [*told, done.fault.rule]
        if not run:
            return told
        assert done.is_dear
        assert done.taken[-1] in {Taken.NEW, Taken.CONFLICT}


FORGED = [Entry(draft=entry.draft, signature=Signature(bytes(64))) for entry in ENTRIES[1::3]]


@settings(max_examples=80)
@given(st.lists(st.lists(st.sampled_from([*ENTRIES, *FORGED]), max_size=12), max_size=6))
def test_runs_are_taken_as_their_entries_are(runs: list[list[Entry]]) -> None:
    here, there = ledger(STRANGER), ledger(STRANGER)
    for run in runs:
        assert together(here, run) == one_by_one(there, run)
    assert here.state == there.state
    assert here.evidence() == there.evidence()
    assert here.heads() == there.heads()
    assert list(here._records.all_entries()) == list(there._records.all_entries())
    assert here.verify().broken is None


def test_a_run_is_one_write() -> None:
    fuse = Fuse(99, after=False)
    here = ledger(STRANGER, store=FaultyStore(MemoryStore(), fuse))
    left, feed = fuse.left, Feed(OWNER)
    run = [feed.open(), *(feed.add(statement(ctr=n)) for n in range(50))]
    assert here.ingest_run(run).taken == (Taken.NEW,) * 51
    assert left - fuse.left == 1


def test_a_bad_entry_ends_a_run_and_those_before_it_are_kept() -> None:
    here, feed = ledger(STRANGER), Feed(OWNER)
    good = [feed.open(), feed.add(statement()), feed.add(Accept(grant=Digest(b"g" * 32)))]
    bad = Entry(draft=feed.add(statement(ctr=1)).draft, signature=good[0].signature)
    done = here.ingest_run([*good, bad, Feed(RENTER).open()])
    assert done.taken == (Taken.NEW,) * 3
    assert done.fault is not None
    assert done.fault.rule == "entry.seal"
    assert [head.seq for head in here.heads()] == [2]
    assert here.head(OWNER.public) == ledger_of(good).head(OWNER.public)


def ledger_of(entries: list[Entry]) -> Ledger:
    here = ledger(STRANGER)
    for entry in entries:
        here.ingest(entry.raw)
    return here


def test_entries_of_ours_in_a_run_are_reserved() -> None:
    mine = opened_ledger()
    feed = Feed(OWNER)
    feed.open()
    assert mine.ingest_run([feed.add(statement()), feed.add(statement(ctr=1))]).fault is None
    assert mine.append(statement(ctr=2), at(0)).seq == 3
