"""What must reach an owner before a job can start there, and how long that takes. Pure."""

from dataclasses import dataclass
from typing import Final

from msgspec import UNSET

from p2pnode.matching.book import Offer
from protocol.digest_filter import may_hold
from protocol.units import MillisSpan

DOWN_KBIT_S: Final = 100_000
"""Of an owner that does not state its bandwidth: a common home connection."""


@dataclass(frozen=True, slots=True)
class Cargo:
    """Something that the job needs, by its content."""

    digest: bytes
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Luggage:
    """All that the job needs; nothing is asked of owners for it, they state what they have."""

    image: Cargo | None = None
    data: tuple[Cargo, ...] = ()


def bytes_to_move(offer: Offer, luggage: Luggage) -> int:
    """What of it the owner does not have already, by its own word."""
    advert = offer.advert
    missing = [cargo for cargo in luggage.data if not _has(advert.data, cargo)]
    if luggage.image is not None and not _has(advert.images, luggage.image):
        missing.append(luggage.image)
    return sum(cargo.bytes for cargo in missing)


def stage_ms(offer: Offer, luggage: Luggage) -> MillisSpan:
    """How long the rest takes to arrive, rounded up."""
    host = offer.advert.host
    stated = UNSET if host is UNSET else host.down_kbit_s
    kbit_s = DOWN_KBIT_S if stated is UNSET or stated == 0 else stated
    return MillisSpan(-(-8 * bytes_to_move(offer, luggage) // kbit_s))


def _has(stated: object, cargo: Cargo) -> bool:
    return isinstance(stated, bytes) and may_hold(stated, cargo.digest)
