"""What others ask for what a renter wants of us: as far as our book tells, and now."""

from collections.abc import Callable, Iterable
from typing import Final

from p2pnode.matching.book import Offer
from p2pnode.matching.journal import Rivals
from p2pnode.matching.search import search, wish_of
from protocol.advert import ask_for
from protocol.auction import Rfq
from protocol.units import Micros, Millis

MINUTE_MS: Final = 60_000
LOOK_MS: Final = 50
"""The book is read through at most so often, whoever asks us how much."""
OFFERS_PER_MS: Final = 10
"""A large one still less often: so that reading takes a twentieth of the time at most."""


def rivals_in(offers: Callable[[], Iterable[Offer]]) -> Rivals:
    """Looks for rivals among these offers, which are none of ours."""
    again_ms = 0

    def rivals(rfq: Rfq, now: Millis) -> tuple[Micros, ...] | None:
        nonlocal again_ms
        if again_ms - MINUTE_MS < now < again_ms:
            return None
        others = list(offers())
        again_ms = now + max(LOOK_MS, len(others) // OFFERS_PER_MS)
        fits = search(others, wish_of(rfq.need, rfq.tier, rfq.money)).fits
        asks = [ask_for(offer.advert, rfq.tier) for offer in fits]
        return tuple(sorted(Micros(ask) for ask in asks if ask is not None))

    return rivals
