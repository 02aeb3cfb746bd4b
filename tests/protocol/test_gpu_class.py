"""Which class a card is in, and which topic carries it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.advert import gpu_class_of
from protocol.gpu_class import CLASSES, REGION_GROUPS, gpu_class, group_of, topic_index
from protocol.units import Mebibytes
from tests.make import advert

COUNTRIES = [a + b for a in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" for b in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"]


@pytest.mark.parametrize(("card", "vram_mib", "of"), [
    ("RTX 4090", 24_564, 24), ("H100", 81_559, 80), ("H200", 143_771, 141),
    ("B200", 183_359, 180), ("RTX 3060", 12_288, 12), ("RTX 3070", 8_192, 8),
    ("RTX 4080", 16_376, 16), ("RTX 5090", 32_607, 32), ("L40S", 46_068, 48),
    ("A100 80GB", 81_920, 80), ("H100 NVL", 95_830, 96), ("GTX 1060", 6_144, 0), ("none", 0, 0),
])  # fmt: skip
def test_real_cards_are_in_the_class_of_their_name(card: str, vram_mib: int, of: int) -> None:
    assert gpu_class(Mebibytes(vram_mib)) == of, card


@pytest.mark.parametrize("of", CLASSES[1:])
def test_three_percent_too_little_is_enough_and_no_more(of: int) -> None:
    least = -(-of * 10**9 * 100 // (2**20 * 103))
    assert gpu_class(Mebibytes(least)) == of
    assert gpu_class(Mebibytes(least - 1)) < of


@given(less=st.integers(0, 2**40), more=st.integers(0, 2**40))
def test_more_vram_is_never_in_a_lower_class(less: int, more: int) -> None:
    assert gpu_class(Mebibytes(less)) <= gpu_class(Mebibytes(less + more))


def test_the_class_of_an_advert_is_that_of_each_of_its_units() -> None:
    assert gpu_class_of(advert(units=8, vram_mib=12_288)) == 12


def test_with_a_topic_for_each_pair_no_two_pairs_share_one() -> None:
    regions = {group: next(c for c in COUNTRIES if group_of(c) == group) for group in REGION_GROUPS}
    count = len(CLASSES) * len(REGION_GROUPS)
    found = [topic_index(of, region, topics=count) for of in CLASSES for region in regions.values()]
    assert sorted(found) == list(range(count))


@given(of=st.sampled_from(CLASSES), region=st.sampled_from(COUNTRIES), topics=st.integers(1, 65536))
def test_every_advert_has_a_topic_of_its_network(of: int, region: str, topics: int) -> None:
    assert 0 <= topic_index(of, region, topics=topics) < topics  # type: ignore[arg-type]


@pytest.mark.parametrize(("region", "group"), [
    ("IN", "AS"), ("US", "NA"), ("DE", "EU"), ("BR", "SA"), ("AU", "OC"), ("ZA", "AF"),
    ("AQ", "AN"), ("ZZ", "EU"),
])  # fmt: skip
def test_a_country_is_on_its_continent_and_an_unknown_one_in_europe(
    region: str, group: str
) -> None:
    assert group_of(region) == group
