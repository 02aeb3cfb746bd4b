"""`bench match`: how soon the best of many offers are found, against SQLite and the memory itself.

The columns of the product, a full scan of SQLite that sorts by the same integer score, and a
covering index of SQLite in order of price that ends at the same bound. All answer the same seeded
queries in turn, in the processor time of one process; the floor is one pass of NumPy over 12 bytes
for each offer.
"""

import gc
import random
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from time import thread_time
from typing import Final, Literal

import numpy as np

from p2pnode.matching.book import Offer
from p2pnode.matching.columns import Columns, Query
from p2pnode.matching.judging import advertised, judged
from p2pnode.matching.rows import Opinion
from p2pnode.matching.search import Wish, misfit
from protocol.lease import MS_PER_HOUR
from protocol.scoring import PPM, Weights, expected_cost
from protocol.units import Mebibytes, Micros, MillisSpan
from testnet.bench.offers import CARDS, NOW, REGIONS, drawn_ask, offer
from testnet.bench.report import (
    Bar,
    Report,
    Table,
    at_least,
    at_most,
    machine,
    percentile,
)

TOP: Final = 8
AT_ONCE: Final = 50
CHECKED: Final = 60
"""Queries whose answers are compared, also with a look at each offer."""
FASTER_THAN_SCAN: Final = 50
FASTER_THAN_INDEX: Final = 12
PASSES_MAX: Final = 10
P99_SHARE_MAX: Final = 1 / 15
BYTES_PER_OFFER: Final = 12
FLOOR_ROUNDS: Final = 50
BRONZE_SHARE: Final = 2
Found = list[tuple[int, int]]
"""Score and number of each offer, best first."""
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchWish:
    """How much to match."""

    offers: int
    queries: int
    seed: int


def run(wish: MatchWish, say: Say) -> Report:
    """Fill, check, measure."""
    dice = random.Random(wish.seed)  # noqa: S311  dice are only dice
    say(f"making {wish.offers} offers")
    offers = [_drawn(number, dice) for number in range(wish.offers)]
    opinions = [
        Opinion(reliability_ppm=dice.randint(500_000, PPM), rtt_ms=dice.randint(1, 250))
        for _ in offers
    ]
    queries = [_query(dice) for _ in range(wish.queries)]
    columns = Columns(lambda found: opinions[_number(found)])
    for each in offers:
        columns.put(each)
    began = thread_time()
    columns.best(queries[0], fits=_anything)
    filled_s = thread_time() - began
    tables = Tables(offers, opinions)
    wrong = _wrong(queries[:CHECKED], columns, tables, (offers, opinions))
    say(f"asking {len(queries)} times")
    us = _measured(queries, columns, tables)
    us["pass"] = _floor(wish.offers)
    return _report(us, wrong, filled_s * 1e6 / wish.offers)


def _report(us: dict[str, list[float]], wrong: int, put_us: float) -> Report:
    middle = {name: median(values) for name, values in us.items()}
    late = {name: percentile(values, 0.99) for name, values in us.items()}
    bars: tuple[Bar, ...] = (
        at_most("queries whose answers differ from a look at each offer", wrong, 0),
        at_least("SQLite full scan / columns, median",
                 middle["scan"] / middle["columns"], FASTER_THAN_SCAN),
        at_least("SQLite covering index / columns, median",
                 middle["index"] / middle["columns"], FASTER_THAN_INDEX),
        at_most("columns / one pass over memory, median",
                middle["columns"] / middle["pass"], PASSES_MAX),
        at_most("p99 of columns / p99 of SQLite full scan",
                late["columns"] / late["scan"], P99_SHARE_MAX),
    )  # fmt: skip
    figures = {
        **machine(),
        **{f"{name}_median_us": round(value, 1) for name, value in middle.items()},
        **{f"{name}_p99_us": round(value, 1) for name, value in late.items()},
        "put_us": round(put_us, 2),
    }
    rows = tuple((name, f"{middle[name]:.0f}", f"{late[name]:.0f}") for name in us)
    table = Table(header=("ENGINE", "MEDIAN US", "P99 US"), rows=rows)
    return Report(name="match", figures=figures, bars=bars, table=table)


