"""The rules bundle that this program judges by, named by the digest of its content.

SPEC.md 4.3. A pair of kind and version never changes its meaning, so peers with equal digests
judge every message of these kinds alike. The bundle says as well what an offence costs and how
standing is reckoned; ledger/SPEC.md section 14 says what is done with these numbers.
"""

from hashlib import sha256
from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, UnsetType

from protocol.codec import Money, UInt, Wire, encode
from protocol.units import Digest, Micros, MillisSpan

KEPT_PPM_MAX: Final = 1_000_000

Count = Annotated[int, Meta(ge=1, le=65_536)]
Ratio = tuple[Count, Count]
"""Numerator and denominator."""
RowName = Annotated[str, Meta(min_length=1, max_length=23, pattern=r"\A[A-Za-z0-9.-]+\Z")]


class Penalty(Wire, frozen=True, kw_only=True):
    """What a proved offence leaves of its author's weight, and for how long."""

    kept_ppm: Annotated[int, Meta(ge=0, le=KEPT_PPM_MAX)]
    epochs: Count | UnsetType = UNSET
    """From the offence's own epoch on; for good if absent."""

    @property
    def ends_standing(self) -> bool:
        """Whether nothing is left, for good."""
        return self.kept_ppm == 0 and self.epochs is UNSET


class Bundle(Wire, frozen=True, kw_only=True):
    """All that replicas must agree on to reckon alike. Sums are millionths of any one money."""

    v: Literal[1] = 1
    kinds: Annotated[dict[RowName, Count], Meta(max_length=64)]
    """Messages, and the version of the rules by which each is judged."""
    epoch_ms: Annotated[MillisSpan, Meta(ge=1_000, le=10**12)]
    half_life_epochs: Count
    """After so many epochs what was settled weighs half."""
    settled_micro_max: Money
    """Most that two peers' trades of one epoch weigh."""
    overdue_epochs: UInt
    """How long a peer's half may stand unanswered before it vouches for the other no more."""
    credit_micro_max: Money
    phi: Ratio
    """How much of the flow is given as credit."""
    period_ms: Annotated[MillisSpan, Meta(ge=1, le=10**12)]
    """GPU time that counts as one period of service."""
    period_micro: Annotated[Micros, Meta(ge=1, le=10**12)]
    """Flow that a reporter needs for each period that it is believed."""
    voice_micro_max: Money
    """Most flow that one reporter is believed for."""
    prior: Ratio
    """Good and bad periods that everybody starts with."""
    bound: Ratio
    """Square of how many deviations below its mean the reliability of a peer is put."""
    penalties: Annotated[dict[RowName, Penalty], Meta(max_length=64)]
    """Offence (ledger/SPEC.md 14.2) -> what it costs; others cost nothing."""


def digest_of_bundle(bundle: Bundle) -> Digest:
    """Plain SHA-256 of its encoding; its first eight bytes stand in the header of an entry."""
    return Digest(sha256(encode(bundle)).digest())


_ENDS: Final = Penalty(kept_ppm=0)
_BROKEN_FEED: Final = Penalty(kept_ppm=250_000, epochs=180)
_UNFAIR: Final = Penalty(kept_ppm=250_000, epochs=90)
_UNRELIABLE: Final = Penalty(kept_ppm=500_000, epochs=30)

BUNDLE: Final = Bundle(
    kinds={"advert": 1, "certificate": 1},
    epoch_ms=MillisSpan(86_400_000),
    half_life_epochs=30,
    settled_micro_max=Micros(20_000_000),
    overdue_epochs=3,
    credit_micro_max=Micros(50_000_000),
    phi=(1, 2),
    period_ms=MillisSpan(60_000),
    period_micro=Micros(10_000),
    voice_micro_max=Micros(1_000_000),
    prior=(3, 1),
    bound=(5, 3),
    penalties={
        "A1": _BROKEN_FEED,
        "A2": _BROKEN_FEED,
        "A3": _BROKEN_FEED,
        "A4": _ENDS,
        "A5": _ENDS,
        "A6": _ENDS,
        "A7": _UNFAIR,
        "A8": _UNRELIABLE,
        "A9": _UNRELIABLE,
        "A10": _UNFAIR,
        "A11": _ENDS,
        "A12": _ENDS,
        "A13": _ENDS,
        "A14": _UNFAIR,
        "A15": _BROKEN_FEED,
        "A16": _UNFAIR,
        "apart": _BROKEN_FEED,
    },
)

RULES: Final = encode(BUNDLE)

RULES_DIGEST: Final = digest_of_bundle(BUNDLE)
