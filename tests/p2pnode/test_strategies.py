"""How an owner's price comes about, in integers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.matching.pricer import Pricer
from p2pnode.matching.strategies import (
    DRIFTS_PPM,
    RIVALS_MIN,
    Energy,
    PriceRule,
    ask_of,
    drifted,
    floor_of,
    percentile,
    stepped,
    target,
)
from p2pnode.matching.timetable import ALWAYS, Timetable
from protocol.advert import Tier
from protocol.units import Micros, Millis, MillisSpan
from tests.make_windows import at, window

GROUP = bytes(16)
ASK = Micros(400_000)
ENERGY = Energy(micro_per_kwh=Micros(300_000), watts=400, margin_ppm=250_000)
MINUTE = 60_000
prices = st.integers(0, 10**12).map(Micros)


def rule(**changes: object) -> PriceRule:
    return PriceRule(**{"asks": {"silver": ASK}, **changes})  # type: ignore[arg-type]


def test_tiers_without_a_price_are_a_share_of_silver_rounded_up() -> None:
    assert [ask_of(rule(), tier) for tier in ("gold", "silver", "bronze")] == [
        500_000,
        400_000,
        200_000,
    ]
    assert ask_of(rule(asks={"silver": Micros(1)}), "bronze") == 1
    own = rule(asks={"silver": ASK, "bronze": Micros(7)})
    assert (ask_of(own, "bronze"), ask_of(own, "gold")) == (7, 500_000)
    assert ask_of(rule(asks={}), "silver") is None


def test_the_cost_of_energy_is_exact_and_rounded_up() -> None:
    assert ENERGY.cost(3_600_000) == 120_000
    assert ENERGY.cost(1) == 1
    assert ENERGY.cost(0) == 0
    assert ENERGY.with_margin == 150_000
    plus = rule(asks={}, strategy="cost-plus", energy=ENERGY)
    assert [target(plus, tier) for tier in ("gold", "silver", "bronze")] == [
        187_500,
        150_000,
        75_000,
    ]
    # Bronze at half of it would be given away below its cost.
    assert floor_of(plus, "bronze") == 120_000


@pytest.mark.parametrize(
    ("percent", "expected"), [(1, 10), (25, 10), (26, 20), (50, 20), (75, 30), (76, 40), (99, 40)]
)
def test_a_percentile_is_one_of_the_asks(percent: int, expected: int) -> None:
    assert percentile([Micros(n) for n in (40, 10, 30, 20)], percent) == expected


@given(st.lists(prices, min_size=1), st.integers(1, 99))
def test_so_many_asks_do_not_exceed_a_percentile(asks: list[Micros], percent: int) -> None:
    found = percentile(asks, percent)
    assert sum(ask <= found for ask in asks) * 100 >= percent * len(asks)
    assert sum(ask < found for ask in asks) * 100 < percent * len(asks)


def test_a_market_of_few_is_no_market() -> None:
    market = rule(strategy="market-p40")
    rivals = [Micros(n) for n in (100, 200, 300)]
    assert len(rivals) == RIVALS_MIN
    assert target(market, "silver", rivals) == 200
    assert target(market, "silver", rivals[:-1]) == ASK
    assert floor_of(market, "silver") == ASK
    assert floor_of(rule(strategy="market-p40", floors={"silver": Micros(90)}), "bronze") == 45


@given(prices, prices, st.integers(1, 1_000_000))
def test_a_step_is_bounded_and_never_overshoots(last: Micros, wanted: Micros, step: int) -> None:
    new = stepped(last, wanted, step)
    assert abs(new - last) <= max(1, last * step // 1_000_000)
    assert min(last, wanted) <= new <= max(last, wanted)
    assert new != last or last == wanted


@given(st.lists(st.tuples(st.integers(0, 1_000_000), st.integers(1, 1_000_000))))
def test_use_moves_a_price_within_bounds(steps: list[tuple[int, int]]) -> None:
    drift = 0
    for use, step in steps:
        new = drifted(drift, use, step)
        assert DRIFTS_PPM[0] <= new <= DRIFTS_PPM[1]
        assert abs(new - drift) <= step
        drift = new


class Market:
    """One unit group of two units, and the asks of others."""

    def __init__(self, of: PriceRule, timetable: Timetable = ALWAYS) -> None:
        self.rivals: list[Micros] = []
        self.busy = 1
        self.now = at("2026-12-01T12:00+01:00")
        self._timetable = timetable
        self._pricer = Pricer(of, lambda _group, _tier: self.rivals)

    def after(self, minutes: int, tier: Tier = "silver") -> int:
        self.now = Millis(self.now + minutes * MINUTE)
        asks = self._pricer.work_out(
            {GROUP: (self.busy, 2)}, timetable=self._timetable, now=self.now
        )
        return asks[GROUP][tier]

    @property
    def why(self) -> str:
        return next(line.why for line in self._pricer.lines if line.tier == "silver")


def test_a_market_price_goes_to_its_place_by_steps_and_stops_at_the_floor() -> None:
    market = Market(
        rule(strategy="market-p50", floors={"silver": Micros(300_000)}, step_ppm=100_000)
    )
    assert market.after(0) == ASK
    assert market.why == "market-p50 of 0 rivals, fewer than 3: as asked"
    market.rivals = [Micros(n) for n in (350_000, 360_000, 370_000)]
    assert market.after(1) == 360_000, "the first look at the market is a start"
    market.rivals = [Micros(n) for n in (1, 2, 3)]
    assert market.after(9) == 324_000
    assert market.after(9) == 324_000, "no step before its time"
    assert market.after(1) == 300_000, "the floor holds"
    assert market.after(10) == 300_000
    market.rivals = [Micros(900_000)] * 3
    assert market.after(10) == 330_000, "and it rises from the floor, not from below it"
    assert market.why == "market-p50 of 3 rivals"


def test_use_moves_a_fixed_price_one_step_at_a_time() -> None:
    market = Market(rule(by_use=True, step_ppm=100_000, step_ms=MillisSpan(10 * MINUTE)))
    assert market.after(0) == 400_000
    market.busy = 2
    assert [market.after(5) for _ in range(4)] == [400_000, 440_000, 440_000, 480_000]
    assert market.why == "fixed, use +20 %"
    market.busy = 1
    assert market.after(10) == 480_000, "half in use: it stays"
    market.busy = 0
    assert market.after(10) == 440_000
    for _ in range(20):
        market.after(10)
    assert market.after(10) == 200_000, "at most half is lost"


def test_a_floor_that_holds_a_price_up_lets_it_rise_at_once() -> None:
    market = Market(rule(by_use=True, step_ppm=100_000, floors={"silver": Micros(350_000)}))
    market.after(0)
    market.busy = 0
    for _ in range(20):
        market.after(10)
    assert market.after(10) == 350_000
    market.busy = 2
    later = [market.after(10) for _ in range(3)]
    assert later[0] >= 350_000
    assert later[2] > 350_000


def test_the_floor_of_a_window_is_the_floor_while_it_is_open() -> None:
    night = window("22:00-06:00 daily", floor_micro=Micros(500_000))
    always = window("daily")
    market = Market(rule(), Timetable((always, night)))
    assert market.after(0) == 400_000
    assert market.after(10 * 60) == 500_000
    assert market.after(0, "bronze") == 250_000


def test_a_price_that_was_fixed_stays_where_it_is() -> None:
    market = Market(rule())
    market.rivals = [Micros(1)] * 9
    assert {market.after(10) for _ in range(9)} == {400_000}
    assert market.why == "fixed"