def _drawn(number: int, dice: random.Random) -> Offer:
    model, vram, median_ask = dice.choice(CARDS)
    units = dice.choice((1, 1, 2, 4, 8))
    ask = drawn_ask(dice, median_ask)
    return offer(
        number,
        {"silver": ask, "bronze": ask // BRONZE_SHARE},
        model=model,
        vram_mib=vram,
        units=units,
        free=dice.randint(0, units),
        region=dice.choice(REGIONS),
    )


def _query(dice: random.Random) -> Query:
    _, vram, ask = dice.choice(CARDS)
    tier: Literal["silver", "bronze"] = dice.choice(("silver", "silver", "bronze"))
    dearest = ask * dice.randint(80, 250) // 100
    regions = () if dice.random() < 0.5 else tuple(dice.sample(REGIONS, dice.randint(3, 12)))
    return Query(
        wish=Wish(
            gpus=dice.choice((1, 1, 1, 2, 4, 8)),
            vram_min=Mebibytes(vram * 97 // 100),
            regions=regions,
            tier=tier,
            ask_max=Micros(dearest) if dice.random() < 0.6 else None,
            money="TEST",
        ),
        span_ms=MillisSpan(dice.randint(1, 48) * MS_PER_HOUR // 2),
        now=NOW,
        weights=Weights(latency_micro_per_ms=Micros(dice.choice((0, 0, 500)))),
        band_ppm=0,
        least=TOP,
        most=TOP,
        per_account=TOP,
    )


def _number(found: Offer) -> int:
    return int.from_bytes(found.signer, "big")


def _anything(_offer: Offer) -> bool:
    return True


def _columns(columns: Columns, query: Query) -> Found:
    found = columns.best(query, fits=_anything)
    return [(ranked.score, int.from_bytes(ranked.key, "big")) for ranked in found]


class Tables:
    """The same offers in SQLite, in memory, with the score of the rule as an expression."""

    def __init__(self, offers: list[Offer], opinions: list[Opinion]) -> None:
        self._db = sqlite3.connect(":memory:")
        self._db.execute(
            "CREATE TABLE offer (number INTEGER PRIMARY KEY, vram INT, free INT, region INT,"
            " silver INT, bronze INT, reliability INT, rtt INT)"
        )
        self._db.executemany("INSERT INTO offer VALUES (?,?,?,?,?,?,?,?)", _rows(offers, opinions))
        for tier in ("silver", "bronze"):
            self._db.execute(
                f"CREATE INDEX by_{tier} ON offer ({tier}, vram, free, region, reliability, rtt)"
            )
        self._db.execute("ANALYZE")

    def scan(self, query: Query) -> Found:
        """Every row is scored; the least are kept."""
        where, values = _where(query)
        rows = self._db.execute(
            f"SELECT {_score(query)} AS score, number FROM offer NOT INDEXED WHERE {where}"  # noqa: S608  words of ours
            f" ORDER BY score, number LIMIT {TOP}",
            values,
        )
        return rows.fetchall()

    def index(self, query: Query) -> Found:
        """In order of price, until the price alone exceeds the last of the best."""
        where, values = _where(query)
        tier = query.wish.tier
        per_ask = query.wish.gpus * query.span_ms
        rows = self._db.execute(
            f"SELECT {tier}, {_score(query)}, number FROM offer INDEXED BY by_{tier}"  # noqa: S608  words of ours
            f" WHERE {where} ORDER BY {tier}",
            values,
        )
        best: Found = []
        for ask, score, number in rows:
            if len(best) == TOP:
                if -(-ask * per_ask // MS_PER_HOUR) > best[-1][0]:
                    break
                if (score, number) >= best[-1]:
                    continue
                best.pop()
            best.append((score, number))
            best.sort()
        rows.close()
        return best


def _rows(offers: list[Offer], opinions: list[Opinion]) -> Iterator[tuple[int, ...]]:
    for number, (each, opinion) in enumerate(zip(offers, opinions, strict=True)):
        advert = each.advert
        asks = [int(ask.micro_per_gpu_hour or 0) for ask in advert.tiers]
        yield (
            number, advert.vram_mib, advert.free, 1 << REGIONS.index(advert.region), *asks,
            opinion.reliability_ppm, opinion.rtt_ms,
        )  # fmt: skip


def _where(query: Query) -> tuple[str, dict[str, int]]:
    wish = query.wish
    where = "vram >= :vram AND free >= :gpus"
    values = {"vram": int(wish.vram_min or 0), "gpus": wish.gpus}
    if wish.regions:
        where += " AND (region & :regions) != 0"
        values["regions"] = sum(1 << REGIONS.index(region) for region in wish.regions)
    if wish.ask_max is not None:
        where += f" AND {wish.tier} <= :dearest"
        values["dearest"] = wish.ask_max
    return where, values


def _score(query: Query) -> str:
    """Price, failure and latency of SPEC.md 12.1, each rounded up."""
    per_ask = query.wish.gpus * query.span_ms
    price = f"(({query.wish.tier} * {per_ask} + {MS_PER_HOUR - 1}) / {MS_PER_HOUR})"
    failure = f"(({price} * ({PPM} - reliability) + {PPM - 1}) / {PPM})"
    return f"{price} + {failure} + rtt * {query.weights.latency_micro_per_ms}"


def _wrong(
    queries: list[Query],
    columns: Columns,
    tables: Tables,
    all_of: tuple[list[Offer], list[Opinion]],
) -> int:
    """Of how many queries an engine's answer is not that of a look at each offer."""
    wrong = 0
    for query in queries:
        right = _looked(query, *all_of)
        answers = (_columns(columns, query), tables.scan(query), tables.index(query))
        wrong += any(answer != right for answer in answers)
    return wrong


def _looked(query: Query, offers: list[Offer], opinions: list[Opinion]) -> Found:
    found: Found = []
    wish = query.wish
    for number, (each, opinion) in enumerate(zip(offers, opinions, strict=True)):
        # What most fail first, so that the look itself does not take the time of the benchmark.
        if each.advert.free < wish.gpus or misfit(each, wish) is not None:
            continue
        deal = advertised(each.advert, tier=wish.tier, gpus=wish.gpus, span_ms=query.span_ms)
        thought = judged(
            each, reliability_ppm=opinion.reliability_ppm, rtt_ms=opinion.rtt_ms, bytes_to_move=0
        )
        found.append((expected_cost(deal, thought, query.weights).score, number))
    return sorted(found)[:TOP]


def _measured(queries: list[Query], columns: Columns, tables: Tables) -> dict[str, list[float]]:
    """Microseconds of each query by each engine, some queries at a time in turn.

    In turn so that all meet the same machine; some at a time because what an engine has just read
    is in the processor's memory, as it is in a node that matches and does not also run the others.
    """
    engines: dict[str, Callable[[Query], Found]] = {
        "columns": lambda query: _columns(columns, query),
        "scan": tables.scan,
        "index": tables.index,
    }
    us: dict[str, list[float]] = {name: [] for name in engines}
    # What the benchmark itself holds is not to be walked again and again by the collector.
    gc.collect()
    gc.freeze()
    for start in range(0, len(queries), AT_ONCE):
        for name, engine in engines.items():
            for query in queries[start : start + AT_ONCE]:
                began = thread_time()
                engine(query)
                us[name].append((thread_time() - began) * 1e6)
    gc.unfreeze()
    return us


def _floor(offers: int) -> list[float]:
    """Microseconds of one pass over as many bytes as a filter must look at."""
    memory = np.ones(offers * BYTES_PER_OFFER // 8, np.uint64)
    taken = []
    for _ in range(FLOOR_ROUNDS):
        began = thread_time()
        np.bitwise_and.reduce(memory)
        taken.append((thread_time() - began) * 1e6)
    return taken
