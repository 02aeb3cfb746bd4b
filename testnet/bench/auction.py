"""`bench auction`: what a batch of renters pays in all, against the cheapest assignment there is.

Renters come one after the other, all with fresh news, each with the product's shortlist and rule
of choice; an owner that is taken is gone. The optimum sees all renters and owners at once. Asks are
spread as one model's are on public markets. A renter's limit lies between the median ask and what a
public cloud asks for such a card; whoever finds nobody pays its limit elsewhere, in both.
"""

import importlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean
from types import ModuleType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from p2pnode.matching.book import Offer
from p2pnode.matching.columns import Columns, Query
from p2pnode.matching.rows import Opinion
from p2pnode.matching.search import Wish
from p2pnode.matching.spread import LEAST, PER_ACCOUNT_MAX, asked_of, band_for, count_for
from protocol.advert import ask_for
from protocol.errors import LocalFault
from protocol.lease import MS_PER_HOUR
from protocol.scoring import PPM, ranking
from protocol.units import Digest, Mebibytes, Micros, MillisSpan
from testnet.bench.offers import ASK_MEDIAN, NOW, REGIONS, drawn_ask, offer
from testnet.bench.report import Figures, Report, Table, at_most, machine

SHARES: Final = (0.10, 0.25, 0.50, 0.75, 1.00)
"""Renters for each owner."""
COST_MAX: Final = 1.08
CLOUD_ASK: Final = 1_390_000
"""Micro-units an hour, of a card that serves all of these requests."""
VRAMS: Final = (24_564, 46_068, 81_559)
Money = NDArray[np.int64]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuctionWish:
    """How much to assign."""

    offers: int
    seeds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One renter: what it needs, for how long, and what it costs elsewhere."""

    wish: Wish
    span_ms: MillisSpan
    limit: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Owners, what is thought of them, and the renters that come, in that order."""

    offers: list[Offer]
    reliability_ppm: list[int]
    requests: list[Request]


def run(wish: AuctionWish, say: Say) -> Report:
    """All sizes, each with all seeds."""
    rows: list[tuple[str, ...]] = []
    ratios: dict[float, float] = {}
    for share in SHARES:
        say(f"{round(share * wish.offers)} renters, {wish.offers} owners")
        found = [_ratio(batch(wish.offers, share, seed)) for seed in range(1, wish.seeds + 1)]
        ratios[share] = mean(ratio for ratio, _, _ in found)
        rows.append(
            (f"{share:.2f}", f"{ratios[share]:.4f}",
             f"{100 * mean(ours for _, ours, _ in found):.1f}",
             f"{100 * mean(best for _, _, best in found):.1f}")
        )  # fmt: skip
    figures: Figures = {
        **machine(),
        "cost_over_optimum": {f"{s:.2f}": r for s, r in ratios.items()},
    }
    return Report(
        name="auction",
        figures=figures,
        bars=(at_most("cost / cheapest assignment, worst size", max(ratios.values()), COST_MAX),),
        table=Table(
            header=("RENTERS/OWNERS", "COST/OPTIMUM", "UNMATCHED %", "OF OPTIMUM %"),
            rows=tuple(rows),
        ),
    )


def batch(count: int, share: float, seed: int) -> Batch:
    """Owners with one GPU each, and renters, drawn by the seed."""
    dice = random.Random(seed)  # noqa: S311  dice are only dice
    offers = []
    for number in range(count):
        vram, region = dice.choice(VRAMS), dice.choice(REGIONS)
        offers.append(offer(number, {"silver": drawn_ask(dice)}, vram_mib=vram, region=region))
    reliability = [dice.randint(900_000, PPM) for _ in offers]
    return Batch(offers, reliability, [_request(dice) for _ in range(round(count * share))])


