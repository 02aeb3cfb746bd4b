"""Which digests a peer has, in 64 bytes. SPEC.md 8.7. Pure.

A Bloom filter (Bloom, Space/time trade-offs in hash coding with allowable errors, CACM 1970). It
says "perhaps" or "no": a hint by which to rank, never a promise.
"""

from collections.abc import Iterable
from typing import Final

FILTER_BYTES: Final = 64
DIGESTS_MAX: Final = 48
"""With so many one in a hundred others is taken to be there too."""
_BITS: Final = 8 * FILTER_BYTES
_HASHES: Final = 4


def filter_of(digests: Iterable[bytes]) -> bytes:
    """The filter of the first DIGESTS_MAX digests, each of at least 8 bytes."""
    field = 0
    for _, digest in zip(range(DIGESTS_MAX), digests, strict=False):
        for place in _places(digest):
            field |= 1 << place
    return field.to_bytes(FILTER_BYTES, "little")


def may_hold(stated: bytes, digest: bytes) -> bool:
    """Whether the digest may be among those of the filter."""
    field = int.from_bytes(stated, "little")
    return all(field >> place & 1 for place in _places(digest))


def _places(digest: bytes) -> list[int]:
    """Digests are as good as drawn: their first bytes are the hash functions."""
    return [int.from_bytes(digest[2 * i : 2 * i + 2], "big") % _BITS for i in range(_HASHES)]
