"""`bench conflict`: how often renters with old news run into each other.

A thousand owners with one GPU each, renters that come at random, and adverts that are heard only
some time later. Virtual time; the shortlist is the product's. An owner answers a question by what
is true then; a conflict is a first attempt that gave nothing: the lease request was refused, or
nobody who was asked had anything free. Beside it a renter that runs to the cheapest of all that it
has heard of.
"""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Final, Literal

from p2pnode.matching.book import Offer
from p2pnode.matching.columns import Columns, Query
from p2pnode.matching.rows import Opinion
from p2pnode.matching.search import Wish
from p2pnode.matching.spread import LEAST, PER_ACCOUNT_MAX, asked_of, band_for, count_for
from protocol.advert import ask_for
from protocol.lease import MS_PER_HOUR
from protocol.scoring import PPM, ranking
from protocol.units import Digest, Micros, MillisSpan
from testnet.bench.offers import NOW, drawn_ask, offer
from testnet.bench.report import Report, Table, at_most, machine

CONFLICTS_MAX: Final = 10.0
BUSY: Final = 0.7
"""Share of the owners that are leased, in the mean."""
RTT_S: Final = 0.15
ROUNDS: Final = 6
Rule = Literal["shipping", "argmin"]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictWish:
    """How much to simulate."""

    owners: int
    requests: int
    seed: int
    stale: tuple[float, ...] = (1.0, 4.0)
    """Requests for each age of the news; the bar is at the first."""


def run(wish: ConflictWish, say: Say) -> Report:
    """Both rules at each age of the news."""
    found: dict[tuple[float, Rule], Tally] = {}
    for stale in wish.stale:
        for rule in ("shipping", "argmin"):
            say(f"{wish.requests} requests, {stale:g} for each age of the news, {rule}")
            found[stale, rule] = Street(wish, stale, rule).run()
    first = wish.stale[0]
    shipping = found[first, "shipping"]
    cheapest = found[first, "argmin"].paid
    rows = tuple(
        (f"{stale:g}", rule, f"{tally.conflicts_percent:.2f}", f"{tally.attempts:.2f}",
         f"{tally.asked:.1f}", f"{100 * (tally.paid / found[stale, 'argmin'].paid - 1):+.2f}")
        for (stale, rule), tally in found.items()
    )  # fmt: skip
    return Report(
        name="conflict",
        figures={
            **machine(),
            "first_try_conflicts_percent": shipping.conflicts_percent,
            "first_try_conflicts_percent_argmin": found[first, "argmin"].conflicts_percent,
            "asked_that_were_taken_percent": shipping.stale_percent,
            "attempts": shipping.attempts,
            "price_over_argmin_percent": 100 * (shipping.paid / cheapest - 1),
        },
        bars=(
            at_most(
                f"first-try conflicts at {first:g} request for each age of the news, percent",
                shipping.conflicts_percent,
                CONFLICTS_MAX,
            ),
        ),
        table=Table(
            header=("STALE", "RULE", "CONFLICTS %", "ATTEMPTS", "ASKED", "PRICE %"), rows=rows
        ),
    )


@dataclass(slots=True)
class Tally:
    """What became of the requests that count."""

    requests: int = 0
    conflicts: int = 0
    tries: int = 0
    questions: int = 0
    in_vain: int = 0
    """Questions to owners that were leased already."""
    leases: int = 0
    sum_micro: int = 0

    @property
    def conflicts_percent(self) -> float:
        """First attempts that gave nothing."""
        return 100 * self.conflicts / self.requests

    @property
    def stale_percent(self) -> float:
        """Questions in vain."""
        return 100 * self.in_vain / self.questions

    @property
    def attempts(self) -> float:
        """For each lease."""
        return self.tries / max(1, self.leases)

    @property
    def asked(self) -> float:
        """Owners for each attempt."""
        return self.questions / max(1, self.tries)

    @property
    def paid(self) -> float:
        """In the mean, an hour."""
        return self.sum_micro / max(1, self.leases)


@dataclass(slots=True)
class Search:
    """One renter on its way to a lease."""

    number: int
    is_counted: bool
    tries: int = 0
    asked: set[bytes] = field(default_factory=set)
    left: list[int] = field(default_factory=list)
    """Owners that have bid in this round, best first."""


