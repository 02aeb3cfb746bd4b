"""A job with a deadline and no tier gets the cheapest plan that meets it."""

import dataclasses
import random
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from msgspec.structs import replace

from p2pnode.cli.wanted import constraints_of
from p2pnode.jobs.jobfile import RESTART_MS
from p2pnode.matching.book import Offer
from p2pnode.matching.judging import HAZARD_PPM_PER_HOUR
from p2pnode.matching.order import START_MS, Choice, Order
from p2pnode.matching.renter import NoMatch
from p2pnode.matching.search import converted
from protocol.advert import Tier, TierAsk
from protocol.lease import charge
from protocol.scoring import BAND_PPM, PPM, Deal, Judged, Weights, expected_cost
from protocol.units import Micros, Millis, MillisSpan
from tests import make
from tests.make_desk import HOUR, Clock, Owner, order, posting, renter
from tests.make_job import make_jobfile
from tests.p2pnode.test_wanted import parsed

RELIABILITY_PPM = 950_000
"""Of each owner, as `make_desk` has it."""
GPUS = 2
RATES = (("EUR", Micros(1_100_000)),)


@dataclass
class Priced(Owner):
    """An owner whose advert says what it bids."""

    def offer(self) -> Offer:
        offer = super().offer()
        asks = self.by.asks[make.GROUP]
        tiers = tuple(
            TierAsk(tier=tier, micro_per_gpu_hour=asks[tier])
            for tier in ("silver", "bronze")
            if tier in self.by.tiers
        )
        advert = replace(offer.advert, tiers=tiers, money=self.by.money)
        return dataclasses.replace(offer, advert=advert)


def priced(number: int, asks: dict[Tier, int], money: str = "TEST") -> Priced:
    micros = {tier: Micros(ask) for tier, ask in asks.items()}
    by = posting(
        ask=micros.get("silver", micros.get("bronze")),
        tiers=tuple(micros),
        asks={make.GROUP: micros},
        money=money,
    )
    return Priced(number, Clock(), by=by)


def owners_of(dice: random.Random) -> list[Priced]:
    """Some offer one tier, some both, some bronze that is hardly cheaper, some in other money."""
    found = []
    for number in range(10, 10 + dice.randint(1, 8)):
        silver = dice.randrange(300_000, 600_000)
        asks: dict[Tier, int] = {
            "silver": silver,
            "bronze": silver * dice.choice((400, 700, 950, 995)) // 1_000,
        }
        if (only := dice.choice(("silver", "bronze", None, None))) is not None:
            asks = {tier: ask for tier, ask in asks.items() if tier == only}
        found.append(priced(number, asks, dice.choice(("TEST", "TEST", "EUR"))))
    return found


def cost_by_hand(owner: Priced, tier: Tier, by: Order) -> int | None:
    """What this plan is expected to cost; None where it breaks a limit of the order."""
    rate = converted(owner.by.asks[make.GROUP][tier], owner.by.money, by.wish())
    assert rate is not None
    if by.ask_max is not None and rate > by.ask_max:
        return None
    if by.total_max is not None and charge(MillisSpan(by.span_ms * GPUS), rate) > by.total_max:
        return None
    deal = Deal(
        micro_per_gpu_hour=rate, gpus=GPUS, span_ms=by.span_ms, wait_ms=MillisSpan(0), tier=tier
    )
    judged = Judged(reliability_ppm=RELIABILITY_PPM, hazard_ppm_per_hour=HAZARD_PPM_PER_HOUR)
    return expected_cost(deal, judged, by.weights).score


def plans(owners: list[Priced], by: Order) -> dict[tuple[bytes, Tier], int]:
    """Every owner in every tier that will do."""
    tried = {
        (owner.key.public, tier): cost_by_hand(owner, tier, by)
        for owner in owners
        for tier in by.wish().tiers
        if tier in owner.by.tiers
    }
    return {plan: cost for plan, cost in tried.items() if cost is not None}


@pytest.mark.parametrize("limits", ["none", "price", "total"])
async def test_no_owner_in_no_tier_would_have_been_cheaper(
    limits: str, autojump_clock: trio.abc.Clock
) -> None:
    dice, seen = random.Random(limits), set[str]()
    for _ in range(60):
        owners = owners_of(dice)
        limit: dict[str, Any] = {}
        if limits == "price":
            limit["ask_max"] = Micros(dice.randrange(200_000, 500_000))
        if limits == "total":
            limit["total_max"] = Micros(GPUS * dice.randrange(200_000, 500_000))
        given = constraints_of(parsed("--deadline", "8h"))
        assert (given["tier"], given["or_tiers"]) == ("silver", ["bronze"])
        by = order(
            tier=given["tier"],
            choice=Choice(
                or_tiers=tuple(given["or_tiers"]),
                end_by_ms=Millis(make.NOW + 8 * HOUR),
                rates=RATES,
            ),
            weights=Weights(redo_ms=MillisSpan(dice.choice((0, HOUR // 2, 10 * HOUR)))),
            **limit,
        )
        found = plans(owners, by)
        try:
            won = await renter(owners, Clock()).rent(  # type: ignore[arg-type]
                by, seal_job=lambda _offer: None, remember=_remember
            )
        except NoMatch:
            assert not found
            seen.add("none")
            continue
        # A random one of those within the band wins, and reliability weighs on price alone.
        cost = found[won.taking.owner, won.bid.tier]
        assert cost * PPM <= min(found.values()) * (PPM + BAND_PPM)
        seen.add(won.bid.tier)
    assert {"silver", "bronze"} <= seen
    assert limits == "none" or "none" in seen


async def test_bronze_that_is_hardly_cheaper_loses_to_silver_of_the_same_owner(
    autojump_clock: trio.abc.Clock,
) -> None:
    """An interruption in twenty hours, each of which costs two hours: a tenth of the price."""
    for bronze, tier in ((340_000, "bronze"), (380_000, "silver")):
        owner = priced(10, {"silver": 400_000, "bronze": bronze})
        by = order(
            choice=Choice(or_tiers=("bronze",)), weights=Weights(redo_ms=MillisSpan(2 * HOUR))
        )
        won = await renter([owner], Clock()).rent(
            by, seal_job=lambda _offer: None, remember=_remember
        )
        assert won.bid.tier == tier


@pytest.mark.parametrize("spare_ms", [-1, 0])
def test_bronze_is_part_of_the_plan_only_where_an_interruption_leaves_time(spare_ms: int) -> None:
    file = make_jobfile(span_ms=MillisSpan(HOUR), checkpoint_ms=MillisSpan(60_000))
    lost = RESTART_MS + 30_000
    end = Millis(make.NOW + START_MS + HOUR + lost + spare_ms)
    choice = Choice(or_tiers=("bronze",), end_by_ms=end)
    timely = replace(file, choice=choice).order(make.NOW).wish().tiers
    assert timely == (("silver", "bronze") if spare_ms == 0 else ("silver",))
    # Who names bronze alone has said so.
    alone = replace(file, tier="bronze", choice=Choice(end_by_ms=end))
    assert alone.order(make.NOW).wish().tiers == ("bronze",)


async def _remember(_taking: object) -> None:
    await trio.lowlevel.checkpoint()
