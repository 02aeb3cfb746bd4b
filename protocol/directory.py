"""Keys under which owners are found in the directory, and how they are sharded. SPEC.md 6.3.

The directory's protocol knows nothing of our networks, so each key has the network hashed in.
"""

from protocol.gpu_class import CLASSES, REGION_GROUPS, GpuClass
from protocol.signing import digest
from protocol.units import Digest, NetId, PublicKey


def class_key(net: NetId, of_class: GpuClass, region_group: str, shard: int) -> Digest:
    """The key of the owners in one shard who offer this class in this region group. SPEC.md 6.3."""
    assert of_class in CLASSES, of_class
    assert region_group in REGION_GROUPS, region_group
    place = of_class.to_bytes(2, "big") + region_group.encode("ascii") + shard.to_bytes(4, "big")
    return digest("class-key", net + place)


def shard_of(feed: PublicKey, shards: int) -> int:
    """The shard in which an owner is found, by its feed key. SPEC.md 6.3.

    By the feed and not at random, so that an owner who starts again stays where it was.
    """
    return int.from_bytes(digest("shard", feed)[:8], "big") % shards


def shard_order(start: int, shards: int) -> tuple[int, ...]:
    """All shards once, from a seeker's random start on. SPEC.md 6.3."""
    return tuple((start + step) % shards for step in range(shards))


def classes_from(least: GpuClass) -> tuple[GpuClass, ...]:
    """The classes whose GPUs all have at least the VRAM that `least` stands for, least first."""
    return tuple(of_class for of_class in CLASSES if of_class >= least)