class Street:
    """Owners, renters, and news on its way; time goes from event to event."""

    def __init__(self, wish: ConflictWish, stale: float, rule: Rule) -> None:
        dice = self._dice = random.Random(wish.seed)  # noqa: S311  dice are only dice
        self._rule: Rule = rule
        self._news_s = stale  # at one request a second
        self._stale_ppm = round(stale * PPM)
        self._lease_s = BUSY * wish.owners
        self._requests = 2 * wish.requests
        self._skipped = wish.requests
        asks = [drawn_ask(dice) for _ in range(wish.owners)]
        self._free = [offer(n, {"silver": ask}) for n, ask in enumerate(asks)]
        self._taken = [offer(n, {"silver": ask}, free=0) for n, ask in enumerate(asks)]
        self._columns = Columns(lambda _offer: Opinion(reliability_ppm=PPM))
        for each in self._free:
            self._columns.put(each)
        self._is_taken = [False] * wish.owners
        self._news: deque[tuple[float, Offer]] = deque()
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._numbers = count()
        self._tally = Tally()

    def run(self) -> Tally:
        """Until the last request has its lease, or has given up."""
        at = 0.0
        for number in range(self._requests):
            at += self._dice.expovariate(1)
            search = Search(number=number, is_counted=number >= self._skipped)
            self._later(at, partial(self._ask, search=search))
        while self._events:
            now, _, act = heappop(self._events)
            act(now)
        return self._tally

    def _later(self, at: float, act: Callable[[float], None]) -> None:
        heappush(self._events, (at, next(self._numbers), act))

    def _ask(self, now: float, search: Search) -> None:
        """Shortlist by old news, and put the questions on their way."""
        while self._news and self._news[0][0] <= now - self._news_s:
            self._columns.put(self._news.popleft()[1])
        asked = self._shortlist(search)
        search.asked.update(each.head[0] for each in asked)
        self._later(now + RTT_S / 2, lambda now: self._answer(now, search, asked))

    def _shortlist(self, search: Search) -> list[Offer]:
        is_shipping = self._rule == "shipping"
        query = Query(
            wish=Wish(gpus=1),
            span_ms=MillisSpan(MS_PER_HOUR),
            now=NOW,
            band_ppm=band_for(self._stale_ppm) if is_shipping else 0,
            least=LEAST if is_shipping else 1,
            most=count_for(self._stale_ppm) if is_shipping else 1,
            per_account=PER_ACCOUNT_MAX,
        )
        found = self._columns.best(query, fits=lambda each: each.head[0] not in search.asked)
        return asked_of(found, seed=self._dice.randbytes(16))

    def _answer(self, now: float, search: Search, asked: list[Offer]) -> None:
        """The owners answer by what is so, and the renter ranks the bids."""
        bids: list[tuple[Digest, Micros]] = []
        for each in asked:
            if not self._is_taken[_number(each.head[0])]:
                price = ask_for(each.advert, "silver")
                assert price is not None
                bids.append((Digest(each.head[0]), Micros(price)))
        if search.is_counted:
            self._tally.questions += len(asked)
            self._tally.in_vain += len(asked) - len(bids)
        search.left = [_number(key) for key in ranking(bids, self._dice.randbytes(16))]
        self._later(now + RTT_S, lambda now: self._take(now, search))

    def _take(self, now: float, search: Search) -> None:
        """The next lease request reaches its owner; or all were in vain."""
        owner = search.left.pop(0) if search.left else None
        is_won = owner is not None and not self._is_taken[owner]
        search.tries += 1
        if search.is_counted:
            self._count(search, owner if is_won else None)
        if owner is not None and is_won:
            self._is_taken[owner] = True
            self._news.append((now, self._taken[owner]))
            lasts = self._dice.expovariate(1 / self._lease_s)
            self._later(now + lasts, lambda now: self._end(now, owner))
        elif search.left:
            self._later(now + RTT_S, lambda now: self._take(now, search))
        elif search.tries < ROUNDS * LEAST:
            self._ask(now + RTT_S / 2, search)

    def _count(self, search: Search, won: int | None) -> None:
        tally = self._tally
        tally.tries += 1
        if search.tries == 1:
            tally.requests += 1
            tally.conflicts += won is None
        if won is not None:
            tally.leases += 1
            tally.sum_micro += ask_for(self._free[won].advert, "silver") or 0

    def _end(self, now: float, owner: int) -> None:
        self._is_taken[owner] = False
        self._news.append((now, self._free[owner]))


def _number(key: bytes) -> int:
    return int.from_bytes(key, "big")
