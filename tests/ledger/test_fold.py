import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ledger.bodies import Accept
from ledger.entry import Entry
from ledger.fold import State
from protocol.units import Digest
from tests.make_ledger import (
    HOUR,
    NET,
    OWNER,
    RENTER,
    STRANGER,
    UNIT,
    Feed,
    at,
    genesis,
    grant,
    lease_request,
    newest_half,
    release,
    statement,
    turn_of,
)


def story() -> tuple[list[Entry], dict[str, Entry]]:
    """A lease granted, accepted, cut short and settled; another granted; a fork of the owner."""
    owner, renter, stranger = Feed(OWNER), Feed(RENTER), Feed(STRANGER)
    entries = [feed.open() for feed in (owner, renter, stranger)]
    body = grant()
    first = owner.add(body)
    accepted = renter.add(Accept(grant=first.id))
    false_accept = stranger.add(Accept(grant=first.id))
    fork = owner.branch()
    end = release(turn_of(first, body), first, at_ms=2_000)
    ended = owner.add(end)
    second_body = grant(turn_of(ended, end), start=2 * HOUR, end=3 * HOUR, nonce=1)
    second = owner.add(second_body)
    owed = owner.add(statement(RENTER, ctr=0, used=1))
    more = owner.add(statement(RENTER, ctr=1, used=2))
    other_half = renter.add(statement(OWNER, ctr=0, used=1))
    unknown = owner.take(owner.draft_raw(77, b"\xa0"))
    false_end = stranger.add(msgspec.structs.replace(end, at_ms=at(1)))
    branch = fork.add(release(turn_of(first, body), first, at_ms=3_000))
    named = {
        "first": first,
        "second": second,
        "more": more,
        "ended": ended,
        "branch": branch,
        "owed": owed,
    }
    rest = [accepted, false_accept, other_half, unknown, false_end]
    return [*entries, *named.values(), *rest], named


ENTRIES, NAMED = story()


def folded(entries: list[Entry], *, forks: tuple[int, ...] = ()) -> State:
    state = State()
    for entry in entries:
        state.apply(entry)
    for seq in forks:
        state.fork(OWNER.public, seq)
    return state


@given(st.permutations(ENTRIES), st.lists(st.sampled_from(ENTRIES), max_size=5))
def test_order_and_repetition_change_nothing(entries: list[Entry], again: list[Entry]) -> None:
    state = folded([*entries, *again], forks=(4, 2, 3))
    known = folded(ENTRIES, forks=(2,))
    assert state == known
    assert state.leases() == known.leases()


def test_states_of_other_sets_differ() -> None:
    assert folded(ENTRIES[:-1]) != folded(ENTRIES)
    assert folded(ENTRIES) != "another thing"


def test_a_lease_goes_from_granted_to_accepted_to_ended() -> None:
    owner = Feed(OWNER)
    state = folded([owner.open()])
    body = grant()
    first = owner.add(body)
    assert state.lease(first.id) is None
    state.apply(first)
    lease = state.lease(first.id)
    assert lease is not None
    assert (lease.owner, lease.renter) == (OWNER.public, RENTER.public)
    assert lease.request == lease_request()
    assert (lease.is_accepted, lease.reason, lease.ended_ms) == (False, None, at(1_000 + HOUR))
    renter = Feed(RENTER)
    renter.open()
    state.apply(renter.add(Accept(grant=first.id)))
    accepted = state.lease(first.id)
    assert accepted is not None
    assert accepted.is_accepted
    state.apply(owner.add(release(turn_of(first, body), first, at_ms=2_000)))
    ended = state.lease(first.id)
    assert ended is not None
    assert (ended.reason, ended.ended_ms) == ("unpaid", at(2_000))


def test_only_the_renter_accepts_and_only_the_owner_releases() -> None:
    stranger, owner = Feed(STRANGER), Feed(OWNER)
    owner.open()
    stranger.open()
    body = grant()
    first = owner.add(body)
    end = release(turn_of(first, body), first)
    state = folded([first, stranger.add(Accept(grant=first.id)), stranger.add(end)])
    lease = state.lease(first.id)
    assert lease is not None
    assert not lease.is_accepted
    assert lease.reason is None


def test_of_two_releases_the_earlier_end_counts() -> None:
    state = folded(ENTRIES)
    lease = state.lease(NAMED["first"].id)
    assert lease is not None
    assert lease.ended_ms == at(2_000)


def test_a_late_release_does_not_lengthen_a_lease() -> None:
    owner = Feed(OWNER)
    owner.open()
    body = grant()
    first = owner.add(body)
    state = folded([first, owner.add(release(turn_of(first, body), first, at_ms=9 * HOUR))])
    lease = state.lease(first.id)
    assert lease is not None
    assert lease.ended_ms == at(1_000 + HOUR)


def test_the_newest_turn_of_a_unit_is_known() -> None:
    state = folded(ENTRIES)
    turn = state.turn(OWNER.public, UNIT)
    assert turn is not None
    assert (turn.ctr, turn.id) == (2, NAMED["second"].id)
    assert state.turn(STRANGER.public, b"another unit 001") is None


def test_of_two_entries_of_one_turn_the_smaller_id_is_the_newest() -> None:
    both = [NAMED["ended"], NAMED["branch"]]
    for entries in (both, both[::-1]):
        turn = folded(entries).turn(OWNER.public, UNIT)
        assert turn is not None
        assert turn.id == min(entry.id for entry in both)


def test_statements_are_kept_by_account() -> None:
    state = folded(ENTRIES)
    halves = state.halves(OWNER.public, RENTER.public, money="USD")
    assert [half.statement.ctr for half in halves] == [0, 1]
    newest = newest_half(state, OWNER.public, RENTER.public)
    assert newest is not None
    assert newest.id == NAMED["more"].id
    assert len(state.halves(RENTER.public, OWNER.public, money="USD")) == 1


def test_from_a_fork_on_rights_end_and_duties_stay() -> None:
    state = folded(ENTRIES, forks=(NAMED["more"].seq,))
    newest = newest_half(state, OWNER.public, RENTER.public)
    assert newest is not None
    assert newest.id == NAMED["owed"].id
    assert len(state.halves(OWNER.public, RENTER.public, money="USD")) == 2
    state.fork(OWNER.public, NAMED["second"].seq)
    assert state.fork_of(OWNER.public) == NAMED["second"].seq
    assert state.fork_of(RENTER.public) is None
    assert newest_half(state, OWNER.public, RENTER.public) is None
    assert {lease.id: lease.is_forked for lease in state.leases()} == {
        NAMED["first"].id: False,
        NAMED["second"].id: True,
    }


def test_a_genesis_says_whose_feed_it_is_and_nothing_else() -> None:
    state = folded([Feed(OWNER).open()])
    assert state.feeds_of_account(OWNER.public) == [OWNER.public]
    assert (state.leases(), state.accounts(), state.units_of(OWNER.public)) == ([], [], [])
    assert genesis(OWNER).incarnation == 1
    assert folded([]).lease(Digest(NET)) is None
