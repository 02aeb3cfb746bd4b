"""Whose units a better tier is given: the youngest bronze's, and only where it helps."""

from typing import Any

import pytest
from msgspec.structs import replace

from ledger.fold import Lease
from ledger.intervals import Interval
from ledger.units_chain import Turn
from p2pnode.matching.room import BREAKING_LIFE_MS, LEAD_MS, Room, room_for, to_break
from protocol.errors import Unavailable
from protocol.lease import LeaseRequest, UnitTurn
from protocol.units import Digest, Millis, MillisSpan
from tests import make
from tests.make import NOW
from tests.make_desk import HOUR, shelf, turn

UNITS = tuple(bytes([number]) * 16 for number in range(4))
NOTICE = 30_000
SPAN = Millis(NOW + 1_000), Millis(NOW + 1_000 + HOUR)
AFTER_NOTICE = NOW + BREAKING_LIFE_MS + NOTICE + LEAD_MS


def bronze(*units: tuple[bytes, int], age: int, notice: int = NOTICE) -> Lease:
    """A lease that began so long ago and goes on for hours."""
    request = make.lease_request(
        units=tuple(UnitTurn(unit=unit, ctr=ctr) for unit, ctr in units),
        tier="bronze",
        notice_ms=MillisSpan(notice),
        start_ms=Millis(NOW - age),
        end_ms=Millis(NOW + 9 * HOUR),
    )
    return Lease(
        id=Digest(bytes([age % 256]) * 32),
        owner=make.FEED.public,
        renter=make.RENTER.public,
        request=request,
        is_accepted=True,
        ended_ms=Millis(NOW + 9 * HOUR),
        reason=None,
        is_forked=False,
    )


def held(lease: Lease) -> dict[bytes, Turn]:
    """The newest turns of a lease's units, if there was nothing since."""
    request = lease.request
    return {
        each.unit: replace_open(turn(ctr=each.ctr), Interval(
            request.start_ms, request.end_ms, each.ctr))
        for each in request.units
    }  # fmt: skip


def replace_open(of: Turn, *intervals: Interval) -> Turn:
    return Turn(ctr=of.ctr, seq=of.seq, id=of.id, open=intervals)


OLD, YOUNG = bronze((UNITS[0], 4), age=9_000), bronze((UNITS[1], 7), age=1_000)
PAIR = bronze((UNITS[2], 1), (UNITS[3], 5), age=5_000)
TURNS = {**held(OLD), **held(YOUNG), **held(PAIR)}
ALL = (OLD, YOUNG, PAIR)


def room(count: int, leases: tuple[Lease, ...] = ALL, **turns: Any) -> Room | None:
    return room_for(
        count,
        SPAN,
        shelf=shelf(units=UNITS),
        turn_of={**TURNS, **turns.get("turns", {})}.get,
        bronze=leases,
        now=NOW,
    )


def units_of(found: Room | None) -> list[tuple[int, int]]:
    assert found is not None
    return [(UNITS.index(each.unit), each.ctr) for each in found.units]


def test_the_youngest_bronze_yields_first_and_its_counter_has_moved() -> None:
    found = room(1)
    assert found is not None
    assert units_of(found) == [(1, 9)]
    assert found.is_breaking
    assert found.start_ms == AFTER_NOTICE
    assert units_of(room(2)) == [(1, 9), (2, 3)]
    # The pair is one lease: one RELEASE moves the counters of both.
    assert units_of(room(3)) == [(1, 9), (2, 3), (3, 7)]
    assert units_of(room(4)) == [(1, 9), (2, 3), (3, 7), (0, 6)]
    assert room(5) is None


def test_what_is_free_is_given_before_anything_is_broken() -> None:
    free = {UNITS[0]: turn(ctr=4)}
    found = room(1, turns=free)
    assert (units_of(found), found and found.is_breaking) == ([(0, 5)], False)
    assert found is not None
    assert found.start_ms == SPAN[0]
    assert units_of(room(2, turns=free)) == [(0, 5), (1, 9)]


def test_a_unit_that_something_else_holds_as_well_is_left_alone() -> None:
    booked = Interval(Millis(NOW + HOUR // 2), Millis(NOW + HOUR), 8)
    both = {UNITS[1]: replace_open(turn(ctr=8), *TURNS[UNITS[1]].open, booked)}
    assert units_of(room(1, turns=both)) == [(2, 3)]
    # One that is booked for a time after this lease is no hindrance.
    later = Interval(Millis(NOW + 20 * HOUR), Millis(NOW + 21 * HOUR), 8)
    after = {UNITS[1]: replace_open(turn(ctr=8), *TURNS[UNITS[1]].open, later)}
    assert units_of(room(1, turns=after)) == [(1, 10)]


def test_without_bronze_there_is_no_room() -> None:
    assert room(1, leases=()) is None


def request(found: Room, **changes: Any) -> LeaseRequest:
    made = make.lease_request(
        units=found.units,
        start_ms=found.start_ms,
        end_ms=Millis(found.start_ms + HOUR),
    )
    return replace(made, **changes)


def broken(asked: LeaseRequest, now: int = NOW) -> list[Lease]:
    return to_break(asked, turn_of=TURNS.get, bronze=ALL, now=Millis(now))


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_what_is_bid_can_be_taken(count: int) -> None:
    found = room(count)
    assert found is not None
    given = {each.unit for each in found.units}
    leases = broken(request(found))
    assert {lease.id for lease in leases} == {
        lease.id for lease in ALL if given & {each.unit for each in lease.request.units}
    }


def test_nothing_is_broken_for_what_would_not_be_granted() -> None:
    found = room(1)
    assert found is not None
    in_time = found.start_ms - NOTICE
    assert broken(request(found), now=in_time) == [YOUNG]
    with pytest.raises(Unavailable, match="too late"):
        broken(request(found), now=in_time + 1)
    with pytest.raises(Unavailable, match="another turn"):
        broken(request(found, units=(UnitTurn(unit=UNITS[1], ctr=8),)))
    with pytest.raises(Unavailable, match="is leased"):
        broken(request(found, tier="bronze"))


def test_a_request_for_free_units_breaks_nothing() -> None:
    found = room(1, turns={UNITS[0]: turn(ctr=4)})
    assert found is not None
    free = {**TURNS, UNITS[0]: turn(ctr=4)}
    assert to_break(request(found), turn_of=free.get, bronze=ALL, now=NOW) == []
