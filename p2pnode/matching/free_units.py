"""Which units of an owner are free when a renter wants some. Pure."""

from collections.abc import Callable

from ledger.units_chain import Turn, next_place, overlaps
from p2pnode.matching.provider import Shelf
from protocol.lease import UnitTurn
from protocol.limits import OPEN_INTERVALS_SOFT_MAX
from protocol.units import Millis

TurnOf = Callable[[bytes], Turn | None]
"""The newest ledger entry of one of our units."""


def free_units(
    shelf: Shelf,
    turn_of: TurnOf,
    *,
    start: Millis,
    end: Millis,
    held: frozenset[bytes] = frozenset(),
) -> tuple[UnitTurn, ...]:
    """The shelf's units that nobody leases within [start, end), with their next counters.

    `held` are those that an exclusive bid keeps for somebody else.
    """
    found = []
    for unit in shelf.units:
        if unit in held:
            continue
        turn = turn_of(unit)
        leased = () if turn is None else turn.open
        if len(leased) < OPEN_INTERVALS_SOFT_MAX and not overlaps(leased, start, end):
            found.append(UnitTurn(unit=unit, ctr=next_place(turn).ctr))
    return tuple(found)
