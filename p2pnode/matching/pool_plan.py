"""Where the nodes of one job would be. Pure. All of them, or none."""

from dataclasses import dataclass
from typing import Final

from p2pnode.matching.book import Offer
from p2pnode.matching.order import Order
from p2pnode.matching.search import ask_of
from protocol.units import PublicKey

ONE_ACCOUNT_PPM: Final = 100_000
"""One account may ask a tenth more than several would: it answers for the whole."""


@dataclass(frozen=True, slots=True)
class Place:
    """Room for one node of the job."""

    ask_micro: int
    """Per GPU-hour, in the renter's money."""
    offer: Offer


@dataclass(frozen=True, slots=True)
class Room:
    """All that the book has for a pool."""

    places: tuple[Place, ...]
    """Cheapest first."""
    free_gpus: int
    """Of the offers that fit in all else, also where too few are together."""

    def why_not(self, nodes: int, gpus: int) -> str | None:
        """Why there is no pool of `nodes` nodes with `gpus` GPUs each; None if there is one."""
        if len(self.places) >= nodes:
            return None
        why = f"{len(self.places)} of {nodes} nodes fit at once"
        if self.free_gpus >= nodes * gpus:
            why += f"; {self.free_gpus} GPUs are free, but in pieces of fewer than {gpus}"
        return why


def room_in(offers: list[Offer], order: Order) -> Room:
    """Room in offers that fit but perhaps for their number of free GPUs."""
    gpus, wish = order.need.gpus, order.wish()
    places = [
        Place(ask_of(offer, wish) or 0, offer)
        for offer in offers
        for _ in range(offer.advert.free // gpus)
    ]
    places.sort(key=lambda place: (place.ask_micro, place.offer.head))
    return Room(tuple(places), sum(offer.advert.free for offer in offers))


def chosen_places(places: tuple[Place, ...], nodes: int) -> list[Place]:
    """The places to ask first: of one account if that is not much dearer, else the cheapest.

    Empty if there are too few. Those that hold are asked in ascending order of their feeds, so
    that of two pools that want the same places one gets all of them.
    """
    if len(places) < nodes:
        return []
    cheapest = list(places[:nodes])
    by_account: dict[PublicKey, list[Place]] = {}
    for place in places:
        by_account.setdefault(place.offer.certificate.root, []).append(place)
    whole = [found[:nodes] for found in by_account.values() if len(found) >= nodes]
    best = min(whole, key=_cost, default=None)
    if best is not None and 1_000_000 * _cost(best) <= (1_000_000 + ONE_ACCOUNT_PPM) * _cost(
        cheapest
    ):
        cheapest = best
    return sorted(cheapest, key=lambda place: place.offer.signer)


def _cost(places: list[Place]) -> int:
    return sum(place.ask_micro for place in places)
