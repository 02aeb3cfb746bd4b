"""What a feed says at its begin of the one that it follows, by the root key of both."""

import pytest
from msgspec.structs import replace

from ledger.fold import State
from ledger.ledger import Taken
from ledger.limits import SUCCESSOR_UNITS_MAX
from ledger.succession import end_of, successors
from protocol.errors import LocalFault
from protocol.signing import Signer
from tests.make_ledger import (
    HOUR,
    NET,
    OWNER,
    STRANGER,
    Feed,
    at,
    certificate,
    genesis,
    lease_request,
    ledger,
    opened_ledger,
    root_of,
    sealed,
    statement,
)

UNITS = tuple(bytes([number]) * 16 for number in range(1, 16))


def test_all_units_are_carried_over_with_their_last_turns() -> None:
    old, new = opened_ledger(OWNER), ledger(STRANGER)
    for nonce, units in enumerate((UNITS[:8], UNITS[8:])):
        turns = tuple((unit, 0) for unit in units)
        old.grant(sealed(lease_request(turns, nonce=nonce)), at(0))
    head = old.head(old.feed)
    assert head is not None
    ended = end_of(old.state, old.feed, head=head.seq)
    said = successors(
        old.state,
        certificate=certificate(OWNER),
        ended=ended,
        into=STRANGER.public,
        root=root_of(OWNER),
        net=NET,
        at=at(HOUR),
    )
    assert ended == 3
    assert [len(each.units) for each in said] == [SUCCESSOR_UNITS_MAX, 2]
    for row in (row for each in said for row in each.units):
        turn = old.state.turn(old.feed, row.unit)
        assert turn is not None
        assert (row.ctr, row.id, row.open) == (turn.ctr, turn.id, turn.open)
    assert sorted(row.unit for each in said for row in each.units) == list(UNITS)
    # What it says is judged as a peer would.
    written = new.append_all([genesis(STRANGER), *said], at(HOUR))
    assert [old.ingest(entry.raw) for entry in written] == [Taken.NEW] * 3
    assert old.state.is_forked(OWNER.public, ended)
    assert not old.state.is_forked(OWNER.public, ended - 1)


def test_a_feed_without_units_is_ended_all_the_same() -> None:
    old = opened_ledger(OWNER)
    [said] = successors(
        old.state,
        certificate=certificate(OWNER),
        ended=1,
        into=STRANGER.public,
        root=root_of(OWNER),
        net=NET,
        at=at(0),
    )
    [first] = old.entries(OWNER.public, 0, 1)
    new = ledger(STRANGER)
    written = new.append_all([genesis(STRANGER), said], at(0))
    assert not new.state.is_forked(OWNER.public, 1)  # whose root key that is, is not known here yet
    new.ingest(first)
    assert new.state.is_forked(OWNER.public, 1)
    # The old feed's author hears of it, and signs no more.
    for entry in written:
        old.ingest(entry.raw)
    assert old.is_ended()
    with pytest.raises(LocalFault, match="goes on in another"):
        old.append(statement(), at(0))


def test_only_the_root_key_of_its_first_entry_ends_a_feed() -> None:
    """Whoever has stolen the key of a feed can certify it by a root key of its own."""
    old, thief = opened_ledger(OWNER), Signer(b"t" * 32)
    [said] = successors(
        old.state,
        certificate=certificate(OWNER, root=thief),
        ended=0,
        into=STRANGER.public,
        root=thief,
        net=NET,
        at=at(0),
    )
    for entry in ledger(STRANGER).append_all([genesis(STRANGER), said], at(0)):
        old.ingest(entry.raw)
    assert not old.is_ended()
    old.append(statement(), at(0))


def test_two_first_entries_with_two_root_keys_are_folded_alike_in_either_order() -> None:
    one, other = Feed(OWNER), Feed(OWNER)
    entries = [
        one.open(),
        other.add(replace(genesis(OWNER), certificate=certificate(OWNER, root=STRANGER))),
    ]
    states = []
    for order in (entries, entries[::-1]):
        state = State()
        for entry in order:
            state.apply(entry)
        states.append(state)
    assert states[0] == states[1]
    assert states[0].feeds_of_account(OWNER.public) == [OWNER.public]


def test_a_forked_feed_ends_at_its_fork() -> None:
    old = opened_ledger(OWNER)
    old.state.fork(OWNER.public, 7)
    assert end_of(old.state, OWNER.public, head=9) == 7
