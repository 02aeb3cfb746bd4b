"""The work "rows-1": rows of a product of two byte matrices that a seed decides. SPEC.md section 8.

Exact on every machine, so two digests of one row that differ prove that one of them is wrong.
"""

from hashlib import sha256, shake_256

from protocol.units import Digest

_LANE_BYTES = 4
"""A sum of 256 products of bytes takes under 25 bits."""


def row_digest(seed: bytes, size: int, row: int) -> Digest:
    """What names this row of A times B, both `size` squared.

    A's row is the SHAKE-256 of use, seed and row; B that of use and seed, row by row. The digest is
    over use, seed, row and the sums, four bytes each, least significant first.
    """
    index = row.to_bytes(8, "big")
    factors = shake_256(b"p2pnode/rows-a/1\0" + seed + index).digest(size)
    sums = 0
    # One long integer holds a whole row, a lane for each column: no sum runs into the next lane.
    for factor, lanes in zip(factors, _rows_of_b(seed, size), strict=True):
        sums += factor * lanes
    packed = sums.to_bytes(size * _LANE_BYTES, "little")
    return Digest(sha256(b"p2pnode/rows/1\0" + seed + index + packed).digest())


def _rows_of_b(seed: bytes, size: int) -> list[int]:
    stream = shake_256(b"p2pnode/rows-b/1\0" + seed).digest(size * size)
    lanes = bytearray(size * size * _LANE_BYTES)
    lanes[::_LANE_BYTES] = stream
    width = size * _LANE_BYTES
    return [int.from_bytes(lanes[k * width : (k + 1) * width], "little") for k in range(size)]
