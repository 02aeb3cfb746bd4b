"""What each constraint of a wish holds back of many offers, one after the other. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from p2pnode.matching.book import Offer
from p2pnode.matching.search import KnownOf, Wish, filters_of, nothing_known


@dataclass(frozen=True, slots=True)
class Sieved:
    """What one filter held back."""

    name: str
    failed: dict[str, int]
    """Reason -> offers, of those that passed all filters before."""
    left: int


def funnel(
    offers: Iterable[Offer], wish: Wish, known_of: KnownOf = nothing_known
) -> tuple[Sieved, ...]:
    """Each filter that the wish asks for, with what it holds back and what it lets through."""
    left = [(offer, known_of(offer)) for offer in offers]
    found = []
    for each in filters_of(wish):
        why = [each.fails(offer, wish, known) for offer, known in left]
        left = [one for one, reason in zip(left, why, strict=True) if reason is None]
        counts: dict[str, int] = {}
        for reason in why:
            if reason is not None:
                counts[reason] = counts.get(reason, 0) + 1
        found.append(Sieved(each.name, counts, len(left)))
    return tuple(found)
