"""What a renter keeps of its auction shows anybody that it chose by the rule."""

from dataclasses import replace
from typing import Any

import pytest
import trio
from msgspec.structs import replace as with_fields

from p2pnode.matching.book import Offer
from p2pnode.matching.judging import HAZARD_PPM_PER_HOUR
from p2pnode.matching.renter import NoMatch, Renter, Taking, Won
from protocol.advert import TierAsk
from protocol.auction import Bid, Reply, Rfq
from protocol.errors import PeerFault
from protocol.offers import group_key
from protocol.scoring import PPM, UNWEIGHED, AuctionRecord, Weights, check_auction
from protocol.units import Micros, Millis, MillisSpan
from protocol.wire import pack, unpack
from tests import make
from tests.make import NET
from tests.make_desk import Clock, Owner, order, posting, renter, shelf


def owners_of(asks: list[int]) -> list[Owner]:
    clock = Clock()
    return [
        Owner(number, clock, by=posting(ask=Micros(ask))) for number, ask in enumerate(asks, 10)
    ]


def no_job(_offer: Offer) -> bytes | None:
    return None


async def remember(_taking: Taking) -> None:
    await trio.lowlevel.checkpoint()


async def rented(by: Renter, *, seal: Any = no_job, **changes: Any) -> Won:
    return await by.rent(order(**changes), seal_job=seal, remember=remember)


async def failed(by: Renter, **changes: Any) -> NoMatch:
    with pytest.raises(NoMatch) as caught:
        await rented(by, **changes)
    return caught.value


def asks_of(record: AuctionRecord) -> dict[int, int]:
    """Ask of each bid in the record, and its round."""
    bids = [(unpack(heard.bid, NET, Bid).body, heard.round) for heard in record.bids]
    return {bid.micro_per_gpu_hour: number for bid, number in bids}


async def test_the_cheapest_wins_and_the_record_shows_why(
    autojump_clock: trio.abc.Clock,
) -> None:
    owners = owners_of([500_000, 300_000, 400_000])
    won = await rented(renter(owners, Clock()))
    assert won.taking.owner == owners[1].key.public
    assert check_auction(won.record, NET) == unpack_bid_of(won)
    assert set(asks_of(won.record)) == {500_000, 300_000, 400_000}


OTHER_GROUP = bytes([7]) * 16
OTHER_UNITS = tuple(bytes([7, number]) * 8 for number in range(2))


class TwoGroups(Owner):
    """One with two groups, of which it shows the renter the one or the other."""

    shown: bytes = make.GROUP

    def __post_init__(self) -> None:
        super().__post_init__()
        self.desk._provider.stock((shelf(), shelf(group=OTHER_GROUP, units=OTHER_UNITS)))

    def offer(self) -> Offer:
        offer = super().offer()
        key = group_key(self.key.public, self.shown)
        return replace(
            offer,
            head=(key, *offer.head[1:]),
            advert=with_fields(offer.advert, group=self.shown),
        )


