"""Adverts in columns: finds the best of many in the time in which a machine can look at them.

Rows of one GPU class and tier lie in order of their asks, each as often as the owner is likely to
fail, in NumPy arrays. A search sieves pieces of them by packed words, bounds each survivor's score
from below in floats, and asks the exact rule of `protocol.scoring` only about the few that can be
among the best. No score is below price and failure, so the search ends where these begin to exceed
the scores that it has.
"""

import math
from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from p2pnode.matching.book import Offer
from p2pnode.matching.judging import advertised, judged
from p2pnode.matching.packed import GUARDS, Seen, quantities_wanted
from p2pnode.matching.rows import (
    ASK,
    COST,
    EXTRA,
    HAZARD,
    KBIT,
    RTT,
    WORSE,
    Floats,
    Opinion,
    Piece,
    Row,
    Rows,
)
from p2pnode.matching.search import NOTHING_KNOWN, Wish, misfit_of
from protocol.advert import Tier, is_expired
from protocol.gpu_class import GpuClass
from protocol.lease import MS_PER_HOUR
from protocol.scoring import PPM, UNWEIGHED, Weights, expected_cost
from protocol.units import Micros, Millis, MillisSpan, PublicKey

SLACK: Final = 1 - 1e-12
"""A float of a dozen operations is nearer to the real number than this; and the exact rule rounds
up, so that what is below the real number is below the score."""
AT_ONCE: Final = 32
"""Survivors of a piece that are put in order before more of them are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What is looked for, and how much of it."""

    wish: Wish
    span_ms: MillisSpan
    now: Millis
    weights: Weights = UNWEIGHED
    bytes_to_move: int = 0
    band_ppm: int
    """How much dearer than the best an offer may be and still be one of the best."""
    least: int
    """So many are found even beyond the band, if there are."""
    most: int
    """At least `least`."""
    per_account: int
    reliability_below_ppm: int | None = None
    """Only owners that are thought less reliable than this are of interest; `fits` knows which."""


class Ranked(Struct, frozen=True, order=True):
    """An offer and its exact score; in order of score, then group key, of which each is once."""

    score: Micros
    key: bytes
    offer: Offer


Fits = Callable[[Offer], bool]
Unmet = Callable[[Offer], int]
"""unmet(offer): the share of the renter's preferences that it does not meet, in millionths."""


def all_met(_offer: Offer) -> int:
    """Without preferences none is missed."""
    return 0


class Columns:
    """The open adverts of a book, kept in step by `put` and `drop`, which cost next to nothing.

    What the node thinks of an owner is asked when its advert comes, and again with each of its
    heartbeats.
    """

    def __init__(self, judge: Callable[[Offer], Opinion]) -> None:
        self._judge = judge
        self._rows: dict[tuple[GpuClass, Tier], Rows] = {}
        self._of: dict[bytes, list[Rows]] = {}
        self._changed: dict[bytes, Offer | None] = {}
        self._seen = Seen()

    def put(self, offer: Offer) -> None:
        """The newest advert of its group; a withdrawn one leaves."""
        self._changed[offer.head[0]] = offer if offer.is_open else None

    def drop(self, key: bytes) -> None:
        """The group's advert has expired."""
        self._changed[key] = None

    def best(self, query: Query, *, fits: Fits, unmet: Unmet = all_met) -> list[Ranked]:
        """The best offers that fit, best first, by the exact rule.

        All within the band, at most `most`, at least `least` if there are; of one account at most
        `per_account`. `fits` is asked of the few that may be among them, before `misfit` is.
        """
        self._merge()
        bound = _Bound(query, self._seen)
        picks = _Picks(query)
        misfit = misfit_of(query.wish)
        vram_min = query.wish.vram_min or 0
        pieces = [
            piece
            for place, ((_, tier), rows) in enumerate(self._rows.items())
            if tier == query.wish.tier and rows.vram_most >= vram_min
            for piece in rows.pieces(bound.gpu_hours, place)
        ]
        heapify(pieces)
        pool: list[tuple[float, int, _Hits]] = []
        numbers = count()
        while pieces or pool:
            low = pieces[0].low if pieces else math.inf
            if low <= (pool[0][0] if pool else math.inf):
                if low > picks.cutoff:
                    break
                piece = heappop(pieces)
                hits = bound.hits(piece, picks.cutoff)
                if hits is not None:
                    heappush(pool, (hits.low, next(numbers), hits))
                if (rest := piece.rest(bound.gpu_hours)) is not None:
                    heappush(pieces, rest)
                continue
            first, number, hits = pool[0]
            if first > picks.cutoff:
                break
            row = hits.take()
            if hits.low < math.inf:
                heapreplace(pool, (hits.low, number, hits))
            else:
                heappop(pool)
            if row is None or is_expired(row.offer.advert, query.now):
                continue
            if fits(row.offer) and misfit(row.offer, NOTHING_KNOWN) is None:
                picks.add(row.offer, _score(row, query, unmet))
        return picks.best()

    def __len__(self) -> int:
        """How many groups are in it."""
        self._merge()
        return len(self._of)

    def _merge(self) -> None:
        """Take over what has changed since the last search."""
        touched: dict[int, Rows] = {}
        for key, offer in self._changed.items():
            old = self._of.pop(key, [])
            new = [] if offer is None else self._homes(offer)
            for rows in old:
                if rows not in new:
                    rows.drop(key)
            if offer is None:
                continue
            self._of[key] = new
            opinion = self._judge(offer)
            properties = self._seen.properties_of(offer.advert)
            for rows in new:
                rows.put(offer, opinion, properties)
                touched[id(rows)] = rows
        self._changed.clear()
        for rows in touched.values():
            rows.settle()

    def _homes(self, offer: Offer) -> list[Rows]:
        """Where an advert has its rows: one for each of its tiers."""
        homes = []
        for ask in offer.advert.tiers:
            place = (GpuClass(offer.advert.gpu_class), ask.tier)
            if place not in self._rows:
                self._rows[place] = Rows(ask.tier)
            homes.append(self._rows[place])
        return homes


