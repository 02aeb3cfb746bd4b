"""Canonical CBOR items at known places of an array, for the few shapes that most bytes are of.

SPEC.md section 2. An item is read only if it stands in its one encoding, so what is read item by
item needs no proof by encoding again. Whatever is not read here is for `codec.decode`: this is a
short way to the same values, never another judgement.
"""

from typing import Final

UINT: Final = (
    rb"([\x00-\x17]"
    rb"|\x18[\x18-\xff]"
    rb"|\x19[\x01-\xff]."
    rb"|\x1a(?!\x00\x00).{4}"
    rb"|\x1b(?!\x00{4})[\x00-\x7f].{7})"
)
"""Pattern, with `.` for any byte, of the one encoding of an integer of 0 to INT_MAX."""
_ONE: Final = tuple(bytes([value]) for value in range(24))
"""The integers that are their own encoding."""


def uint(value: int) -> bytes:
    """The encoding of an integer of 0 to INT_MAX."""
    if value < 24:
        return _ONE[value]
    if value < 1 << 8:
        return bytes((24, value))
    if value < 1 << 16:
        return b"\x19" + value.to_bytes(2, "big")
    if value < 1 << 32:
        return b"\x1a" + value.to_bytes(4, "big")
    return b"\x1b" + value.to_bytes(8, "big")


def uint_of(raw: bytes) -> int:
    """The integer of which this is the encoding, as matched by UINT."""
    return raw[0] if len(raw) == 1 else int.from_bytes(raw[1:], "big")


def length(size: int) -> bytes:
    """What stands before a byte string of this size, which is under 65,536."""
    if size < 24:
        return bytes((0x40 | size,))
    if size < 1 << 8:
        return bytes((0x58, size))
    return b"\x59" + size.to_bytes(2, "big")


def read_bytes(raw: bytes, at: int) -> tuple[bytes, int]:
    """The byte string that stands there, and the place behind it, which may be behind the end.

    Raises ValueError or IndexError if none does, or one of 65,536 bytes or more.
    """
    first = raw[at]
    if 0x40 <= first < 0x58:
        start, least, size = at + 1, 0, first - 0x40
    elif first == 0x58:
        start, least, size = at + 2, 24, raw[at + 1]
    elif first == 0x59:
        start, least, size = at + 3, 1 << 8, int.from_bytes(raw[at + 1 : at + 3], "big")
    else:
        raise ValueError("no byte string")
    if size < least:
        raise ValueError("a length that is cut or written too long")
    return raw[start : start + size], start + size
