"""The prices of a node as they move. Owns how far they have moved; the market is an argument."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from p2pnode.matching.strategies import (
    PPM,
    RIVALS_MIN,
    Asks,
    PriceRule,
    drifted,
    floor_of,
    share_of,
    stepped,
    target,
)
from p2pnode.matching.timetable import Timetable
from protocol.advert import TIERS, Tier
from protocol.units import Micros, Millis

RivalsOf = Callable[[bytes, Tier], list[Micros]]
"""rivals(unit group, tier): others' open asks for a GPU of the same class, in our money."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The price of one tier of one unit group, and where it comes from."""

    group: bytes
    tier: Tier
    price: Micros
    """Where it has come to; a floor of this hour may hold the ask above it."""
    ask: Micros
    floor: Micros
    rivals: int
    """Whose asks were looked at."""
    why: str


class Pricer:
    """Owns the lines."""

    def __init__(self, rule: PriceRule, rivals_of: RivalsOf) -> None:
        self.rule: Final = rule
        self._rivals_of = rivals_of
        self._lines: dict[tuple[bytes, Tier], Line] = {}
        self._drift_ppm = 0
        self._moved_ms: Millis | None = None
        self._used = (0, 0)

    @property
    def lines(self) -> tuple[Line, ...]:
        """All prices, as they were last worked out."""
        return tuple(self._lines.values())

    @property
    def asks(self) -> Asks:
        """The same for the provider."""
        found: dict[bytes, dict[Tier, Micros]] = {}
        for line in self._lines.values():
            found.setdefault(line.group, {})[line.tier] = line.ask
        return found

    def work_out(
        self,
        groups: Mapping[bytes, tuple[int, int]],
        *,
        timetable: Timetable,
        now: Millis,
    ) -> Asks:
        """The prices of now; `groups` has how many units of each are leased, and of how many.

        A step is due at first, after each `step_ms`, and soon again while rivals are too few.
        """
        busy = sum(leased for leased, _ in groups.values())
        units = sum(count for _, count in groups.values())
        self._used = (self._used[0] + busy, self._used[1] + units)
        is_due = self._moved_ms is None or now - self._moved_ms >= self.rule.step_ms
        if is_due:
            self._drift()
            self._moved_ms = now
        lines: dict[tuple[bytes, Tier], Line] = {}
        for group in groups:
            for tier in TIERS:
                floor = timetable.floor(
                    now,
                    Millis(now + 1),
                    other=floor_of(self.rule, tier),
                    scale=partial(share_of, tier=tier),
                )
                line = self._line(group, tier, floor, is_due=is_due)
                if line is not None:
                    lines[group, tier] = line
        self._lines = lines
        return self.asks

    def _drift(self) -> None:
        busy, units = self._used
        if self.rule.by_use and units and self._moved_ms is not None:
            drift = drifted(self._drift_ppm, busy * PPM // units, self.rule.step_ppm)
            # What floors hold up must not fall on behind them, else it would come back late.
            if drift > self._drift_ppm or any(line.ask > line.floor for line in self.lines):
                self._drift_ppm = drift
        self._used = (0, 0)

    def _line(self, group: bytes, tier: Tier, floor: Micros, *, is_due: bool) -> Line | None:
        last = self._lines.get((group, tier))
        is_blind = self.rule.percent is not None and (last is None or last.rivals < RIVALS_MIN)
        if last is not None and self.rule.is_moving and not is_due and not is_blind:
            return replace(last, ask=max(last.price, floor), floor=floor)
        rivals = self._rivals_of(group, tier) if self.rule.percent is not None else []
        said = target(self.rule, tier, rivals)
        if said is None:
            return None
        wanted = Micros(-(-said * (PPM + self._drift_ppm) // PPM))
        # The first look at the market is a start, whenever it comes.
        is_start = last is None or (is_blind and len(rivals) >= RIVALS_MIN)
        if last is not None and not is_start and self.rule.is_moving:
            wanted = stepped(last.price, wanted, self.rule.step_ppm) if is_due else last.price
        # It does not fall on behind a floor, else it would come back late.
        price = max(wanted, min(floor, floor_of(self.rule, tier)))
        return Line(
            group=group,
            tier=tier,
            price=price,
            ask=max(price, floor),
            floor=floor,
            rivals=len(rivals),
            why=self._why(len(rivals)),
        )

    def _why(self, rivals: int) -> str:
        text = self.rule.strategy
        if self.rule.percent is not None:
            text += f" of {rivals} rivals"
            if rivals < RIVALS_MIN:
                text += f", fewer than {RIVALS_MIN}: as asked"
        if self._drift_ppm:
            text += f", use {'+' if self._drift_ppm > 0 else '-'}{abs(self._drift_ppm) // 10_000} %"
        return text
