"""The fold of all kinds, step by step: only the set of what was applied counts (I4)."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from ledger.bodies import Accept
from ledger.debts import debts_of, lines_of
from ledger.entry import Entry
from ledger.fold import State
from protocol.units import PublicKey
from tests.ledger.test_fold import ENTRIES
from tests.ledger.test_other_bodies import GOOD
from tests.make_evidence import successor
from tests.make_ledger import (
    OWNER,
    RENTER,
    STRANGER,
    WITNESSES,
    Feed,
    certificate,
    cosigned,
    genesis,
    witnessed_lease,
)

FEEDS = (OWNER.public, RENTER.public, STRANGER.public)


def of_all_kinds() -> list[Entry]:
    """Leases, accounts, and each of the other kinds; some contradict each other."""
    owner, renter, stranger = Feed(OWNER), Feed(RENTER), Feed(STRANGER)
    granted, body = witnessed_lease()
    shown = cosigned(granted, body, by=WITNESSES[:2])
    return [
        *ENTRIES,
        *(owner.add(each) for each in GOOD),
        owner.add(successor(ended=3)),
        owner.add(successor(ended=0)),
        stranger.add(replace(genesis(STRANGER), certificate=certificate(STRANGER, root=OWNER))),
        granted,
        renter.add(Accept(grant=granted.id, cosigned=shown)),
    ]


ALL = of_all_kinds()
PLACES = st.integers(0, len(ALL) - 1)


def folded(places: set[int], forks: dict[PublicKey, int]) -> State:
    state = State()
    for place in sorted(places):
        state.apply(ALL[place])
    for feed, seq in sorted(forks.items()):
        state.fork(feed, seq)
    return state


class Fold(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.state = State()
        self.places: set[int] = set()
        self.forks: dict[PublicKey, int] = {}

    @rule(places=st.lists(PLACES, min_size=1, max_size=12))
    def apply(self, places: list[int]) -> None:
        for place in places:
            self.state.apply(ALL[place])
        self.places |= set(places)

    @rule(feed=st.sampled_from(FEEDS), seq=st.integers(0, 8))
    def fork(self, feed: PublicKey, seq: int) -> None:
        self.state.fork(feed, seq)
        self.forks[feed] = min(seq, self.forks.get(feed, seq))

    @rule()
    def clear(self) -> None:
        """As when a ledger is opened again."""
        self.state = State()
        self.places, self.forks = set(), {}

    @invariant()
    def it_is_that_of_the_set(self) -> None:
        known = folded(self.places, self.forks)
        assert self.state == known
        assert self.state.leases() == known.leases()
        for feed in FEEDS:
            assert debts_of(self.state, feed) == debts_of(known, feed)
            assert lines_of(self.state, feed) == lines_of(known, feed)
            assert self.state.feeds_of_account(feed) == known.feeds_of_account(feed)
            for seq in range(9):
                assert self.state.is_forked(feed, seq) == known.is_forked(feed, seq)


Fold.TestCase.settings = settings(max_examples=50, stateful_step_count=20, deadline=None)
TestFold = Fold.TestCase
