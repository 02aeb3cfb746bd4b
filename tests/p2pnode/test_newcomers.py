"""How an owner without a record begins, and how little it gains who begins again and again."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from msgspec.structs import replace as with_fields

from p2pnode.matching.book import Book, Offer
from p2pnode.matching.judging import HAZARD_PPM_PER_HOUR
from p2pnode.matching.market import LOOKS_MAX, Market
from p2pnode.matching.order import Choice, Order, Renewal
from p2pnode.matching.spread import (
    NEWCOMER_BELOW_PPM,
    NEWCOMER_IN,
    PER_ACCOUNT_MAX,
    TRIED_KEPT,
    tries_newcomer,
)
from protocol.certificate import read_certificate
from protocol.scoring import check_auction, scored_bids
from protocol.units import Digest, Micros, PublicKey
from testnet.bench.offers import offer
from testnet.bench.reliability import series
from testnet.bench.reputed import (
    ASK,
    NET,
    NONE,
    ORDER,
    PERIODS_MAX,
    History,
    Stall,
    Town,
    history_of,
)
from testnet.world import run_seeded
from tests import make
from tests.make_desk import Clock

SEEDS = [number.to_bytes(16, "big") for number in range(4_096)]
TRIES = next(seed for seed in SEEDS if tries_newcomer(seed))
GOOD = Stall(history=history_of(990_000))
NEW = Stall(history=NONE)
CHEAP = Micros(ASK * 9 // 10)


def test_a_newcomer_is_tried_in_one_auction_of_eight_and_less_after_failures() -> None:
    counts = [sum(tries_newcomer(seed, failed) for seed in SEEDS) for failed in range(4)]
    for failed, count in enumerate(counts):
        wanted = len(SEEDS) / (NEWCOMER_IN << failed)
        assert 0.7 * wanted <= count <= 1.3 * wanted
    assert all(
        tries_newcomer(seed, n) for n in range(3) for seed in SEEDS if tries_newcomer(seed, n + 1)
    )
    assert counts[TRIED_KEPT] > 0  # never never


def in_town(stalls: list[Stall], look: Callable[[Town, Market], None]) -> None:
    """Look at the market as its renter sees it once all owners are heard of."""

    async def main() -> None:
        town = Town(stalls, seed=1)
        async with town.open():
            look(town, town.market)

    run_seeded(1, main)


def drawn(town: Town, market: Market, order: Order) -> set[int]:
    """Who is tried under some seed."""
    found = (market.newcomer(order, seed=seed) for seed in SEEDS)
    return {town.number_of(offer.signer) for offer in found if offer is not None}


def test_who_is_tried_has_a_clean_and_short_record() -> None:
    stalls = [
        GOOD,
        NEW,
        Stall(history=history_of(NEWCOMER_BELOW_PPM - 1_000)),
        Stall(history=history_of(NEWCOMER_BELOW_PPM)),
        Stall(history=History(failed=1)),
        Stall(history=History(good=2 * PERIODS_MAX, failed=5)),
    ]

    def look(town: Town, market: Market) -> None:
        assert drawn(town, market, town.order) == {1, 2}
        town.fail(1)
        assert drawn(town, market, town.order) == {2}

    in_town(stalls, look)


@pytest.mark.parametrize("wants", ["gold", "gold too", "reliability", "renewal", "another owner"])
def test_who_pays_for_certainty_tries_nobody(wants: str) -> None:
    def look(town: Town, market: Market) -> None:
        new = town.owners[1].signer.public
        order = {
            "gold": replace(town.order, tier="gold"),
            "gold too": replace(town.order, choice=Choice(or_tiers=("gold",))),
            "reliability": replace(town.order, choice=Choice(reliability_ppm_min=500_001)),
            "renewal": replace(town.order, renews=Renewal(lease=Digest(bytes(32)), owner=new)),
            "another owner": replace(town.order, avoid=(new,)),
        }[wants]
        assert drawn(town, market, town.order) == {1}
        assert drawn(town, market, order) == set()

    in_town([GOOD, NEW], look)


@pytest.mark.slow
def test_records_say_what_the_newcomer_was_taken_for_and_can_be_checked() -> None:
    async def main() -> None:
        town = Town([GOOD] * 5 + [NEW], seed=2)
        new, won = town.owners[5].signer.public, 0
        async with town.open():
            for _ in range(200):
                winner, auction = await town.auction()
                record = auction.record
                assert check_auction(record, NET) is not None
                bids = {bid.owner: bid.judged.reliability_ppm for bid in scored_bids(record, NET)}
                assert (new in bids) == tries_newcomer(record.seed)
                assert bids.get(new, town.reliability_ppm(0)) == town.reliability_ppm(0)
                won += winner == 5
        assert won > 0

    run_seeded(2, main)


@pytest.mark.slow
def test_a_better_record_wins_against_a_worse_at_one_price() -> None:
    for worse in (history_of(900_000, failed=5), history_of(900_000)):
        found = series([GOOD, Stall(history=worse)], 100, 3)
        assert found.ppm[0] >= 990_000
        assert 900_000 <= found.ppm[1] < 905_000
        assert found.share(0) >= 0.7
        assert found.unverified == 0


@pytest.mark.slow
def test_new_keys_of_one_that_fails_win_ever_less_and_its_old_key_nothing() -> None:
    keys = [Stall(history=NONE, ask=CHEAP)] * 8
    old = Stall(history=History(failed=20), ask=CHEAP)
    assert series([GOOD] * 4 + [old], 40, 4).share(4) == 0
    serve = series([GOOD] * 4 + keys, 120, 4)
    fail = series([GOOD] * 4 + keys, 120, 4, is_served=False)
    new = range(4, 12)
    assert 0 < serve.share(*new) <= 1.5 / NEWCOMER_IN
    assert fail.share(*new) < serve.share(*new)
    # Nobody is tried again that has failed.
    tried = [winner for winner in fail.winners if winner in new]
    assert len(set(tried)) == len(tried)


class AllHaveFailed:
    """Owners that all have failed before, of which it is noted who was asked about."""

    def __init__(self) -> None:
        self.asked: list[PublicKey] = []

    def reliability_ppm(self, _owner: PublicKey) -> int:
        return 100_000

    def hazard_ppm_per_hour(self, _owner: PublicKey) -> int:
        return HAZARD_PPM_PER_HOUR

    def is_clean(self, _owner: PublicKey) -> bool:
        return False

    def is_newcomer(self, owner: PublicKey) -> bool:
        self.asked.append(owner)
        return False

    def bars(self, _peer: PublicKey) -> str | None:
        return None


def market_of(thinks: AllHaveFailed) -> Market:
    return Market(
        Book(make.GENESIS, read=read_certificate),
        own=make.RENTER.public,
        thinks=thinks,
        lease=lambda _lease: None,
        clock=Clock(),
    )


def test_a_crowd_that_has_failed_costs_a_bounded_number_of_looks() -> None:
    thinks = AllHaveFailed()
    here = market_of(thinks)
    for number in range(LOOKS_MAX + 50):
        here.put(offer(number, {"silver": ASK + number}))
    order = replace(ORDER, money="TEST")
    assert len(here.shortlist(order, seed=SEEDS[0], but=set())) > 0
    assert here.newcomer(order, seed=TRIES) is None
    assert len(thinks.asked) == LOOKS_MAX


class OneIsNew(AllHaveFailed):
    def __init__(self, new: Offer) -> None:
        super().__init__()
        self._new = new

    def is_newcomer(self, owner: PublicKey) -> bool:
        return super().is_newcomer(owner) or owner == self._new.signer


@pytest.mark.parametrize("how", ["one account", "failed before"])
def test_a_crowd_of_cheaper_offers_does_not_hide_a_newcomer(how: str) -> None:
    new = offer(LOOKS_MAX + 50, {"silver": 2 * ASK})
    thinks = OneIsNew(new)
    here = market_of(thinks)
    crowd = [offer(number, {"silver": ASK + number}) for number in range(LOOKS_MAX + 50)]
    if how == "one account":
        root = make.signer(1).public
        crowd = [replace(o, certificate=with_fields(o.certificate, root=root)) for o in crowd]
    for each in (*crowd, new):
        here.put(each)
    avoid = tuple(each.signer for each in crowd) if how == "failed before" else ()
    order = replace(ORDER, money="TEST", avoid=avoid)
    assert here.newcomer(order, seed=TRIES) == new
    assert len(thinks.asked) <= PER_ACCOUNT_MAX + 1
