"""What an owner quotes for, and why not: the first reason that holds."""

from typing import Any

import pytest

from ledger.units_chain import Turn
from p2pnode.matching.provider import Posting
from p2pnode.matching.quoting import BID_LIFE_MS, No, Question, quote
from p2pnode.matching.room import LEAD_MS
from protocol.answers import check_answer
from protocol.auction import Bid, Rfq
from protocol.limits import OPEN_INTERVALS_SOFT_MAX
from protocol.units import Digest
from protocol.wire import pack, unpack
from tests import make
from tests.make import NET, NOW, UNITS
from tests.make_desk import HOUR, posting, quoted, shelf, turn

START, END = 1_000, 1_000 + HOUR
"""Of the lease that `make.rfq` asks for, from NOW on."""


def need(**changes: Any) -> Rfq:
    return make.rfq(need=make.need(**changes))


def test_a_bid_answers_what_was_asked() -> None:
    question = unpack(pack(make.rfq(), signer=make.RENTER, net=NET), NET, Rfq)
    bid = quote(
        Question(rfq=question.body, digest=question.digest, renter=question.signer),
        shelf=shelf(),
        posting=posting(),
        turn_of=lambda _unit: None,
        now=NOW,
    )
    assert isinstance(bid, Bid)
    check_answer(question, unpack(pack(bid, signer=make.FEED, net=NET), NET, Bid))
    assert bid.micro_per_gpu_hour == 390_000
    assert [(each.unit, each.ctr) for each in bid.units] == [(unit, 0) for unit in UNITS]
    assert (bid.issued_ms, bid.valid_until_ms) == (NOW, NOW + BID_LIFE_MS)


@pytest.mark.parametrize(
    ("rfq", "by", "reason"),
    [
        (make.rfq(), posting(ask=None), "CLOSED"),
        (make.rfq(tier="gold"), posting(tiers=("gold",)), None),
        (make.rfq(tier="gold"), posting(tiers=("silver",)), "POLICY"),
        (make.rfq(tier="bronze"), posting(tiers=("silver",)), "POLICY"),
        (make.rfq(money="EUR"), posting(), "POLICY"),
        (make.rfq(), posting(lease_ms_min=HOUR), None),
        (make.rfq(), posting(lease_ms_min=HOUR + 1), "POLICY"),
        (make.rfq(), posting(lease_ms_max=HOUR), None),
        (make.rfq(), posting(lease_ms_max=HOUR - 1), "POLICY"),
        (need(gpus=3), posting(), "SHAPE"),
        (need(vram_mib_min=24_564), posting(), None),
        (need(vram_mib_min=24_565), posting(), "SHAPE"),
        (need(regions=("FR", "DE")), posting(), None),
        (need(regions=("FR",)), posting(), "SHAPE"),
        (need(isolation_min="container"), posting(), None),
        (need(isolation_min="hardened"), posting(), "SHAPE"),
        (need(cpus_min=16), posting(), None),
        (need(cpus_min=17), posting(), "SHAPE"),
        (need(memory_mib_min=64_000), posting(), None),
        (need(memory_mib_min=64_001), posting(), "SHAPE"),
        (need(disk_mib_min=100_000), posting(), None),
        (need(disk_mib_min=100_001), posting(), "SHAPE"),
        (need(models=("H100", "RTX4090")), posting(), None),
        (need(models=("H100",)), posting(), "SHAPE"),
        (need(gpus=3, regions=("FR",)), posting(tiers=("bronze",)), "POLICY"),
    ],
)
def test_each_reason_against_a_bid_and_the_last_that_is_none(
    rfq: Rfq, by: Posting, reason: str | None
) -> None:
    answer = quoted(rfq, by=by)
    assert (answer.reason if isinstance(answer, No) else None) == reason


def test_what_is_on_no_shelf_is_not_offered() -> None:
    question = Question(rfq=make.rfq(), digest=Digest(bytes(32)), renter=make.RENTER.public)
    answer = quote(question, shelf=None, posting=posting(), turn_of=lambda _unit: None, now=NOW)
    assert isinstance(answer, No)
    assert answer.reason == "CLOSED"


def units_of(turns: dict[bytes, Turn], gpus: int = 1) -> list[tuple[bytes, int]] | str:
    answer = quoted(need(gpus=gpus), turns=turns)
    if isinstance(answer, No):
        return answer.reason
    return [(each.unit, each.ctr) for each in answer.units]


def test_the_first_units_that_are_free_are_given_with_their_next_counter() -> None:
    first, second = UNITS
    assert units_of({}) == [(first, 0)]
    assert units_of({first: turn(ctr=4)}) == [(first, 5)]
    assert units_of({first: turn((0, END + 9))}) == [(second, 0)]
    assert units_of({first: turn((0, END + 9))}, gpus=2) == "TAKEN"
    assert units_of({unit: turn((0, END + 9)) for unit in UNITS}) == "TAKEN"


@pytest.mark.parametrize(
    ("held", "free"),
    [
        ((0, START), True),
        ((0, START + 1), False),
        ((END, END + HOUR), True),
        ((END - 1, END + HOUR), False),
        ((START + 5, START + 6), False),
        ((START, END), False),
    ],
)
def test_a_lease_may_touch_another_but_not_overlap_it(held: tuple[int, int], free: bool) -> None:
    turns = {unit: turn(held) for unit in UNITS}
    assert units_of(turns) == ([(UNITS[0], 5)] if free else "TAKEN")


def test_a_unit_with_too_many_leases_to_come_gets_no_more() -> None:
    later = [(END + n * HOUR, END + n * HOUR + 1) for n in range(OPEN_INTERVALS_SOFT_MAX)]
    assert units_of({UNITS[0]: turn(*later[:-1])}) == [(UNITS[0], 5)]
    assert units_of({UNITS[0]: turn(*later)}) == [(UNITS[1], 0)]


@pytest.mark.parametrize(("asked", "given"), [(-5 * HOUR, LEAD_MS), (0, LEAD_MS), (HOUR, HOUR)])
def test_a_lease_starts_when_asked_or_as_soon_as_it_can_be_granted(asked: int, given: int) -> None:
    bid = quoted(make.rfq(start_ms=NOW + asked, end_ms=NOW + asked + HOUR))
    assert isinstance(bid, Bid)
    assert (bid.start_ms, bid.end_ms) == (NOW + given, NOW + given + HOUR)
