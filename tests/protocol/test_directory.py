"""Keys of the directory: everybody computes the same ones, and no two places share one."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from protocol.directory import class_keys, classes_from, place_key, shard_of, shard_order
from protocol.gpu_class import CLASSES, REGION_GROUPS, GpuClass, topic_index
from protocol.signing import Signer
from protocol.units import Digest
from tests.make import FEED, NET, OTHER_NET

PLACES = len(CLASSES) * len(REGION_GROUPS)


def key(of_class: int, group: str, shard: int, *, places: int = PLACES) -> Digest:
    [found] = class_keys(NET, (GpuClass(of_class),), (group,), places=places, shard=shard)
    return found


def test_with_a_place_for_each_pair_every_pair_of_every_network_has_its_own_key() -> None:
    keys = [
        one
        for net, shard in product((NET, OTHER_NET), range(16))
        for one in class_keys(net, CLASSES, REGION_GROUPS, places=PLACES, shard=shard)
    ]
    assert len(set(keys)) == len(keys) == 2 * 16 * PLACES


def test_with_one_place_all_pairs_share_a_key() -> None:
    assert class_keys(NET, CLASSES, REGION_GROUPS, places=1, shard=0) == (place_key(NET, 0, 0),)


def test_pairs_that_share_a_gossip_topic_share_a_key() -> None:
    for of_class in CLASSES:
        topic = topic_index(of_class, "DE", topics=5)
        assert key(of_class, "EU", 2, places=5) == place_key(NET, topic, 2)


def test_the_key_is_pinned() -> None:
    assert key(24, "EU", 3).hex() == (
        "3df05be440b09824638bc5f5093e97cda2d528cf05b59d1b6aa90f6ded696edd"
    )


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
