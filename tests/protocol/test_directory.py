"""Keys of the directory: everybody computes the same ones, and no two places share one."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.directory import class_key, classes_from, shard_of, shard_order
from protocol.gpu_class import CLASSES, REGION_GROUPS, GpuClass
from protocol.signing import Signer
from tests.make import FEED, NET, OTHER_NET


def test_every_place_of_every_network_has_a_key_of_its_own() -> None:
    places = list(product((NET, OTHER_NET), CLASSES, REGION_GROUPS, range(16)))
    assert len({class_key(*place) for place in places}) == len(places)


def test_the_key_is_pinned() -> None:
    assert class_key(NET, GpuClass(24), "EU", 3).hex() == (
        "d771edeb8ba0ce1b31dc23f0fe609f598e1230e9895bf3c8687bffcf075e72f9"
    )


@pytest.mark.parametrize(("of_class", "group"), [(23, "EU"), (24, "XX")])
def test_a_place_that_does_not_exist_is_a_bug(of_class: int, group: str) -> None:
    with pytest.raises(AssertionError):
        class_key(NET, GpuClass(of_class), group, 0)


def test_one_shard_holds_everybody() -> None:
    assert shard_of(FEED.public, 1) == 0


def test_owners_spread_over_the_shards() -> None:
    counts = [0] * 16
    for number in range(1_600):
        counts[shard_of(Signer(number.to_bytes(32, "big")).public, 16)] += 1
    assert min(counts) > 60
    assert max(counts) < 150


@given(start=st.integers(0, 99), shards=st.integers(1, 40))
def test_a_seeker_passes_every_shard_once(start: int, shards: int) -> None:
    order = shard_order(start, shards)
    assert order[0] == start % shards
    assert sorted(order) == list(range(shards))


def test_a_class_and_all_above_it_will_do() -> None:
    assert classes_from(GpuClass(80)) == (80, 96, 141, 180)
    assert classes_from(GpuClass(0)) == CLASSES