def weights_in(weights: Weights, rate: int) -> Weights:
    """The weights in other money, a unit of which is worth `rate` millionths; rounded down."""
    return replace(
        weights,
        delay_micro_per_hour=Micros(weights.delay_micro_per_hour * PPM // rate),
        latency_micro_per_ms=Micros(weights.latency_micro_per_ms * PPM // rate),
    )


def best_of(query: Query, found: list[tuple[int, list[Ranked]]]) -> list[Ranked]:
    """The best of what several searches found, each with what a unit of its money is worth.

    One search covers one tier and one money.
    """
    if len(found) == 1:
        return found[0][1]
    picks, kept = _Picks(query), dict[bytes, Ranked]()
    for rate, ranked in found:
        for one in ranked:
            score = Micros(-(-one.score * rate // PPM))
            if one.key not in kept or score < kept[one.key].score:
                kept[one.key] = Ranked(score, one.key, one.offer)
    for one in kept.values():
        picks.add(one.offer, one.score)
    return picks.best()


def _score(row: Row, query: Query, unmet: Unmet) -> Micros:
    """By the rule by which bids are scored."""
    deal = advertised(
        row.offer.advert, tier=query.wish.tier, gpus=query.wish.gpus, span_ms=query.span_ms
    )
    thought = judged(
        row.offer,
        reliability_ppm=row.opinion.reliability_ppm,
        bytes_to_move=query.bytes_to_move,
        rtt_ms=row.opinion.rtt_ms,
        hazard_ppm_per_hour=row.opinion.hazard_ppm_per_hour,
        unmet_ppm=unmet(row.offer),
    )
    return expected_cost(deal, thought, query.weights).score


class _Bound:
    """A query in the form in which columns are sieved and scores bounded from below."""

    def __init__(self, query: Query, seen: Seen) -> None:
        wish, weights = query.wish, query.weights
        self._wanted = np.uint64(quantities_wanted(wish))
        self._masks = [np.uint64(mask) for mask in seen.properties_wanted(wish)]
        self._ask_max = math.inf if wish.ask_max is None else float(wish.ask_max)
        below = query.reliability_below_ppm
        self._worse = None if below is None else 2 - below / PPM
        self._extra = EXTRA + wish.gpus - 1
        self._bits = 8.0 * query.bytes_to_move
        self._gpu_hours = wish.gpus * query.span_ms / MS_PER_HOUR
        self._gpu_hours_per_ms = wish.gpus / MS_PER_HOUR
        self._delay_per_ms = weights.delay_micro_per_hour / MS_PER_HOUR
        self._per_rtt = float(weights.latency_micro_per_ms)
        self._redone = 0.0
        if wish.tier == "bronze":
            hours = query.span_ms / MS_PER_HOUR * (weights.redo_ms / MS_PER_HOUR)
            self._redone = hours * wish.gpus
        self.gpu_hours = self._gpu_hours * SLACK
        """By this what a row costs an hour is what it costs in all, at least."""

    def hits(self, piece: Piece, cutoff: float) -> "_Hits | None":
        """The rows of a piece that may fit and score no more than `cutoff`; None if none may."""
        rows, part = piece.rows, slice(piece.start, piece.end)
        kept = (rows.quantities[part] - self._wanted) & _GUARDS == _GUARDS
        if self._ask_max < math.inf:
            kept &= rows.facts[ASK, part] <= self._ask_max
        if self._worse is not None:
            kept &= rows.facts[WORSE, part] > self._worse
        for mask in self._masks:
            kept &= rows.properties[part] & mask != 0
        at = kept.nonzero()[0]
        at += piece.start
        low = self._low(rows, at)
        if cutoff < math.inf:
            near = low <= cutoff
            at, low = at[near], low[near]
        return _Hits(rows, at, low) if len(at) else None

    def _low(self, rows: Rows, at: NDArray[np.intp]) -> Floats:
        """Scores of these rows, from below."""
        facts = rows.facts
        low: Floats = facts[COST, at] * self._gpu_hours
        if self._bits:
            low += facts[COST, at] * (self._gpu_hours_per_ms * self._bits) / facts[KBIT, at]
        if self._redone:
            low += facts[ASK, at] * facts[HAZARD, at] * self._redone
        if rows.has_extra and self._extra < len(facts):
            low *= facts[self._extra, at]
        if self._bits and self._delay_per_ms:
            low += self._delay_per_ms * (self._bits / facts[KBIT, at])
        if self._per_rtt:
            low += self._per_rtt * facts[RTT, at]
        low *= SLACK
        return low


_GUARDS: Final = np.uint64(GUARDS)


class _Hits:
    """Survivors of one piece, lowest bound first; put in order as far as they are asked for."""

    def __init__(self, rows: Rows, at: NDArray[np.intp], low: Floats) -> None:
        self._rows = rows
        self._left: tuple[NDArray[np.intp], Floats] | None = None
        if len(at) > AT_ONCE:
            parted = np.argpartition(low, AT_ONCE)
            first, left = parted[:AT_ONCE], parted[AT_ONCE:]
            self._left = at[left], low[left]
            at, low = at[first], low[first]
        self._order(at, low)

    def _order(self, at: NDArray[np.intp], low: Floats) -> None:
        order = np.argsort(low)[::-1]
        self._at: list[int] = at[order].tolist()
        self._low: list[float] = low[order].tolist()
        self.low = self._low[-1]

    def take(self) -> Row | None:
        """The next row; afterwards `low` is the bound of the one behind it."""
        at = self._at.pop()
        self._low.pop()
        if not self._low and self._left is not None:
            (rest, low), self._left = self._left, None
            self._order(rest, low)
        else:
            self.low = self._low[-1] if self._low else math.inf
        return self._rows.rows[at]


class _Picks:
    """The best so far. What scores above `cutoff` can no more be one of them."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._found: list[Ranked] = []
        """All of which may still be chosen."""
        self._of_account: dict[PublicKey, list[Ranked]] = {}
        self._best: list[Ranked] | None = None
        self.cutoff: float = math.inf

    def add(self, offer: Offer, score: Micros) -> None:
        """Take an offer into account."""
        query, ranked = self._query, Ranked(score, offer.head[0], offer)
        account = self._of_account.setdefault(offer.certificate.root, [])
        if len(account) >= query.per_account:
            # One with so many better ones of its account can never be chosen.
            if ranked > account[-1]:
                return
            del self._found[bisect_left(self._found, account.pop())]
        insort(account, ranked)
        insort(self._found, ranked)
        self._best = None
        if len(self._found) < query.least:
            return
        best = self.best()
        if len(best) >= query.most:
            self.cutoff = best[-1].score
        elif len(best) >= query.least:
            band = self._band()
            self.cutoff = max(band, best[query.least - 1].score)

    def best(self) -> list[Ranked]:
        """The picks among what was found."""
        if self._best is None:
            self._best = self._chosen()
        return self._best

    def _chosen(self) -> list[Ranked]:
        query, band = self._query, self._band()
        chosen: list[Ranked] = []
        for ranked in self._found[: query.most]:
            if len(chosen) >= query.least and ranked.score > band:
                break
            chosen.append(ranked)
        return chosen

    def _band(self) -> int:
        if not self._found:
            return 0
        best = self._found[0].score
        return best + best * self._query.band_ppm // PPM
