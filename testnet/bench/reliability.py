"""`bench reliability`: what a good record is worth in an auction, and how one without any begins.

Two owners at one price, one thought more reliable than the other; a newcomer among owners of long
standing; and one that has failed and comes back under new keys. What of it is real is said in
`testnet.bench.reputed`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median_high
from typing import Final

from p2pnode.matching.spread import NEWCOMER_IN
from protocol.errors import PeerFault
from protocol.scoring import check_auction
from protocol.units import Micros
from testnet.bench.report import Figures, Report, Table, at_least, at_most, machine
from testnet.bench.reputed import ASK, NET, NONE, History, Stall, Town, history_of
from testnet.world import run_seeded

BETTER_PPM: Final = 990_000
WORSE_PPM: Final = 900_000
FAILED: Final = 5
"""Times that the worse one has failed; or none, and its record is only short."""
ESTABLISHED: Final = 8
"""Owners of long standing beside a newcomer."""
DISGRACED: Final = History(failed=20)
KEYS: Final = 30
"""New ones of one who starts anew, all at once."""
CHEAPER_PERCENT: Final = 10
WINS_MIN: Final = 0.70
MEDIAN_MAX: Final = 40
WORST_MAX: Final = 400
DISCOUNT_MAX: Final = 35
ANEW_MAX: Final = 0.16
"""One auction in eight, and what chance adds in a few hundred."""
FAILING_MAX: Final = 0.05
"""Of keys that fail each lease they win: a few tries, then one auction in 64."""
AT_ONCE: Final = 12
"""Auctions in a row of which one that wins at once wins all."""
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliabilityWish:
    """How much to measure."""

    auctions: int
    newcomers: int
    seed: int


@dataclass(slots=True)
class Series:
    """Auctions in one town."""

    ppm: list[int] = field(default_factory=list)
    """What each owner is thought to be, by the renter's ledger."""
    winners: list[int] = field(default_factory=list)
    unverified: int = 0
    """Records by which another should have won."""

    def share(self, *owners: int) -> float:
        """Of the auctions, those that these have won."""
        return sum(winner in owners for winner in self.winners) / len(self.winners)


