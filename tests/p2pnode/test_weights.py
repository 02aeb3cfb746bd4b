"""What waiting and distance cost a renter ranks owners, rules none out, and is in the record."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from msgspec.structs import replace

from p2pnode.api.wanted_documents import Constraints
from p2pnode.auction_check import auction_document
from p2pnode.cli.run import order_of, run
from p2pnode.cli.wanted import money_of, worth_of
from p2pnode.config import Renting
from p2pnode.matching.book import Offer
from p2pnode.matching.columns import weights_in
from p2pnode.matching.judging import DOWN_KBIT_S_ASSUMED
from p2pnode.matching.order import Choice, Order
from p2pnode.matching.renter import Won
from p2pnode.wanted import choice_of
from protocol.advert import Host, TierAsk
from protocol.auction import Reply
from protocol.codec import encode
from protocol.errors import LocalFault
from protocol.scoring import PPM, Weights, check_auction
from protocol.units import Micros, MillisSpan
from tests import make
from tests.make_desk import HOUR, Clock, Owner, order, posting, renter

CHEAP, DEAR = Micros(300_000), Micros(400_000)
FAR_MS, NEAR_MS = 200, 10
GAP = 2 * 100_000 * 105 // 100
"""How much more the dear one is expected to cost: two GPUs for an hour, and for failure a twentieth
of it."""


@dataclass
class Distant(Owner):
    """An owner whose answers take this long."""

    rtt_ms: int = 0

    async def ask(self, kind: str, body: bytes, **asker: Any) -> Reply:
        await trio.sleep(self.rtt_ms / 1_000)
        return Reply(yes=b"") if kind == "ping" else await super().ask(kind, body, **asker)

    def offer(self) -> Offer:
        offer, price = super().offer(), self.by.ask
        assert price is not None
        asks = (TierAsk(tier="silver", micro_per_gpu_hour=price),)
        return dataclasses.replace(offer, advert=replace(offer.advert, tiers=asks))


def far_and_near() -> list[Owner]:
    return [
        Distant(10, Clock(), by=posting(ask=CHEAP), rtt_ms=FAR_MS),
        Distant(11, Clock(), by=posting(ask=DEAR), rtt_ms=NEAR_MS),
    ]


def wanted(choice: Choice, **changes: Any) -> Order:
    return order(choice=choice, weights=choice.weights(MillisSpan(0)), **changes)


async def rented(owners: list[Owner], by: Order) -> Won:
    async def remember(_taking: object) -> None:
        await trio.lowlevel.checkpoint()

    return await renter(owners, Clock()).rent(by, seal_job=lambda _offer: None, remember=remember)


@pytest.mark.parametrize("is_dear", [False, True])
async def test_a_dear_owner_that_is_near_wins_where_distance_costs_enough(
    is_dear: bool, autojump_clock: trio.abc.Clock
) -> None:
    even = GAP // (FAR_MS - NEAR_MS)
    choice = Choice(latency_micro_per_ms=Micros(even * 11 // 10 if is_dear else even * 9 // 10))
    won = await rented(far_and_near(), wanted(choice))
    assert won.bid.micro_per_gpu_hour == (DEAR if is_dear else CHEAP)
    assert {heard.judged.rtt_ms for heard in won.record.bids} == {FAR_MS, NEAR_MS}
    assert won.record.weights == choice.weights(MillisSpan(0))
    assert check_auction(won.record, make.NET) == won.record.chosen[-1]


async def test_without_a_value_the_cheap_one_wins_however_far_it_is(
    autojump_clock: trio.abc.Clock,
) -> None:
    assert (await rented(far_and_near(), wanted(Choice()))).bid.micro_per_gpu_hour == CHEAP


@pytest.mark.parametrize("is_dear", [False, True])
async def test_a_preferred_round_trip_ranks_and_rules_nobody_out(
    is_dear: bool, autojump_clock: trio.abc.Clock
) -> None:
    share = 40 if is_dear else 20  # the dear one costs a third more
    choice = Choice(prefer=(f"rtt=50ms:{share}%",))
    won = await rented(far_and_near(), wanted(choice))
    assert won.bid.micro_per_gpu_hour == (DEAR if is_dear else CHEAP)
    [far] = far_and_near()[:1]
    alone = await rented([far], wanted(choice, ask_max=CHEAP))
    assert alone.bid.micro_per_gpu_hour == CHEAP


@pytest.mark.parametrize("is_dear", [False, True])
async def test_a_dear_owner_that_has_the_data_sooner_wins_where_time_is_worth_it(
    is_dear: bool, autojump_clock: trio.abc.Clock
) -> None:
    class Slow(Owner):
        def offer(self) -> Offer:
            return _at(super().offer(), DOWN_KBIT_S_ASSUMED // 10)

    class Fast(Owner):
        def offer(self) -> Offer:
            return _at(super().offer(), DOWN_KBIT_S_ASSUMED * 10)

    owners = [Slow(10, Clock(), by=posting(ask=CHEAP)), Fast(11, Clock(), by=posting(ask=DEAR))]
    # Six minutes of loading for the slow one, which it is paid for; a hundredth for the other.
    data = DOWN_KBIT_S_ASSUMED // 10 * 360_000 // 8
    choice = Choice(delay_micro_per_hour=Micros(10 * GAP if is_dear else GAP // 10))
    won = await rented(owners, wanted(choice, bytes_to_move=data))
    assert {heard.judged.stage_ms for heard in won.record.bids} == {360_000, 3_600}
    assert won.bid.micro_per_gpu_hour == (DEAR if is_dear else CHEAP)


async def test_a_third_peer_reckons_with_the_weights_that_the_record_names(
    autojump_clock: trio.abc.Clock,
) -> None:
    won = await rented(far_and_near(), wanted(Choice(latency_micro_per_ms=Micros(GAP))))
    document = auction_document(encode(won.record), make.NET)
    assert document.is_by_the_rule
    assert [bid.latency_micro for bid in document.bids] == [GAP * NEAR_MS, GAP * FAR_MS]
    denied = auction_document(encode(replace(won.record, weights=Weights())), make.NET)
    assert denied.deviation is not None
    assert denied.deviation.rule == "auction.choice"


@pytest.mark.parametrize("is_dear", [False, True])
async def test_of_many_the_near_ones_are_asked_where_distance_costs(
    is_dear: bool, autojump_clock: trio.abc.Clock
) -> None:
    """A shortlist by price alone would hold none of the dear ones, however near they are."""
    far = [
        Distant(number, Clock(), by=posting(ask=Micros(CHEAP)), rtt_ms=FAR_MS)
        for number in range(20, 40)
    ]
    near = Distant(11, Clock(), by=posting(ask=DEAR), rtt_ms=NEAR_MS)
    choice = Choice(latency_micro_per_ms=Micros(GAP if is_dear else 0))
    won = await rented([*far, near], wanted(choice))
    assert (won.taking.owner == near.key.public) == is_dear


def test_weights_are_put_into_the_money_of_each_part_of_the_market() -> None:
    weights = Weights(
        delay_micro_per_hour=Micros(1_000_001),
        latency_micro_per_ms=Micros(300),
        redo_ms=MillisSpan(HOUR),
    )
    assert weights_in(weights, PPM) == weights
    assert weights_in(weights, 2 * PPM) == Weights(
        delay_micro_per_hour=Micros(500_000),
        latency_micro_per_ms=Micros(150),
        redo_ms=MillisSpan(HOUR),
    )


def typed(*words: str) -> dict[str, Any]:
    return run.make_context("run", [*words, "true"]).params


def test_what_is_typed_becomes_weights() -> None:
    given = typed("--value-of-time", "2 USD/h", "--value-of-rtt", "0.001 USD/ms")
    assert worth_of(given, "USD") == {
        "delay_micro_per_hour": 2_000_000,
        "latency_micro_per_ms": 1_000,
    }
    assert money_of(given) is None
    assert worth_of(typed(), "USD") == {}
    choice = choice_of(Constraints(), Renting(), "USD", worth=(2_000_000, 1_000))
    assert choice.weights(MillisSpan(7)) == Weights(
        delay_micro_per_hour=Micros(2_000_000),
        latency_micro_per_ms=Micros(1_000),
        redo_ms=MillisSpan(7),
    )


@pytest.mark.parametrize(
    "words",
    [
        ("--value-of-time", "2 USD"),
        ("--value-of-time", "2 USD/gpu-h"),
        ("--value-of-rtt", "2 USD/h"),
        ("--value-of-rtt", "dear"),
        ("--value-of-time", "2 USD/h", "--max-total", "1 EUR"),
        ("--value-of-rtt", "2 EUR/ms"),
    ],
)
def test_what_cannot_be_weighed_is_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(LocalFault):
        order_of("USD", typed(*words))


def test_no_weight_is_below_nothing() -> None:
    with pytest.raises(LocalFault, match="cannot be chosen by"):
        choice_of(Constraints(), Renting(), "USD", worth=(-1, 0))


def _at(offer: Offer, kbit: int) -> Offer:
    advert = replace(offer.advert, host=Host(down_kbit_s=kbit))
    return dataclasses.replace(offer, advert=advert)
