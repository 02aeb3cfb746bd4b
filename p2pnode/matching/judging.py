"""What a renter thinks of an offer beside its price, as the scoring rule wants it. Pure."""

from collections.abc import Iterable
from typing import Final

from msgspec import UNSET

from ledger.fold import Lease
from p2pnode.matching.book import Offer
from protocol.advert import Advert, Tier, price_for
from protocol.lease import MS_PER_HOUR
from protocol.scoring import PPM, Deal, Judged
from protocol.units import Micros, Millis, MillisSpan

DOWN_KBIT_S_ASSUMED: Final = 50_000
"""Of an owner that does not say how fast it loads: a usual line at home."""
HAZARD_HOURS: Final = 20
"""Of a bronze lease one interruption is expected in so many, until a renter knows better. It counts
only where the order says what an interruption costs."""
HAZARD_PPM_PER_HOUR: Final = PPM // HAZARD_HOURS


def hazard_of(leases: Iterable[Lease], now: Millis) -> int:
    """Interruptions in an hour, in millionths, by the leases that we had of one owner.

    As if it had interrupted one before, after HAZARD_HOURS: one lease says little.
    """
    reclaimed, had_ms = 1, HAZARD_HOURS * MS_PER_HOUR
    for lease in leases:
        if lease.request.tier == "bronze" and lease.is_accepted:
            reclaimed += lease.reason == "preempted"
            had_ms += max(0, min(now, lease.ended_ms) - lease.request.start_ms)
    return -(-reclaimed * PPM * MS_PER_HOUR // had_ms)


def judged(
    offer: Offer,
    *,
    reliability_ppm: int,
    bytes_to_move: int,
    rtt_ms: int = 0,
    hazard_ppm_per_hour: int = HAZARD_PPM_PER_HOUR,
    unmet_ppm: int = 0,
) -> Judged:
    """The renter's side of the score of this offer."""
    return Judged(
        reliability_ppm=reliability_ppm,
        stage_ms=_stage_ms(bytes_to_move, offer.advert),
        rtt_ms=rtt_ms,
        hazard_ppm_per_hour=hazard_ppm_per_hour,
        unmet_ppm=unmet_ppm,
    )


def down_kbit_s(advert: Advert) -> int:
    """How fast the owner says that it loads, at least one."""
    host = advert.host
    if host is UNSET or host.down_kbit_s is UNSET:
        return DOWN_KBIT_S_ASSUMED
    return max(1, host.down_kbit_s)


def _stage_ms(bytes_to_move: int, advert: Advert) -> MillisSpan:
    """How long so many bytes take; a kilobit in a second is a bit in a millisecond."""
    if not bytes_to_move:
        return MillisSpan(0)
    return MillisSpan(-(-8 * bytes_to_move // down_kbit_s(advert)))


def advertised(advert: Advert, *, tier: Tier, gpus: int, span_ms: MillisSpan) -> Deal:
    """What the advert promises for such a job; a tier that is quoted on request has price 0."""
    return Deal(
        micro_per_gpu_hour=Micros(price_for(advert, tier, gpus) or 0),
        gpus=gpus,
        span_ms=span_ms,
        wait_ms=MillisSpan(0),
        tier=tier,
    )
