"""Among which offers the nodes of one job are placed. Pure. The rule is `protocol.pool`'s."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from p2pnode.matching.asking import total_of
from p2pnode.matching.book import Offer
from p2pnode.matching.judging import judged
from p2pnode.matching.order import Order
from p2pnode.matching.preferences import unmet_ppm
from p2pnode.matching.search import KnownOf, converted, misfit_of, tier_of
from p2pnode.quantities import format_money
from protocol.advert import price_for
from protocol.limits import POOL_NODES_MAX, POOL_OFFERS_MAX
from protocol.pool import PoolOffer, SeenOffer, advert_score, plan
from protocol.units import Micros, Millis, PublicKey

RELIABILITY_ASSUMED_PPM: Final = 1_000_000
"""Of an owner of whom nothing is known, where nothing is asked of it."""

RTT_ASSUMED_MS: Final = 300
"""To an owner of whom nothing says how far it is: none is near by being unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """An offer with room, as the rule sees it and as the record keeps it."""

    offer: Offer
    seen: SeenOffer
    by_rule: PoolOffer


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """All that the book has for a pool."""

    places: tuple[Place, ...]
    """Offers, cheapest first."""
    free_gpus: int
    """Of the offers that fit in all else, also where too few are together."""

    def without(self, owners: set[PublicKey]) -> "Room":
        """What is left but for these owners' places."""
        left = tuple(place for place in self.places if place.offer.signer not in owners)
        return replace(self, places=left)

    def why_not(self, nodes: int, gpus: int) -> str | None:
        """Why there is no pool of `nodes` nodes with `gpus` GPUs each; None if there is one."""
        there = sum(place.seen.places for place in self.places)
        if there >= nodes:
            return None
        why = f"{there} of {nodes} nodes fit at once"
        if self.free_gpus >= nodes * gpus:
            why += f"; {self.free_gpus} GPUs are free, but in pieces of fewer than {gpus}"
        return why


def room_in(
    offers: list[Offer],
    order: Order,
    *,
    now: Millis,
    known_of: KnownOf,
    rtt_of: Callable[[Offer], int | None],
) -> Room:
    """Room in offers that fit but perhaps for their number of free GPUs.

    `rtt_of`: the round trip to the owner in ms, measured or estimated; None where neither is.
    """
    wish = order.wish(now)
    misfit, misfit_alone = misfit_of(wish), misfit_of(replace(wish, gpus=1))
    preferences, places, free = order.choice.preferences(), list[Place](), 0
    for offer in offers:
        known, tier = known_of(offer), tier_of(offer, wish)
        if tier is None or price_for(offer.advert, tier, order.need.gpus) is None:
            continue
        room = min(offer.advert.free // order.need.gpus, POOL_NODES_MAX)
        if (misfit if room else misfit_alone)(offer, known) is not None:
            continue
        free += offer.advert.free
        if room == 0:
            continue
        sure_ppm = known.reliability_ppm
        thought = judged(
            offer,
            reliability_ppm=RELIABILITY_ASSUMED_PPM if sure_ppm is None else sure_ppm,
            bytes_to_move=order.bytes_to_move,
            rtt_ms=RTT_ASSUMED_MS if (rtt_ms := rtt_of(offer)) is None else rtt_ms,
            hazard_ppm_per_hour=known.hazard_ppm_per_hour,
            unmet_ppm=unmet_ppm(offer, preferences, known),
        )
        seen = SeenOffer(advert=offer.raw, tier=tier, places=room, judged=thought)
        score = advert_score(
            offer.advert,
            thought,
            tier=tier,
            gpus=order.need.gpus,
            span_ms=order.span_ms,
            weights=order.weights,
        )
        by_rule = PoolOffer(
            key=offer.head[0],
            owner=offer.signer,
            account=offer.certificate.root,
            places=room,
            score=score,
        )
        places.append(Place(offer=offer, seen=seen, by_rule=by_rule))
    places.sort(key=lambda place: (place.by_rule.score, place.by_rule.key))
    return Room(places=tuple(places), free_gpus=free)


def shortlist(room: Room, nodes: int, is_sealable: Callable[[Offer], bool]) -> list[Place]:
    """Few of the places, of which the rule chooses the same as of all.

    The cheapest, and those that it chooses first; none to whose owner no job can be sealed.
    """
    left = list(room.places)
    while True:
        first = {offer.key for offer in plan((place.by_rule for place in left), nodes)}
        chosen = [place for place in left if place.by_rule.key in first]
        others = [place for place in left if place.by_rule.key not in first]
        found = chosen + others[: POOL_OFFERS_MAX - len(chosen)]
        odd = [place for place in found if not is_sealable(place.offer)]
        if not odd:
            return found
        left = [place for place in left if place not in odd]


def asks_of(places: list[Place], order: Order) -> list[int]:
    """Per GPU-hour, in the renter's money, as they are advertised in the tiers that are asked."""
    found = []
    for place in places:
        asked = price_for(place.offer.advert, place.seen.tier, order.need.gpus) or 0
        found.append(converted(Micros(asked), place.offer.advert.money, order.wish()) or 0)
    return found


def too_dear(asks: list[int], order: Order) -> str | None:
    """Why nodes at these prices per GPU-hour are together above what the renter pays, or None."""
    cost = sum(total_of(Micros(ask), order) for ask in asks)
    if order.total_max is None or cost <= order.total_max:
        return None
    return f"{len(asks)} nodes cost up to {format_money(Micros(cost), order.money)}, over the limit"