async def test_a_newcomer_is_taken_for_better_in_the_one_offer_that_is_tried(
    autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    one, other = TwoGroups(10, clock), TwoGroups(10, clock)
    other.shown = OTHER_GROUP
    by = renter([one, other, Owner(11, clock)], clock)
    monkeypatch.setattr(by, "_reliability_ppm", lambda o: 500_000 if o == one.key.public else PPM)
    monkeypatch.setattr(by._market, "newcomer", lambda _order, **_seed: other.offer())
    won = await rented(by)
    judged = {
        (rfq.body.owner, rfq.body.group): heard.judged.reliability_ppm
        for heard in won.record.bids
        for rfq in (unpack(heard.rfq, NET, Rfq),)
    }
    assert judged == {
        (one.key.public, make.GROUP): 500_000,
        (one.key.public, OTHER_GROUP): PPM,
        (make.signer(11).public, make.GROUP): PPM,
    }


class BronzeToo(Owner):
    """One whose advert has bronze beside silver."""

    def offer(self) -> Offer:
        offer = super().offer()
        tiers = tuple(
            TierAsk(tier=tier, micro_per_gpu_hour=self.by.ask_of(make.GROUP, tier) or Micros(0))
            for tier in self.by.tiers
        )
        return replace(offer, advert=with_fields(offer.advert, tiers=tiers))


async def test_bronze_goes_to_an_owner_that_has_not_taken_it_back_before(
    autojump_clock: trio.abc.Clock,
) -> None:
    cheap, other = (
        BronzeToo(number, Clock(), by=posting(ask=Micros(ask)))
        for number, ask in ((10, 400_000), (11, 420_000))
    )
    often = {cheap.key.public: 300_000}
    redone = Weights(redo_ms=MillisSpan(1_800_000))
    for tier, weights, wins in (
        ("bronze", redone, other),
        ("bronze", UNWEIGHED, cheap),
        ("silver", redone, cheap),
    ):
        here = renter([cheap, other], Clock(), hazards=often)
        won = await rented(here, tier=tier, weights=weights)
        assert won.taking.owner == wins.key.public
        assert check_auction(won.record, NET) == unpack_bid_of(won)
        assert {heard.judged.hazard_ppm_per_hour for heard in won.record.bids} == {
            300_000,
            HAZARD_PPM_PER_HOUR,
        }


def unpack_bid_of(won: Won) -> bytes:
    return next(
        bid.digest
        for bid in (unpack(heard.bid, NET, Bid) for heard in won.record.bids)
        if bid.body == won.bid
    )


async def test_bids_that_are_refused_then_are_in_the_record_in_their_order(
    autojump_clock: trio.abc.Clock,
) -> None:
    owners = owners_of([500_000, 300_000, 400_000])
    owners[1].taken = owners[2].taken = True
    won = await rented(renter(owners, Clock()))
    assert won.taking.owner == owners[0].key.public
    assert len(won.record.chosen) == 3
    assert len(won.record.refusals) == 2
    assert check_auction(won.record, NET) == unpack_bid_of(won)


async def test_a_second_round_begins_where_the_first_one_ended(
    autojump_clock: trio.abc.Clock,
) -> None:
    """Cheaper bids of a later round neither hide nor repeat those of an earlier one."""
    # Too far apart for the band of near-equals, whose order is drawn.
    owners = owners_of([500_000 + 100_000 * n for n in range(10)])
    for owner in owners[:9]:
        owner.taken = True
    won = await rented(renter(owners, Clock()))
    assert won.taking.owner == owners[9].key.public
    assert sorted(set(asks_of(won.record).values())) == [1, 2, 3]
    assert len(set(won.record.chosen)) == len(won.record.chosen) == len(won.record.bids)
    assert check_auction(won.record, NET) == unpack_bid_of(won)
    assert [owner.asked.count("lease.take") for owner in owners] == [1] * 10


async def test_an_auction_that_nobody_won_has_a_record_too(autojump_clock: trio.abc.Clock) -> None:
    owners = owners_of([300_000, 400_000])
    for owner in owners:
        owner.taken = True
    error = await failed(renter(owners, Clock()))
    assert str(error) == "0 of 2 offers: 2 taken"
    assert check_auction(error.record, NET) == error.record.chosen[-1]
    empty = await failed(renter([], Clock()))
    assert check_auction(empty.record, NET) is None


async def test_bids_beyond_the_limit_are_left_out(autojump_clock: trio.abc.Clock) -> None:
    owners = owners_of([400_000])
    error = await failed(renter(owners, Clock()), total_max=Micros(799_999))
    assert error.why == {"total": 1}
    assert error.record.bids == ()
    won = await rented(renter(owners, Clock()), total_max=Micros(800_000))
    assert won.bid.micro_per_gpu_hour == 400_000


@pytest.mark.parametrize(
    "lie",
    [
        Reply(yes=pack(make.bid(), signer=make.signer(10), net=NET)),
        Reply(yes=pack(make.rfq(), signer=make.signer(10), net=NET)),
        Reply(no=pack(make.refusal(), signer=make.signer(10), net=NET)),
        Reply(no=pack(make.refusal(), signer=make.STRANGER, net=NET)),
    ],
    ids=["bid", "kind", "refusal", "signer"],
)
async def test_an_answer_that_breaks_a_rule_is_counted_and_not_taken(
    lie: Reply, autojump_clock: trio.abc.Clock
) -> None:
    liar = Owner(10, Clock(), lie=lie)
    error = await failed(renter([liar], Clock()))
    assert error.why == {"invalid": 1}
    assert (error.record.bids, error.record.refusals) == ((), ())


async def test_a_renter_whose_clock_is_off_is_told_so(autojump_clock: trio.abc.Clock) -> None:
    error = await failed(renter(owners_of([400_000]), Clock(at=Millis(make.NOW - 5_001))))
    assert error.why == {"stale": 1}
    assert check_auction(error.record, NET) is None
    assert len(error.record.refusals) == 1


async def test_an_owner_to_whom_no_job_can_be_sealed_is_passed_over(
    autojump_clock: trio.abc.Clock,
) -> None:
    owners = owners_of([300_000, 400_000])

    def seal(offer: Offer) -> bytes | None:
        if offer.signer == owners[0].key.public:
            raise PeerFault("job.key")
        return None

    won = await rented(renter(owners, Clock()), seal=seal)
    assert won.taking.owner == owners[1].key.public
    assert len(won.record.chosen) == 2
    assert check_auction(won.record, NET) == unpack_bid_of(won)


async def test_an_offender_is_not_asked_and_the_reason_is_counted(
    autojump_clock: trio.abc.Clock,
) -> None:
    owners = owners_of([300_000, 400_000])
    cheapest = {owners[0].key.public: "proved: A4"}
    won = await rented(renter(owners, Clock(), barred=cheapest))
    assert won.taking.owner == owners[1].key.public
    assert owners[0].asked == []
    nobody = await failed(renter(owners[:1], Clock(), barred=cheapest))
    assert nobody.why == {"offender": 1}
