"""Where a lease finds room: on free units, or on those that bronze must give back. Pure.

The youngest bronze goes first, since it has the least to lose. SPEC.md 9.2 and 13.5.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from ledger.fold import Lease
from ledger.units_chain import next_place, overlaps
from p2pnode.matching.free_units import TurnOf, free_units
from p2pnode.matching.provider import Shelf
from protocol.errors import Unavailable
from protocol.lease import LeaseRequest, UnitTurn
from protocol.limits import OPEN_INTERVALS_SOFT_MAX
from protocol.units import Millis, MillisSpan

BREAKING_LIFE_MS: Final = MillisSpan(3_000)
"""A bid on units that must be taken back first is firm this long: the notice comes after it."""
LEAD_MS: Final = MillisSpan(500)
"""A lease starts at least this long after its bid, so that it can be granted before."""


@dataclass(frozen=True, slots=True)
class Room:
    """Units that a lease can have from then on."""

    units: tuple[UnitTurn, ...]
    start_ms: Millis
    is_breaking: bool = False
    """Whether bronze must be taken back for it."""


def room_for(
    count: int,
    span: tuple[Millis, Millis],
    *,
    shelf: Shelf,
    turn_of: TurnOf,
    held: frozenset[bytes] = frozenset(),
    bronze: Iterable[Lease] = (),
    now: Millis,
) -> Room | None:
    """The room for so many units within `span`, or as long after the notice; None: too little.

    `held` are units that an exclusive bid keeps for another renter; `bronze` are our open leases
    of that tier, if this one goes before them.
    """
    start, end = span
    free = free_units(shelf, turn_of, start=start, end=end, held=held)
    if len(free) >= count:
        return Room(free[:count], start)
    shelf = replace(shelf, units=tuple(unit for unit in shelf.units if unit not in held))
    ours = [each for each in bronze if any(t.unit in shelf.units for t in each.request.units)]
    if not ours:
        return None
    notice = max(each.request.notice_ms for each in ours)
    late = Millis(max(start, now + BREAKING_LIFE_MS + notice + LEAD_MS))
    units = _yielding(count, (late, Millis(late + end - start)), (shelf, turn_of, ours))
    return None if units is None else Room(units, late, is_breaking=True)


def _yielding(
    count: int, span: tuple[Millis, Millis], of: tuple[Shelf, TurnOf, list[Lease]]
) -> tuple[UnitTurn, ...] | None:
    shelf, turn_of, bronze = of
    start, end = span
    free = free_units(shelf, turn_of, start=start, end=end)[:count]
    known = {turn.unit for turn in free}
    held = [
        (unit, leases)
        for unit in shelf.units
        if unit not in known and (leases := _only_bronze(unit, turn_of, span, bronze))
    ]
    held.sort(key=lambda each: (-max(lease.request.start_ms for lease in each[1]), each[0]))
    chosen = held[: count - len(free)]
    if len(free) + len(chosen) < count:
        return None
    broken = {lease.id: lease for _, leases in chosen for lease in leases}
    yielded = (
        UnitTurn(unit=unit, ctr=_ctr_after(unit, turn_of, broken.values())) for unit, _ in chosen
    )
    return (*free, *yielded)


def _only_bronze(
    unit: bytes, turn_of: TurnOf, span: tuple[Millis, Millis], bronze: Iterable[Lease]
) -> list[Lease]:
    """The leases that hold the unit then, if all of them can be taken back and there is place."""
    turn = turn_of(unit)
    if turn is None or len(turn.open) >= OPEN_INTERVALS_SOFT_MAX:
        return []
    by_ctr = {
        each.ctr: lease for lease in bronze for each in lease.request.units if each.unit == unit
    }
    held = [each for each in turn.open if overlaps((each,), *span)]
    leases = [by_ctr.get(each.ctr) for each in held]
    return [] if None in leases else [lease for lease in leases if lease is not None]


def _ctr_after(unit: bytes, turn_of: TurnOf, broken: Iterable[Lease]) -> int:
    """The unit's next counter once these leases have been released, which moves it each time."""
    moved = sum(unit in {each.unit for each in lease.request.units} for lease in broken)
    return next_place(turn_of(unit)).ctr + moved


def to_break(
    request: LeaseRequest, *, turn_of: TurnOf, bronze: Iterable[Lease], now: Millis
) -> list[Lease]:
    """The bronze leases that this request needs taken back; none where its units are free.

    Raises Unavailable, before anything is broken, if that would not help it.
    """
    bronze = list(bronze)
    span = Millis(request.start_ms), Millis(request.end_ms)
    broken: dict[bytes, Lease] = {}
    for each in request.units:
        turn = turn_of(each.unit)
        if turn is None or not overlaps(turn.open, *span):
            continue
        leases = _only_bronze(each.unit, turn_of, span, bronze)
        if not leases or request.tier == "bronze":
            raise Unavailable(f"unit {each.unit.hex()} is leased in that time")
        broken.update({lease.id: lease for lease in leases})
    for each in request.units if broken else ():
        if _ctr_after(each.unit, turn_of, broken.values()) != each.ctr:
            raise Unavailable(f"unit {each.unit.hex()} has another turn next")
    if any(now + lease.request.notice_ms > request.start_ms for lease in broken.values()):
        raise Unavailable("it is too late to give notice for it")
    return list(broken.values())
