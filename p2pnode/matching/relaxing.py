"""The smallest change to a wish that nothing fits after which something does. Pure and exact.

First each constraint by itself: the nearest value at which an offer fits, and how many do then. If
none is enough by itself, the fewest that are together, and of those the least relative change.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from p2pnode.matching.book import Offer
from p2pnode.matching.search import (
    FILTERS,
    Known,
    KnownOf,
    Wish,
    filters_of,
    nothing_known,
)
from p2pnode.matching.steps import Step, steps

ALSO: Final = {
    "time": ("time", "closed", "deadline", "total"),
    "tier": ("tier", "price", "total"),
    "gpus": ("gpus", "price", "total"),
}
"""Constraints whose step changes how others are judged: fewer GPUs cost less in all, and each of
them more or less by the owner's surcharge."""
_ORDERS: Final = (("time", "tier", "gpus"), ("tier", "gpus", "time"))
"""What can be paid for depends on tier and GPUs; what is missing then, on the time."""
_SHARED: Final = tuple(name for names in ALSO.values() for name in names)


@dataclass(frozen=True, slots=True)
class Change:
    """Some constraints that give way together, and how many offers fit then."""

    steps: tuple[Step, ...]
    matches: int

    @property
    def ppm(self) -> int:
        """What it costs in all."""
        return sum(step.ppm for step in self.steps)


@dataclass(frozen=True, slots=True)
class _Failing:
    """An offer, and all that it fails for."""

    offer: Offer
    known: Known
    names: tuple[str, ...]


def smallest_changes(
    offers: Iterable[Offer], wish: Wish, known_of: KnownOf = nothing_known
) -> tuple[Change, ...]:
    """Each single constraint that is enough, the least change first; or the one smallest set.

    Empty if something fits already, or if nothing would: where all is busy, for example.
    """
    asked = filters_of(wish)
    failing = []
    for offer in offers:
        known = known_of(offer)
        names = tuple(each.name for each in asked if each.fails(offer, wish, known))
        if not names:
            return ()
        failing.append(_Failing(offer, known, names))
    singles = [change for each in FILTERS if (change := _single(each.name, failing, wish))]
    if singles:
        return tuple(sorted(singles, key=lambda change: change.ppm))
    return _smallest_set(failing, wish)


def _single(name: str, failing: list[_Failing], wish: Wish) -> Change | None:
    """The nearest value of one constraint; of equally near ones that with which most fit."""
    covered = ALSO.get(name, (name,))
    near = [each for each in failing if all(other in covered for other in each.names)]
    found: dict[int, dict[str, Step]] = {}
    for each in near:
        for step in steps(name, each.offer, wish, each.known):
            if not _fails(each, step.wish):
                found.setdefault(step.ppm, {})[repr(step.value)] = step
    if not found:
        return None
    changes = [Change((step,), _count(near, step.wish)) for step in found[min(found)].values()]
    return max(changes, key=lambda change: (change.matches, repr(change.steps[0].value)))


def _smallest_set(failing: list[_Failing], wish: Wish) -> tuple[Change, ...]:
    best: tuple[int, int] | None = None
    chosen: tuple[Step, ...] = ()
    for each in sorted(failing, key=_least):
        if best is not None and _least(each) > best[0]:
            break
        for found in _ways(each, wish):
            size = len(found), sum(step.ppm for step in found)
            if best is None or size < best:
                best, chosen = size, found
    if best is None:
        return ()
    return (Change(chosen, _count(failing, chosen[-1].wish)),)


def _least(each: _Failing) -> int:
    """No fewer steps than these let the offer fit."""
    alone = [name for name in each.names if name not in _SHARED]
    return len(alone) + (len(alone) < len(each.names))


def _ways(each: _Failing, wish: Wish) -> Iterator[tuple[Step, ...]]:
    """The sets of steps by which this offer would fit, each constraint at most once."""
    for first in (way for order in _ORDERS for way in _optional(each, wish, order, ())):
        way, now = first, first[-1].wish if first else wish
        for name in _names(each, now):
            step = None if name in ALSO else next(steps(name, each.offer, now, each.known), None)
            if step is None:
                break
            way, now = (*way, step), step.wish
        else:
            if not _names(each, now):
                yield way


def _optional(
    each: _Failing, wish: Wish, names: tuple[str, ...], way: tuple[Step, ...]
) -> Iterator[tuple[Step, ...]]:
    """Every choice of steps of these constraints where they matter; none of them is one too."""
    if not names:
        yield way
        return
    yield from _optional(each, wish, names[1:], way)
    failing = _names(each, wish)
    if any(name in failing for name in ALSO[names[0]]):
        for step in steps(names[0], each.offer, wish, each.known):
            yield from _optional(each, step.wish, names[1:], (*way, step))


def _names(each: _Failing, wish: Wish) -> list[str]:
    """What the offer fails for."""
    return [f.name for f in filters_of(wish) if f.fails(each.offer, wish, each.known)]


def _fails(each: _Failing, wish: Wish) -> bool:
    return any(f.fails(each.offer, wish, each.known) for f in filters_of(wish))


def _count(failing: list[_Failing], wish: Wish) -> int:
    asked = filters_of(wish)
    return sum(not any(f.fails(each.offer, wish, each.known) for f in asked) for each in failing)
