"""What an owner adds for awkward shapes: in whole numbers, never below zero, and in its advert."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.matching.surcharge import (
    STRENGTH_PPM,
    WHOLE,
    Room,
    Shape,
    fragment,
    places_in,
    surcharge_ppm,
    surcharges,
)
from protocol.advert import check_advert, price_for
from protocol.certificate import read_certificate
from protocol.units import Micros
from tests import make

ONES = (Shape(gpus=1),)
MIXED = (Shape(gpus=1, weight=3), Shape(gpus=4))

shapes = st.builds(
    Shape,
    gpus=st.integers(2, 8) | st.just(1),
    cpus_milli=st.integers(0, 64_000),
    memory_mib=st.integers(0, 512_000),
    weight=st.integers(1, 1_000),
) | st.builds(
    Shape,
    gpus=st.just(1),
    milli=st.integers(1, WHOLE - 1),
    cpus_milli=st.integers(0, 64_000),
    weight=st.integers(1, 1_000),
)
rooms = st.builds(
    Room,
    gpus=st.lists(st.just(WHOLE) | st.integers(0, WHOLE), max_size=8).map(tuple),
    cpus_milli=st.integers(0, 128_000),
    memory_mib=st.integers(0, 1_000_000),
)


def room(*gpus: int, cpus: int = 32_000) -> Room:
    return Room(gpus=gpus, cpus_milli=cpus, memory_mib=256_000)


def test_what_the_next_request_cannot_use_is_the_fragment() -> None:
    assert fragment(room(WHOLE, WHOLE), ONES) == 0
    assert fragment(room(WHOLE, 400), ONES) == 400
    assert fragment(room(WHOLE, WHOLE, cpus=0), (Shape(gpus=1, cpus_milli=1_000),)) == 2 * WHOLE
    # Three of four requests use any GPU, one needs four of them.
    assert fragment(room(*(WHOLE,) * 4), MIXED) == 0
    assert fragment(room(*(WHOLE,) * 3), MIXED) == 3 * WHOLE


def test_a_job_pays_for_the_pieces_that_it_leaves() -> None:
    """Of four GPUs one is taken: three are left that no request for four can use."""
    assert surcharge_ppm(room(*(WHOLE,) * 4), Shape(gpus=1), MIXED) == 3 * 1_000_000 // 4
    assert surcharge_ppm(room(*(WHOLE,) * 4), Shape(gpus=4), MIXED) == 0
    assert surcharge_ppm(room(*(WHOLE,) * 3), Shape(gpus=1), MIXED) == 0
    assert surcharge_ppm(room(*(WHOLE,) * 3), Shape(gpus=4), MIXED) is None


def test_a_part_of_a_gpu_goes_where_it_harms_least() -> None:
    half = Shape(gpus=1, milli=500)
    assert surcharge_ppm(room(WHOLE, 500), half, ONES) == 0
    assert surcharge_ppm(room(WHOLE, WHOLE), half, ONES) == 1_000_000
    assert len(places_in(room(WHOLE, 500, 499), half)) == 2


@given(there=rooms, job=shapes, usual=st.lists(shapes, min_size=1, max_size=5))
def test_nothing_is_taken_off_and_what_fits_has_a_price(
    there: Room, job: Shape, usual: list[Shape]
) -> None:
    added = surcharge_ppm(there, job, usual)
    ways = places_in(there, job)
    assert (added is None) == (not ways)
    assert added is None or added >= 0
    for left in ways:
        assert sum(there.gpus) - sum(left.gpus) == job.demand
        assert min(left.gpus) >= 0


@given(free=st.integers(0, 12), usual=st.lists(shapes, min_size=1, max_size=5))
def test_an_advert_can_carry_the_surcharges_and_says_the_same_prices(
    free: int, usual: list[Shape]
) -> None:
    steps = surcharges(free, usual)
    advert = make.advert(units=12, free=free, **({"surcharges": steps} if steps else {}))
    check_advert(
        advert,
        signer=make.FEED.public,
        genesis=make.GENESIS,
        net=make.NET,
        now=make.NOW,
        read=read_certificate,
    )
    plain = [Shape(gpus=s.gpus, milli=s.milli, weight=s.weight) for s in usual]
    bare = Room(gpus=(WHOLE,) * free, cpus_milli=0, memory_mib=0)
    for gpus in range(1, min(free, 8) + 1):
        added = surcharge_ppm(bare, Shape(gpus=gpus), plain)
        assert added is not None
        assert price_for(advert, "silver", gpus) == Micros(-(-400_000 * (10**6 + added) // 10**6))


@pytest.mark.parametrize("strength", [0, STRENGTH_PPM // 2])
def test_an_owner_chooses_how_much_pieces_weigh(strength: int) -> None:
    there = room(*(WHOLE,) * 4)
    added = surcharge_ppm(there, Shape(gpus=1), MIXED, strength_ppm=strength)
    assert added == 3 * strength // 4
