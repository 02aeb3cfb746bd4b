"""What others ask for what a renter wants of us: as far as our book tells, and now."""

from collections.abc import Callable, Iterable
from typing import Final

from p2pnode.matching.book import Offer
from p2pnode.matching.journal import Rivals
from p2pnode.matching.search import search, wish_of
from protocol.advert import ask_for
from protocol.auction import Rfq
from protocol.units import Micros, Millis

LOOK_MS: Final = 50
"""The book is read through at most so often, whoever asks us how much."""


def rivals_in(offers: Callable[[], Iterable[Offer]]) -> Rivals:
    """Looks for rivals among these offers, which are none of ours."""
    looked = Millis(0)

    def rivals(rfq: Rfq, now: Millis) -> tuple[int, Micros | None] | None:
        nonlocal looked
        if 0 <= now - looked < LOOK_MS:
            return None
        looked = now
        fits = search(offers(), wish_of(rfq.need, rfq.tier, rfq.money)).fits
        asks = [ask for offer in fits if (ask := ask_for(offer.advert, rfq.tier)) is not None]
        return len(fits), Micros(min(asks)) if asks else None

    return rivals
