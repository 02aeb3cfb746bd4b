"""What a renter wants of the market. Plain data."""

from dataclasses import dataclass, replace
from typing import Annotated, Final

from msgspec import UNSET, Meta, UnsetType

from p2pnode.matching.headroom import VramPlan
from p2pnode.matching.judging import HAZARD_PPM_PER_HOUR
from p2pnode.matching.preferences import Preference, preference_of
from p2pnode.matching.search import Wish, wish_of
from protocol.advert import Tier
from protocol.auction import Need
from protocol.codec import CurrencyCode, Instant, Money, UInt, Wire
from protocol.lease import MS_PER_HOUR
from protocol.scoring import UNWEIGHED, Weights
from protocol.units import Digest, Micros, Millis, MillisSpan, PublicKey

START_MS: Final = 1_500
"""From the question to the start of the lease: time to gather bids, to choose, to be granted."""


class Choice(Wire, frozen=True, kw_only=True):
    """What the renter chooses by beside its need and its limits; no owner is told of it."""

    or_tiers: Annotated[tuple[Tier, ...], Meta(max_length=2)] = ()
    """Tiers that will do as well."""
    end_by_ms: Instant | UnsetType = UNSET
    """The lease must be over by then."""
    reliability_ppm_min: UInt | UnsetType = UNSET
    rtt_ms_max: UInt | UnsetType = UNSET
    prefer: Annotated[tuple[str, ...], Meta(max_length=16)] = ()
    """See `preferences`."""
    rates: Annotated[tuple[tuple[CurrencyCode, Money], ...], Meta(max_length=32)] = ()
    """Other money that is taken, each with what one unit is worth in micro-units of ours."""
    plan: VramPlan | UnsetType = UNSET
    """From which the need's memory came."""
    delay_micro_per_hour: Money = Micros(0)
    """What an hour costs in which the job does not run yet."""
    latency_micro_per_ms: Money = Micros(0)
    """What each millisecond of round-trip time costs, over the whole job."""

    def preferences(self) -> tuple[Preference, ...]:
        """What ranks and never filters. They were read before they were kept."""
        return tuple(preference_of(text) for text in self.prefer)

    def weights(self, redo_ms: MillisSpan) -> Weights:
        """What things beside the price are worth; `redo_ms`: of work each interruption costs."""
        return Weights(
            delay_micro_per_hour=self.delay_micro_per_hour,
            latency_micro_per_ms=self.latency_micro_per_ms,
            redo_ms=redo_ms,
        )

    @property
    def likes_near(self) -> bool:
        """Whether it matters how far an owner is, without a limit."""
        return self.latency_micro_per_ms > 0 or any(
            each.filter.name == "rtt" for each in self.preferences()
        )


ANY: Final = Choice()


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """A lease that the next one is to follow, and whose owner is asked alone."""

    lease: Digest
    owner: PublicKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a renter wants, and what it pays at most."""

    need: Need
    tier: Tier
    span_ms: MillisSpan
    notice_ms: MillisSpan
    money: str
    ask_max: Micros | None
    """Per GPU-hour."""
    total_max: Micros | None
    """For the whole span."""
    job: Digest | None
    """Digest of the encoded job; each owner gets it sealed to its own key."""
    choice: Choice = ANY
    avoid: tuple[PublicKey, ...] = ()
    """Owners that have failed this order before."""
    witnesses: tuple[PublicKey, ...] = ()
    """Whose cosignatures the renter wants before it accepts a grant."""
    quorum: int = 0
    """Of how many of them; 0 without any."""
    image: bytes | None = None
    """SHA-256 of the image that the job names."""
    start_ms: Millis | None = None
    """When it is to start; None: as soon as it can."""
    bytes_to_move: int = 0
    """What the owner must load before the job can run."""
    weights: Weights = UNWEIGHED
    """What delay, latency and interruptions are worth to the renter."""
    renews: Renewal | None = None
    late_ms: MillisSpan | None = None
    """By how much later it may start, if bronze must give its units back for it; None: not so."""

    def wish(self, now: Millis | None = None) -> Wish:
        """The order as a filter of adverts; with `now`, for a lease from then on."""
        choice = self.choice
        start = None if now is None else Millis(max(now + START_MS, self.start_ms or 0))
        return replace(
            wish_of(self.need, self.tier, self.money),
            or_tiers=choice.or_tiers,
            rates=choice.rates,
            ask_max=self.ask_max,
            total_max=self.total_max,
            during=None if start is None else (start, Millis(start + self.span_ms)),
            end_by_ms=None if choice.end_by_ms is UNSET else choice.end_by_ms,
            reliability_ppm_min=(
                None if choice.reliability_ppm_min is UNSET else choice.reliability_ppm_min
            ),
            rtt_ms_max=None if choice.rtt_ms_max is UNSET else choice.rtt_ms_max,
            plan=None if choice.plan is UNSET else choice.plan,
            image=self.image,
            bronze_ppm=-(-HAZARD_PPM_PER_HOUR * self.weights.redo_ms // MS_PER_HOUR),
            may_be_busy=self.late_ms is not None or self.start_ms is not None,
        )