def _request(dice: random.Random) -> Request:
    regions = () if dice.random() < 0.7 else tuple(dice.sample(REGIONS, len(REGIONS) // 3))
    span = MillisSpan(dice.randint(1, 48) * MS_PER_HOUR // 2)
    dearest = Micros(dice.randint(ASK_MEDIAN, CLOUD_ASK))
    wish = Wish(vram_min=Mebibytes(dice.choice(VRAMS)), regions=regions, ask_max=dearest)
    return Request(wish=wish, span_ms=span, limit=dearest * span // MS_PER_HOUR)


def costs_of(batch: Batch) -> Money:
    """Of each renter with each owner, by the rule; its limit where they do not fit.

    SPEC.md 12.1 with price and failure, the other terms being zero here.
    """
    asks = np.array([ask_for(each.advert, "silver") for each in batch.offers], np.int64)
    vram = np.array([each.advert.vram_mib for each in batch.offers])
    region = np.array([REGIONS.index(each.advert.region) for each in batch.offers])
    lost = PPM - np.array(batch.reliability_ppm, np.int64)
    rows = []
    for request in batch.requests:
        wish = request.wish
        price = -(-asks * request.span_ms // MS_PER_HOUR)
        cost = price - (-price * lost // PPM)
        fits = (vram >= (wish.vram_min or 0)) & (asks <= (wish.ask_max or 0))
        if wish.regions:
            fits &= np.isin(region, [REGIONS.index(each) for each in wish.regions])
        rows.append(np.where(fits, np.minimum(cost, request.limit), request.limit))
    return np.stack(rows)


def _ratio(batch: Batch) -> tuple[float, float, float]:
    """Our cost for each of the optimum's, and which share of the renters had no owner in each."""
    costs = costs_of(batch)
    limits = np.array([request.limit for request in batch.requests])
    ours = assigned(batch)
    paid = sum(
        int(limits[renter]) if owner is None else int(costs[renter, owner])
        for renter, owner in enumerate(ours)
    )
    best, unmatched = optimum(costs, limits)
    return paid / best, ours.count(None) / len(ours), unmatched / len(ours)


def optimum(costs: Money, limits: Money) -> tuple[int, int]:
    """The least sum, and how many have no owner in it."""
    elsewhere = np.repeat(limits[:, None], len(limits), axis=1)
    rows, columns = _scipy().linear_sum_assignment(np.hstack([costs, elsewhere]))
    owners = costs.shape[1]
    paid = [
        int(limits[row]) if column >= owners else int(costs[row, column])
        for row, column in zip(rows, columns, strict=True)
    ]
    return sum(paid), sum(cost == limits[row] for row, cost in zip(rows, paid, strict=True))


def _scipy() -> ModuleType:
    """Its optimizers; SciPy is not among what a node needs."""
    try:
        return importlib.import_module("scipy.optimize")
    except ModuleNotFoundError as error:
        raise LocalFault("SciPy is not installed.", "pip install scipy") from error


def assigned(batch: Batch) -> list[int | None]:
    """Whom each renter gets, by the product's own shortlist and ranking, one after the other."""
    dice = random.Random(len(batch.requests))  # noqa: S311  dice are only dice
    columns = Columns(
        lambda each: Opinion(reliability_ppm=batch.reliability_ppm[_number(each.head[0])])
    )
    for each in batch.offers:
        columns.put(each)
    found: list[int | None] = []
    for request in batch.requests:
        query = Query(
            wish=request.wish,
            span_ms=request.span_ms,
            now=NOW,
            band_ppm=band_for(0),
            least=LEAST,
            most=count_for(0),
            per_account=PER_ACCOUNT_MAX,
        )
        shortlist = columns.best(query, fits=lambda _offer: True)
        score_of = {ranked.key: ranked.score for ranked in shortlist}
        asked = asked_of(shortlist, seed=dice.randbytes(16))
        bids = [(Digest(each.head[0]), score_of[each.head[0]]) for each in asked]
        order = ranking(bids, dice.randbytes(16))
        if not order or score_of[order[0]] > request.limit:
            found.append(None)
            continue
        columns.drop(order[0])
        found.append(_number(order[0]))
    return found


def _number(key: bytes) -> int:
    return int.from_bytes(key, "big")
