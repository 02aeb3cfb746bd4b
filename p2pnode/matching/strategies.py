"""How an owner's price comes about: strategies, floors, steps. Pure, and integers only."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from protocol.advert import Tier
from protocol.units import Micros, MillisSpan

PPM: Final = 1_000_000
SHARES_PPM: Final[Mapping[Tier, int]] = {"gold": 1_250_000, "silver": PPM, "bronze": 500_000}
"""What a tier asks of the silver price, where its owner names no price of its own.

Gold answers for a loss of the host, bronze may be interrupted at any time.
"""
RIVALS_MIN: Final = 3
"""A percentile of fewer asks is one neighbour's whim."""
BUSY_PPM: Final = 750_000
IDLE_PPM: Final = 250_000
"""Use above the one moves a price up, below the other down."""
DRIFTS_PPM: Final = (-500_000, PPM)
"""So far may use move a price from what its strategy says."""
STEP_MS: Final = MillisSpan(600_000)
STRATEGY_PATTERN: Final = r"fixed|cost-plus|market-p[1-9][0-9]?"

Asks = Mapping[bytes, Mapping[Tier, Micros]]
"""Unit group -> tier -> price per GPU-hour."""


def share_of(silver: Micros, tier: Tier) -> Micros:
    """The price of a tier by its share of the silver one, rounded up."""
    return Micros(-(-silver * SHARES_PPM[tier] // PPM))


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """What a GPU costs its owner while it works."""

    micro_per_kwh: Micros
    watts: int
    """Of one GPU with its part of the host."""
    margin_ppm: int = 0

    def cost(self, used_ms: int) -> Micros:
        """Of so many GPU-milliseconds, rounded up."""
        return Micros(-(-used_ms * self.watts * self.micro_per_kwh // 3_600_000_000))

    @property
    def with_margin(self) -> Micros:
        """Of one GPU-hour, and the margin."""
        return Micros(-(-self.cost(3_600_000) * (PPM + self.margin_ppm) // PPM))


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRule:
    """What an owner has decided about its prices."""

    asks: Mapping[Tier, Micros] = field(default_factory=dict)
    """Those that it has named."""
    floors: Mapping[Tier, Micros] = field(default_factory=dict)
    strategy: str = "fixed"
    """Of STRATEGY_PATTERN."""
    step_ppm: int = 50_000
    """A price that moves by itself moves at most so much at once."""
    step_ms: MillisSpan = STEP_MS
    """And at most so often."""
    by_use: bool = False
    """Whether use moves it."""
    energy: Energy | None = None

    @property
    def percent(self) -> int | None:
        """Of the market; None if the strategy looks at none."""
        found = re.fullmatch(r"market-p([0-9]+)", self.strategy)
        return int(found[1]) if found else None

    @property
    def is_moving(self) -> bool:
        """Whether prices change without their owner."""
        return self.by_use or self.percent is not None


def ask_of(rule: PriceRule, tier: Tier) -> Micros | None:
    """What the owner wants for the tier if nothing else says so; None if it names no price."""
    if (own := rule.asks.get(tier)) is not None:
        return own
    silver = rule.asks.get("silver")
    if silver is None and rule.strategy == "cost-plus" and rule.energy is not None:
        silver = rule.energy.with_margin
    if silver is None and rule.strategy != "fixed":
        silver = rule.floors.get("silver")
    return None if silver is None else share_of(silver, tier)


def floor_of(rule: PriceRule, tier: Tier) -> Micros:
    """The least price of the tier at any time when no window has another.

    A market price whose owner names no floor never falls below what it asked for; a price by cost
    never below the cost.
    """
    silver = rule.floors.get("silver")
    own = rule.floors.get(tier)
    if own is None and silver is not None:
        own = share_of(silver, tier)
    if own is None and rule.percent is not None:
        own = ask_of(rule, tier)
    least = own or Micros(0)
    if rule.strategy == "cost-plus" and rule.energy is not None:
        return max(least, rule.energy.cost(3_600_000))
    return least


def percentile(asks: Sequence[Micros], percent: int) -> Micros:
    """The least ask that at least so many of a hundred do not exceed; of at least one ask."""
    return sorted(asks)[max(0, -(-len(asks) * percent // 100) - 1)]


def target(rule: PriceRule, tier: Tier, rivals: Sequence[Micros] = ()) -> Micros | None:
    """What the strategy says, before floors and steps; None if it says nothing.

    `rivals` are others' asks for the same tier, class and money.
    """
    if rule.percent is not None and len(rivals) >= RIVALS_MIN:
        return percentile(rivals, rule.percent)
    if rule.strategy == "cost-plus" and rule.energy is not None:
        return share_of(rule.energy.with_margin, tier)
    return ask_of(rule, tier)


def drifted(drift_ppm: int, use_ppm: int, step_ppm: int) -> int:
    """How far use has moved prices after another step, in millionths of what a strategy says."""
    if use_ppm >= BUSY_PPM:
        return min(drift_ppm + step_ppm, DRIFTS_PPM[1])
    if use_ppm <= IDLE_PPM:
        return max(drift_ppm - step_ppm, DRIFTS_PPM[0])
    return drift_ppm


def stepped(last: Micros, wanted: Micros, step_ppm: int) -> Micros:
    """The price on its way from the last one, a step nearer to the wanted one.

    A step is at least a millionth, so that no price stands still for ever.
    """
    step = max(1, last * step_ppm // PPM)
    return max(Micros(last - step), min(Micros(last + step), wanted))
