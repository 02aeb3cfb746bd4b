"""What a renter wants of the market. Plain data."""

from dataclasses import dataclass

from msgspec import UNSET

from p2pnode.matching.search import Wish
from protocol.advert import Tier
from protocol.auction import Need
from protocol.units import Digest, Mebibytes, Micros, Millis, MillisSpan, PublicKey


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
    avoid: tuple[PublicKey, ...] = ()
    """Owners that have failed this order before."""
    witnesses: tuple[PublicKey, ...] = ()
    """Whose cosignatures the renter wants before it accepts a grant."""
    quorum: int = 0
    """Of how many of them; 0 without any."""
    start_ms: Millis | None = None
    """When it is to start; None: as soon as it can."""
    late_ms: MillisSpan | None = None
    """By how much later it may start, if bronze must give its units back for it; None: not so."""

    def wish(self) -> Wish:
        """The order as a filter of adverts."""
        need = self.need
        return Wish(
            gpus=need.gpus,
            vram_min=Mebibytes(need.vram_mib_min),
            models=() if need.models is UNSET else need.models,
            regions=() if need.regions is UNSET else need.regions,
            tier=self.tier,
            ask_max=self.ask_max,
            money=self.money,
            may_be_busy=self.late_ms is not None or self.start_ms is not None,
        )
