"""Keys under which owners are found in the directory, and how they are sharded. SPEC.md 6.3.

The directory's protocol knows nothing of our networks, so each key has the network hashed in.
"""

from collections.abc import Iterable

from protocol.gpu_class import CLASSES, GpuClass, place_of
from protocol.signing import digest
from protocol.units import Digest, NetId, PublicKey


def class_keys(
    net: NetId,
    classes: Iterable[GpuClass],
    groups: Iterable[str],
    *,
    places: int,
    shard: int,
) -> tuple[Digest, ...]:
    """The keys of all pairs of these classes and region groups in one shard, each once.

    `places` is the network's `advert_topics`: pairs that share a topic share a key. SPEC.md 6.3.
    """
    wanted = {
        place_of(of_class, group, places=places): None for of_class in classes for group in groups
    }
    return tuple(place_key(net, place, shard) for place in wanted)


def place_key(net: NetId, place: int, shard: int) -> Digest:
    """The key of the owners in one shard who offer something of this place. SPEC.md 6.3."""
    return digest("class-key", net + place.to_bytes(4, "big") + shard.to_bytes(4, "big"))


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
