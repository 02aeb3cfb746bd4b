"""What an owner quotes for, and why not: the first reason that holds."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from ledger.units_chain import Turn
from p2pnode.matching.provider import Posting, stated_host
from p2pnode.matching.quoting import BID_LIFE_MS, No, Question, quote
from p2pnode.matching.room import LEAD_MS
from p2pnode.matching.shape import shortfall
from protocol.answers import ISOLATIONS, check_answer
from protocol.auction import Bid, Need, Rfq
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
        (need(driver_min=(570, 86)), posting(), None),
        (need(driver_min=(570, 86, 16)), posting(), "SHAPE"),
        (need(compute_min=(8, 9)), posting(), None),
        (need(compute_min=(9, 0)), posting(), "SHAPE"),
        (need(down_kbit_s_min=1), posting(), "SHAPE"),
        (need(down_kbit_s_min=500), posting(down_kbit_s=500), None),
        (need(up_kbit_s_min=501), posting(up_kbit_s=500), "SHAPE"),
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


@pytest.mark.parametrize("wanted", [{"driver_min": (1,)}, {"compute_min": (1, 0)}])
def test_what_an_owner_does_not_know_of_itself_meets_no_need(wanted: dict[str, Any]) -> None:
    answer = quoted(need(**wanted), of=shelf(driver="nouveau", compute=None))
    assert isinstance(answer, No)
    assert "does not know" in answer.detail


NEEDS: dict[str, st.SearchStrategy[object]] = {
    "gpus": st.integers(1, 4),
    "vram_mib_min": st.sampled_from([1, 24_564, 24_565]),
    "models": st.sampled_from([("4090",), ("H100",), ("A100", "RTX4090")]),
    "regions": st.sampled_from([("DE",), ("FR",), ("DE", "FR")]),
    "isolation_min": st.sampled_from(ISOLATIONS),
    "cpus_min": st.integers(15, 17),
    "memory_mib_min": st.integers(63_999, 64_001),
    "disk_mib_min": st.integers(99_999, 100_001),
    "down_kbit_s_min": st.integers(499, 501),
    "up_kbit_s_min": st.integers(499, 501),
    "driver_min": st.sampled_from([(535,), (570, 86, 15), (580,)]),
    "compute_min": st.sampled_from([(8, 0), (8, 9), (9, 0)]),
}


@given(st.fixed_dictionaries({}, optional=NEEDS), st.data())
def test_b1_relaxing_a_need_never_loses_an_owner(
    wanted: dict[str, Any], data: st.DataObject
) -> None:
    stated = data.draw(st.sampled_from([None, 500]))

    def lacks(changes: dict[str, Any]) -> str | None:
        asked = Need(**{"gpus": 1, "vram_mib_min": 1, **changes})
        return shortfall(asked, shelf(), posting(down_kbit_s=stated, up_kbit_s=500))

    name = data.draw(st.sampled_from(sorted(wanted) or ["gpus"]))
    relaxed = {key: value for key, value in wanted.items() if key != name}
    value = wanted.get(name)
    if isinstance(value, tuple) and name in {"models", "regions"} and data.draw(st.booleans()):
        relaxed[name] = (*value, "IT")
    elif isinstance(value, int) and value > 1 and data.draw(st.booleans()):
        relaxed[name] = value - 1
    if lacks(wanted) is None:
        assert lacks(relaxed) is None


def test_an_advert_states_of_the_host_what_is_known_and_nothing_else() -> None:
    full = stated_host(shelf(), posting(down_kbit_s=500))
    assert (full.cpus, full.driver, full.compute) == (16, "570.86.15", (8, 9))
    assert (full.down_kbit_s, full.up_kbit_s) == (500, UNSET)
    bare = stated_host(shelf(driver="", compute=None), posting(memory_mib=0))
    assert (bare.memory_mib, bare.driver, bare.compute) == (UNSET, UNSET, UNSET)
