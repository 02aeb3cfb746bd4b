"""Over how many owners a renter spreads its questions. Pure.

Renters with one view of the market must not all run to the same owner.

With requests at a rate of lambda and news that is delta old, about lambda * delta requests meet an
offer that is taken already; among k offers a draw meets one with 1 - exp(-lambda * delta / k).
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from hashlib import sha256
from statistics import median_low
from typing import Final

from p2pnode.matching.book import Offer
from p2pnode.matching.columns import Ranked
from protocol.gpu_class import GpuClass
from protocol.units import Millis, MillisSpan

LEAST: Final = 4
MOST: Final = 64
PER_STALE_REQUEST: Final = 16
"""Owners for each request that may have come before the news of it."""
PER_ACCOUNT_MAX: Final = 2
"""So that one account with many peers cannot fill a shortlist."""
BAND_PPM: Final = 20_000
BAND_PPM_MAX: Final = 200_000
"""How much dearer than the best an owner may be and still be asked: more where news is old."""
WINDOW_MS: Final = MillisSpan(60_000)
REQUESTS_KEPT_MAX: Final = 1_024
ARRIVALS_KEPT_MAX: Final = 256
PARTS: Final = 4
COALESCED_MS: Final = MillisSpan(1_000)
"""An owner's changes within a second travel together, so that news is at least as old."""

NEWCOMER_BELOW_PPM: Final = 970_000
"""An owner of whom nothing bad is known is a newcomer up to this: from there on, about seventy
minutes of service, it is within the band of the best at their price."""
NEWCOMERS_MAX: Final = 64
"""Of whom the seed draws one."""
NEWCOMER: Final = b"newcomer"
NEWCOMER_IN: Final = 8
"""In one auction of so many, a newcomer is judged as the best of the others are."""
TRIED_KEPT: Final = 3
"""Newcomers that won so, whose failures tell whether to go on like that."""


class Tempo:
    """How fast requests come in each class, and how old news is, as this node sees both.

    It sees its own requests, and those that other renters put to it as an owner; each is one of
    many that went out, so that the rate is rather too low. News is as old as an advert was when it
    came.
    """

    def __init__(self) -> None:
        self._requests: dict[GpuClass, deque[Millis]] = {}
        self._ages: deque[MillisSpan] = deque(maxlen=ARRIVALS_KEPT_MAX)

    def note_request(self, of_class: GpuClass, now: Millis) -> None:
        """Somebody looks for such a GPU."""
        kept = self._requests.setdefault(of_class, deque(maxlen=REQUESTS_KEPT_MAX))
        kept.append(now)

    def note_advert(self, offer: Offer) -> None:
        """An advert has come."""
        self._ages.append(MillisSpan(max(0, offer.taken_ms - offer.advert.issued_ms)))

    def age_ms(self) -> MillisSpan:
        """How old a change is before it is heard, in the middle."""
        return MillisSpan(COALESCED_MS + (median_low(self._ages) if self._ages else 0))

    def stale_ppm(self, of_class: GpuClass, now: Millis) -> int:
        """Requests of the class for each age of the news, lambda * delta, in millionths."""
        kept = self._requests.get(of_class, ())
        recent = len(kept) - bisect_left(kept, now - WINDOW_MS)
        return recent * self.age_ms() * 1_000_000 // WINDOW_MS


def count_for(stale_ppm: int) -> int:
    """How many offers are as good as each other, at so many requests for each age of the news."""
    return min(max(PER_STALE_REQUEST * stale_ppm // 1_000_000, LEAST), MOST)


def band_for(stale_ppm: int) -> int:
    """How far from the best they may be, in millionths."""
    wider = (BAND_PPM_MAX - BAND_PPM) * stale_ppm // 1_000_000
    return min(BAND_PPM + wider, BAND_PPM_MAX)


def tries_newcomer(seed: bytes, failed: int = 0) -> bool:
    """Whether the auction of this seed is one in which a newcomer is tried.

    Of those that were tried last so many have failed; each halves the chance.
    """
    return sha256(seed + NEWCOMER).digest()[0] < 256 // NEWCOMER_IN >> failed


def asked_of(shortlist: Sequence[Ranked], *, seed: bytes) -> list[Offer]:
    """A random part of a shortlist, drawn by the seed: a quarter, and LEAST at least."""
    drawn = sorted(shortlist, key=lambda ranked: sha256(seed + ranked.key).digest())
    return [ranked.offer for ranked in drawn[: max(LEAST, len(drawn) // PARTS)]]