def run(wish: ReliabilityWish, say: Say) -> Report:
    """All of it."""
    better = Stall(history=history_of(BETTER_PPM))
    rivals = {
        "has failed": Stall(history=history_of(WORSE_PPM, failed=FAILED)),
        "has a short record": Stall(history=history_of(WORSE_PPM)),
    }
    duels = {}
    for name, worse in rivals.items():
        say(f"{wish.auctions} auctions, two owners at one price, of whom one {name}")
        duels[name] = series([better, worse], wish.auctions, wish.seed)
    say(f"{wish.newcomers} newcomers, each beside {ESTABLISHED} owners at the same price")
    took, waiting = first_wins(wish)
    discount = least_discount(wish.seed)
    auctions = wish.auctions // 2
    say(f"{auctions} auctions each with keys that start anew, {CHEAPER_PERCENT} % cheaper")
    cheap = Micros(ASK * (100 - CHEAPER_PERCENT) // 100)
    anew = {}
    for name, owners, fails in (
        ("a key that has failed", [Stall(history=DISGRACED, ask=cheap)], True),
        (f"{KEYS} new keys that serve", [Stall(history=NONE, ask=cheap)] * KEYS, False),
        (f"{KEYS} new keys that fail", [Stall(history=NONE, ask=cheap)] * KEYS, True),
    ):
        stalls = [better] * ESTABLISHED + owners
        anew[name] = series(stalls, auctions, wish.seed, is_served=not fails)
    return _report(wish, duels, anew, Waiting(took, waiting, discount))


@dataclass(frozen=True, slots=True)
class Waiting:
    """What newcomers met."""

    took: list[int]
    """Auctions of each to its first lease."""
    last: Series
    discount: int


def series(
    stalls: Sequence[Stall],
    auctions: int,
    seed: int,
    *,
    until: Callable[[int], bool] | None = None,
    is_served: bool = True,
) -> Series:
    """So many auctions in virtual time, or as many as it takes until this one has won.

    If it is not `is_served`, owners without anything good behind them fail what they win.
    """

    async def main() -> Series:
        town, found = Town(stalls, seed=seed), Series()
        found.ppm = [town.reliability_ppm(number) for number in range(len(stalls))]
        async with town.open():
            for _ in range(auctions):
                winner, won = await town.auction()
                found.winners.append(winner)
                try:
                    check_auction(won.record, NET)
                except PeerFault:
                    found.unverified += 1
                if not is_served and stalls[winner].history.good == 0:
                    town.fail(winner)
                if until is not None and until(winner):
                    break
        return found

    return run_seeded(seed, main)


def first_wins(wish: ReliabilityWish) -> tuple[list[int], Series]:
    """How many auctions each newcomer took to its first lease; at most twice the bound are held."""
    stalls = [Stall(history=history_of(BETTER_PPM))] * ESTABLISHED + [Stall(history=NONE)]
    took, last = [], Series()
    for number in range(wish.newcomers):
        seed = wish.seed + number
        last = series(stalls, 2 * WORST_MAX, seed, until=lambda winner: winner == ESTABLISHED)
        took.append(len(last.winners))
    return took, last


def least_discount(seed: int) -> int:
    """By how many percent a newcomer must be cheaper to win whenever it bids; 100 if never."""
    better = Stall(history=history_of(BETTER_PPM))
    for percent in range(100):
        cheap = Stall(history=NONE, ask=Micros(ASK * (100 - percent) // 100))
        found = series([better] * ESTABLISHED + [cheap], AT_ONCE, seed, until=_is_established)
        if not any(map(_is_established, found.winners)):
            return percent
    return 100


def _is_established(winner: int) -> bool:
    return winner < ESTABLISHED


def _report(
    wish: ReliabilityWish, duels: dict[str, Series], anew: dict[str, Series], waiting: Waiting
) -> Report:
    took = waiting.took
    fresh = {name: each.share(*range(ESTABLISHED, len(each.ppm))) for name, each in anew.items()}
    rows = [
        (f"{each.ppm[0]} against one that {name}", str(each.ppm[1]), f"{100 * each.share(0):.1f}")
        for name, each in duels.items()
    ]
    rows += [
        (f"{name}, {CHEAPER_PERCENT} % cheaper", str(anew[name].ppm[-1]), f"{100 * share:.1f}")
        for name, share in fresh.items()
    ]
    every = (*duels.values(), *anew.values(), waiting.last)
    figures: Figures = {
        **machine(),
        "auctions": wish.auctions,
        "newcomers": wish.newcomers,
        "established_ppm": waiting.last.ppm[0],
        "newcomer_ppm": waiting.last.ppm[-1],
        "first_lease_median": median_high(took),
        "first_lease_most": max(took),
        "discount_that_wins_at_once_percent": waiting.discount,
        "a_newcomer_is_tried_in_one_auction_of": NEWCOMER_IN,
    }
    limits = dict(zip(anew, (ANEW_MAX, ANEW_MAX, FAILING_MAX), strict=True))
    return Report(
        name="reliability",
        figures=figures,
        bars=(
            *(
                at_least(f"auctions won by 0.99 against 0.90 that {name}", each.share(0), WINS_MIN)
                for name, each in duels.items()
            ),
            at_most("auctions to a newcomer's first lease, median", median_high(took), MEDIAN_MAX),
            at_most("auctions to a newcomer's first lease, most", max(took), WORST_MAX),
            at_most("percent cheaper that wins at once", waiting.discount, DISCOUNT_MAX),
            *(
                at_most(f"auctions won by {name}, {CHEAPER_PERCENT} % cheaper", share, limits[name])
                for name, share in fresh.items()
            ),
            at_most("records that do not verify", sum(each.unverified for each in every), 0),
        ),
        table=Table(header=("OWNER", "RELIABILITY PPM", "WINS %"), rows=tuple(rows)),
    )
