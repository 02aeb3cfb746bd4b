"""Which places a job on several nodes asks for: the best set, by the rule of a single job."""

import dataclasses
import itertools
import random
from pathlib import Path

import pytest
import trio
from msgspec import UNSET
from msgspec.structs import replace

from p2pnode.auction_check import pool_document
from p2pnode.matching.order import Choice
from p2pnode.matching.pool_failures import LEFT_OUT_MS, Failures
from p2pnode.matching.pooling import NoPool, Pool
from p2pnode.network.memory_transport import MemoryHub
from protocol.advert import Advert
from protocol.errors import LocalFault
from protocol.lease import LeaseRequest
from protocol.limits import POOL_OFFERS_MAX, POOL_TRIES_MAX
from protocol.pool import check_pool
from protocol.units import Micros, Millis, MillisSpan
from protocol.wire import unpack
from tests import make
from tests.make import NET
from tests.make_node import LISTED_S, Party
from tests.make_pools import GPUS, Holder, pooled, pooling, random_holders, wanted
from tests.p2pnode.test_pools import ended, submit


async def test_the_nodes_are_the_best_of_all_sets_of_places_or_one_account_at_a_tenth_more(
    autojump_clock: trio.abc.Clock,
) -> None:
    dice, single = random.Random(2), 0
    for _ in range(150):
        holders, nodes = random_holders(dice), dice.randint(2, 4)
        found = await pooled(pooling(holders), nodes)
        places = [each for each in holders for _ in range(each.free // GPUS)]
        if len(places) < nodes:
            assert str(found) == f"{len(places)} of {nodes} nodes fit at once" + (
                f"; {free} GPUs are free, but in pieces of fewer than {GPUS}"
                if (free := sum(each.free for each in holders)) >= nodes * GPUS
                else ""
            )
            continue
        assert isinstance(found, Pool)
        taken = [next(h for h in holders if h.feed == owner) for owner in _owners(found)]
        cost = sum(each.ask for each in taken)
        all_sets = list(itertools.combinations(places, nodes))
        least = min(sum(each.ask for each in some) for some in all_sets)
        of_one = [
            sum(each.ask for each in some)
            for some in all_sets
            if len({each.root or each.number for each in some}) == 1
        ]
        if of_one and min(of_one) * 10 <= least * 11:
            single += 1
            assert len({each.root or each.number for each in taken}) == 1
            assert cost == min(of_one)
        else:
            assert cost == least
    assert 20 < single < 130


async def test_an_owner_that_did_not_hold_is_left_out_of_the_next_try(
    autojump_clock: trio.abc.Clock,
) -> None:
    holders = [Holder(number=n, ask=300_000 + n) for n in range(10, 15)]
    holders[1].does = "refuse"
    found = await pooled(pooling(holders), 3)
    assert isinstance(found, Pool)
    assert len(found.record.tries) == 2
    assert holders[1].feed not in _owners(found)
    # To leave it out from the beginning would have been another choice.
    skipped = replace(found.record, tries=found.record.tries[1:])
    assert pool_document(skipped, NET).deviation is not None
    # What was held in vain was let go at once.
    held = [asked for asked in found.record.tries[0] if asked.bid is not UNSET]
    assert sum(each.dropped for each in holders) == len(held)


@pytest.mark.parametrize("does", ["refuse", "be silent", "not hold", "lie"])
async def test_owners_that_hold_nothing_do_not_stop_a_job_for_good(
    autojump_clock: trio.abc.Clock, does: str
) -> None:
    bad = [Holder(number=n, ask=200_000, does=does) for n in range(10, 10 + POOL_TRIES_MAX)]
    good = [Holder(number=n, ask=300_000) for n in (20, 21)]
    by, failures = pooling([*bad, *good]), Failures()
    assert isinstance(await pooled(by, 2, failures=failures), NoPool)
    found = await pooled(by, 2, failures=failures)
    assert isinstance(found, Pool)
    assert _owners(found) == sorted(each.feed for each in good)
    assert check_pool(found.record, NET) == found.record.chosen


async def test_an_owner_that_holds_and_never_grants_is_left_out_next_time(
    autojump_clock: trio.abc.Clock,
) -> None:
    holders = [Holder(number=n, ask=300_000 + n) for n in range(10, 14)]
    by, failures = pooling(holders), Failures()
    for owners in (holders[:2], holders[2:], holders[:2]):
        # Nobody grants here: those that failed longest ago come again where no others are left.
        found = await pooled(by, 2, failures=failures)
        assert isinstance(found, Pool)
        assert _owners(found) == sorted(each.feed for each in owners)
        with pytest.raises(NoPool, match="0 of 2 nodes were granted"):
            await by.take(list(found.takings), failures)


async def test_who_failed_is_asked_where_the_others_are_above_the_limit(
    autojump_clock: trio.abc.Clock,
) -> None:
    cheap = [Holder(number=n, ask=300_000) for n in (10, 11)]
    dear = [Holder(number=n, ask=400_000) for n in (12, 13)]
    by, failures = pooling([*cheap, *dear]), Failures()
    failures.note(cheap[0].feed, make.NOW)
    # Two nodes with two GPUs each for an hour.
    limited = wanted(total_max=Micros(2 * GPUS * 310_000))
    found = await pooled(by, 2, limited, failures)
    assert isinstance(found, Pool)
    assert _owners(found) == sorted(each.feed for each in cheap)
    found = await pooled(by, 2, None, failures)
    assert isinstance(found, Pool)
    assert cheap[0].feed not in _owners(found)


def test_a_failure_counts_for_some_minutes_and_the_oldest_are_forgotten_first() -> None:
    failures, owners = Failures(), [make.signer(n).public for n in range(10, 13)]
    for at, owner in enumerate(owners):
        failures.note(owner, Millis(make.NOW + at))
    failures.note(owners[0], Millis(make.NOW + 3))
    soon, later = Millis(make.NOW + 4), Millis(make.NOW + LEFT_OUT_MS + 2)
    assert list(failures.left_out(soon)) == [
        {owners[0], owners[1], owners[2]}, {owners[0], owners[2]}, {owners[0]}, set()
    ]  # fmt: skip
    assert list(failures.left_out(later)) == [{owners[0]}, set()]


async def test_owners_that_bid_far_more_than_they_advertise_do_not_win_by_it(
    autojump_clock: trio.abc.Clock,
) -> None:
    baits = [Holder(number=n, ask=200_000, bids=900_000) for n in (10, 11)]
    fair = [Holder(number=n, ask=300_000) for n in (12, 13)]
    found = await pooled(pooling([*baits, *fair]), 2)
    assert isinstance(found, Pool)
    assert _owners(found) == sorted(each.feed for each in fair)
    assert check_pool(found.record, NET) == found.record.chosen
    # Each stood for a try; what it bid is not kept, as nothing was held for the price it named.
    assert [len(each) for each in found.record.tries] == [1, 1, 2]
    assert all(each.bid is UNSET for tried in found.record.tries[:2] for each in tried)


async def test_the_last_try_is_not_settled_at_any_price(autojump_clock: trio.abc.Clock) -> None:
    baits = [Holder(number=n, ask=10, bids=10_000) for n in range(10, 20)]
    by, failures = pooling(baits), Failures()
    for _ in range(len(baits)):
        none = await pooled(by, 2, failures=failures)
        assert isinstance(none, NoPool)
        assert "it bids more than its advert" in str(none)
        assert none.record is not None
        assert check_pool(none.record, NET) == ()
    # A surcharge for so many GPUs is part of what is advertised.
    near = [Holder(number=n, ask=300_000, bids=330_000, surcharge_ppm=100_000) for n in (10, 11)]
    assert isinstance(await pooled(pooling(near), 2), Pool)
    over = [dataclasses.replace(each, bids=330_001) for each in near]
    assert isinstance(await pooled(pooling(over), 2), NoPool)


async def test_limits_are_held_against_the_price_of_all_gpus_of_a_node(
    autojump_clock: trio.abc.Clock,
) -> None:
    """What one GPU alone would cost is no part of it."""
    holders = [Holder(number=n, ask=300_000, alone_ppm=500_000) for n in (10, 11)]
    assert isinstance(await pooled(pooling(holders), 2, wanted(ask_max=Micros(300_000))), Pool)
    below = await pooled(pooling(holders), 2, wanted(ask_max=Micros(299_999)))
    assert str(below).startswith("0 of 2 nodes fit at once")


async def test_gold_is_no_tier_of_a_pool(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    party = Party(tmp_path, nursery, MemoryHub())
    renter = await party.add(ask=None, gossip="auto")
    for changes in ({"tier": "gold"}, {"choice": Choice(or_tiers=("gold",))}):
        with pytest.raises(LocalFault, match="gold") as told:
            submit(renter.node, 2, **changes)
        assert told.value.cure == "--tier silver"
    assert renter.node.pools.files() == []


async def test_reliability_and_preferences_count_as_for_a_single_job(
    autojump_clock: trio.abc.Clock,
) -> None:
    cheap = [Holder(number=n, ask=300_000) for n in (10, 11)]
    dear = [Holder(number=n, ask=360_000) for n in (12, 13)]
    everyone = [*cheap, *dear]
    found = await pooled(pooling(everyone), 2)
    assert isinstance(found, Pool)
    assert set(_owners(found)) == {each.feed for each in cheap}
    doubted = {each.feed: 500_000 for each in cheap}
    found = await pooled(pooling(everyone, reliability=doubted), 2)
    assert isinstance(found, Pool)
    assert set(_owners(found)) == {each.feed for each in dear}
    rtts = {each.feed: 200 if each in cheap else 5 for each in everyone}
    near = Choice(latency_micro_per_ms=Micros(1_000))
    asked = wanted(choice=near, weights=near.weights(MillisSpan(0)))
    found = await pooled(pooling(everyone, rtts=rtts), 2, asked)
    assert isinstance(found, Pool)
    assert set(_owners(found)) == {each.feed for each in dear}
    assert check_pool(found.record, NET) == found.record.chosen
    preferred = wanted(choice=Choice(prefer=("rtt=50ms:30%",)))
    found = await pooled(pooling(everyone, rtts=rtts), 2, preferred)
    assert isinstance(found, Pool)
    assert set(_owners(found)) == {each.feed for each in dear}


async def test_an_owner_is_not_near_by_being_unknown(autojump_clock: trio.abc.Clock) -> None:
    known = [Holder(number=n, ask=300_000) for n in (10, 11)]
    unknown = [Holder(number=n, ask=300_000) for n in (12, 13)]
    near = Choice(latency_micro_per_ms=Micros(1_000))
    asked = wanted(choice=near, weights=near.weights(MillisSpan(0)))
    rtts = {each.feed: 20 for each in known}
    found = await pooled(pooling([*known, *unknown], rtts=rtts), 2, asked)
    assert isinstance(found, Pool)
    assert set(_owners(found)) == {each.feed for each in known}
    # What a coordinate says counts where nothing was measured, and a measurement counts first.
    seem_us = {each.feed: 5_000 for each in unknown} | {each.feed: 1_000 for each in known}
    by = pooling([*known, *unknown], rtts=rtts, seem_us=seem_us)
    found = await pooled(by, 2, asked)
    assert isinstance(found, Pool)
    assert set(_owners(found)) == {each.feed for each in unknown}
    thought = {unpack(each.advert, NET, Advert).signer: each.judged for each in found.record.offers}
    assert {thought[each.feed].rtt_ms for each in unknown} == {5}
    assert {thought[each.feed].rtt_ms for each in known} == {20}


async def test_who_was_asked_for_a_hold_has_been_measured(autojump_clock: trio.abc.Clock) -> None:
    holders = [Holder(number=n, ask=300_000, takes_s=0.25) for n in (10, 11)]
    by = pooling(holders)
    assert isinstance(await pooled(by, 2), Pool)
    found = await pooled(by, 2)
    assert isinstance(found, Pool)
    assert [each.judged.rtt_ms for each in found.record.offers] == [250, 250]


async def test_of_more_offers_than_a_record_holds_the_same_are_chosen(
    autojump_clock: trio.abc.Clock,
) -> None:
    """One account's places lie far behind, and are within a tenth of the cheapest."""
    dice = random.Random(4)
    many = [Holder(number=n, ask=dice.randrange(300_000, 301_000)) for n in range(100, 180)]
    one = [Holder(number=n, root=50, ask=320_000) for n in (10, 11, 12)]
    found = await pooled(pooling([*many, *one]), 3)
    assert isinstance(found, Pool)
    assert len(found.record.offers) == POOL_OFFERS_MAX
    assert _owners(found) == sorted(each.feed for each in one)
    assert check_pool(found.record, NET) == found.record.chosen


async def test_owners_in_other_money_are_taken_at_the_pinned_rate_and_else_not(
    autojump_clock: trio.abc.Clock,
) -> None:
    ours = Holder(number=10, ask=300_000)
    euros = [Holder(number=n, ask=250_000, money="EUR") for n in (11, 12)]
    none = await pooled(pooling([ours, *euros]), 2)
    assert isinstance(none, NoPool)
    assert str(none) == "1 of 2 nodes fit at once"
    at_one = Choice(rates=(("EUR", Micros(1_100_000)),))
    found = await pooled(pooling([ours, *euros]), 2, wanted(choice=at_one))
    assert isinstance(found, Pool)
    assert set(_owners(found)) == {each.feed for each in euros}
    assert check_pool(found.record, NET) == found.record.chosen
    # 0.50 TEST an hour each, and so dearer than ours: one of them is taken, in its own money.
    dear = Choice(rates=(("EUR", Micros(2_000_000)),))
    found = await pooled(pooling([ours, *euros]), 2, wanted(choice=dear))
    assert isinstance(found, Pool)
    requests = [unpack(each.request, NET, LeaseRequest).body for each in found.takings]
    assert sorted(request.money for request in requests) == ["EUR", "TEST"]
    # Limits are in the renter's money: four GPU-hours, at 0.30 and 0.50 for each two.
    low = wanted(choice=dear, total_max=Micros(1_599_999))
    assert "over the limit" in str(await pooled(pooling([ours, *euros]), 2, low))
    fair = wanted(choice=dear, total_max=Micros(1_600_000))
    assert isinstance(await pooled(pooling([ours, *euros]), 2, fair), Pool)


async def test_any_of_several_tiers_is_taken_at_the_cheapest(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    party = Party(tmp_path, nursery, MemoryHub())
    owners = [await party.add(ask=ask) for ask in (300_000, 310_000)]
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    pool = submit(renter.node, 2, choice=Choice(or_tiers=("bronze",)))
    assert await ended(renter, pool) == "done"
    leases = [owner.node.books.leases()[0].request for owner in owners]
    assert {lease.tier for lease in leases} == {"bronze"}


def _owners(pool: Pool) -> list[bytes]:
    return [taking.owner for taking in pool.takings]
