"""Two replicas that hear of an owner, a renter and one who forks; the fold of each (I4, I5).

Entries come late, twice, out of order, or wait to be judged; sessions are cut; a replica is opened
again.
"""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ledger.bodies import Accept
from ledger.entry import NO_ENTRY, Entry
from ledger.fold import State
from ledger.store import MemoryStore
from ledger.units_chain import Turn
from protocol.units import Digest
from tests.make_ledger import (
    OWNER,
    RENTER,
    STRANGER,
    Feed,
    grant,
    statement,
    turn_of,
)
from tests.make_sync import Replica, agree, replica, talk

SIDES = st.integers(0, 1)


class Pair(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.stores = [MemoryStore(), MemoryStore()]
        self.pair = [replica(50 + side, store=store) for side, store in enumerate(self.stores)]
        self.owner, self.renter = Feed(OWNER), Feed(RENTER)
        self.liars: list[Feed] = []
        self.turn: Turn | None = None
        self.grants: list[Entry] = []
        self.time = 0
        self.ctr = 0
        self.written: list[Entry] = []
        self.seen: list[set[Digest]] = [set(), set()]

    @initialize()
    def begin(self) -> None:
        liar = Feed(STRANGER)
        for feed in (self.owner, self.renter, liar):
            self.written.append(feed.open())
        self.liars = [liar]

    @rule(length=st.integers(1, 500))
    def lease(self, length: int) -> None:
        """Leases follow each other, as an honest owner's do."""
        self.time += 1_000
        self.owner.ts = self.time
        body = grant(
            self.turn,
            start=self.time + 1,
            end=self.time + 1 + length,
            nonce=len(self.grants),
            ts=self.time,
        )
        entry = self.owner.add(body)
        self.turn = turn_of(entry, body)
        self.grants.append(entry)
        self.written.append(entry)

    @precondition(lambda self: self.grants)
    @rule(data=st.data())
    def accept(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from(self.grants))
        self.renter.ts = self.time
        self.written.append(self.renter.add(Accept(grant=entry.id)))

    @rule(of_owner=st.booleans())
    def bill(self, of_owner: bool) -> None:
        self.ctr += 1
        feed, peer = (self.owner, RENTER) if of_owner else (self.renter, OWNER)
        self.written.append(feed.add(statement(ctr=self.ctr, used=self.ctr, peer=peer)))

    @rule(data=st.data(), is_new=st.booleans())
    def lie(self, data: st.DataObject, is_new: bool) -> None:
        """The third author goes on with one of its branches, or begins another."""
        branch = data.draw(st.sampled_from(self.liars))
        if is_new and len(self.liars) < 3:
            branch = branch.branch()
            self.liars.append(branch)
        self.ctr += 1
        self.written.append(branch.add(statement(ctr=self.ctr, used=self.ctr)))

    @rule(data=st.data(), side=SIDES, with_those_before=st.booleans())
    def deliver(self, data: st.DataObject, side: int, with_those_before: bool) -> None:
        place = data.draw(st.integers(0, len(self.written) - 1))
        here = self.pair[side]
        for entry in self.written[0 if with_those_before else place : place + 1]:
            here.ledger.ingest(entry.raw)
            here.frontier.refresh(entry.feed)
        here.frontier.refresh_proofs()

    @rule(data=st.data(), side=SIDES)
    def trust(self, data: st.DataObject, side: int) -> None:
        """What follows of a feed waits to be judged. Sync does so with what is far behind only."""
        here = self.pair[side]
        runs = [run for end in self.written if (run := run_to(end, self.written, here))]
        if runs:
            here.ledger.take_on_trust(data.draw(st.sampled_from(runs)))

    @rule(opener=SIDES, cut=st.none() | st.integers(0, 12), may_trust=st.booleans())
    def meet(self, opener: int, cut: int | None, may_trust: bool) -> None:
        one, two = self.pair[opener], self.pair[1 - opener]
        talk(
            one.session(is_opener=True, may_trust=may_trust),
            two.session(is_opener=False),
            cut_after=cut,
        )
        for here in self.pair:
            judge_all(here)

    @rule(side=SIDES)
    def open_again(self, side: int) -> None:
        self.pair[side] = replica(50 + side, store=self.stores[side])

    @invariant()
    def what_is_here_only_grows(self) -> None:
        for side, here in enumerate(self.pair):
            ids = set(here.ids())
            assert self.seen[side] <= ids
            self.seen[side] = ids

    @invariant()
    def the_fold_is_that_of_the_set(self) -> None:
        for here in self.pair:
            entries = list(here.ledger._records.all_entries())
            for order in (entries, entries[::-1]):
                assert folded(order, here) == here.ledger.state
            assert here.ledger.verify().broken is None

    @invariant()
    def only_the_liar_is_accused_and_whoever_has_two_branches_can_prove_it(self) -> None:
        for here in self.pair:
            assert {each.offender for each in here.ledger.offences()} <= {STRANGER.public}
            entries = here.ledger._records.all_entries()
            places = [entry.seq for entry in entries if entry.feed == STRANGER.public]
            fork = here.ledger.state.fork_of(STRANGER.public)
            # Proofs travel before entries: a fork may be known by its proof alone.
            assert all(fork is not None and fork <= seq for seq in twice(places))
            assert (fork is None) == (here.ledger.evidence() == [])

    def teardown(self) -> None:
        one, two = self.pair
        for side, here in enumerate(self.pair):
            judge_all(here)
            self.seen[side] = set(here.ids())
        agree(one, two, sessions_max=8)
        assert one.ids() == two.ids() == sorted(self.seen[0] | self.seen[1])
        assert one.ledger.state == two.ledger.state
        assert one.ledger.evidence() == two.ledger.evidence()
        assert one.roots() == two.roots()


def twice(places: list[int]) -> list[int]:
    """The places at which there is more than one entry."""
    return [place for place, count in Counter(places).items() if count > 1]


def run_to(end: Entry, written: list[Entry], here: Replica) -> tuple[Entry, ...]:
    """The entries of one feed behind what is here up to this one; none if it does not follow."""
    ledger = here.ledger
    after = ledger.waiting_end(end.feed) or ledger.head(end.feed)
    by_id = {entry.id: entry for entry in written}
    run = [end]
    while run[0].header.prev in by_id and run[0].header.prev != (after and after.id):
        run.insert(0, by_id[run[0].header.prev])
    return tuple(run) if run[0].header.prev == (NO_ENTRY if after is None else after.id) else ()


def judge_all(here: Replica) -> None:
    for feed in here.ledger.waiting_feeds():
        while here.ledger.waiting_end(feed) is not None:
            _, done = here.ledger.judge_waiting(feed)
            assert done.fault is None
        here.frontier.refresh(feed)
    here.frontier.refresh_proofs()


def folded(entries: list[Entry], here: Replica) -> State:
    """The fold of these entries alone, and of the fork that is known."""
    state = State()
    for entry in entries:
        state.apply(entry)
    fork = here.ledger.state.fork_of(STRANGER.public)
    if fork is not None:
        state.fork(STRANGER.public, fork)
    return state


Pair.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestPair = Pair.TestCase
