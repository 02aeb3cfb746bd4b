"""Where things are in a store: the one table of keys. SPEC.md section 5.

Numbers are eight bytes, most significant first, so that keys sort as what they stand for.
"""

from typing import Final

from protocol.units import Digest, PublicKey

ENTRIES: Final = b"e"
CONFLICTS: Final = b"x"
HEADS: Final = b"h"
PRUNED: Final = b"p"
EVIDENCE: Final = b"v"
WAITING: Final = b"u"
_VIEW: Final = b"d\x01"
"""Derived values, and the version of how they are derived."""


def number(value: int) -> bytes:
    """The number as a part of a key."""
    return value.to_bytes(8, "big")


def entry(feed: PublicKey, seq: int) -> bytes:
    """The entry of the feed's main chain."""
    return ENTRIES + feed + number(seq)


def entries(feed: PublicKey) -> tuple[bytes, bytes]:
    """From where to where the entries of the feed's main chain are."""
    prefix = ENTRIES + feed
    return prefix, after(prefix)


def pruned(feed: PublicKey, seq: int) -> bytes:
    """What is left of an entry of the main chain whose body is gone."""
    return PRUNED + feed + number(seq)


def conflicts(feed: PublicKey) -> bytes:
    """Prefix of the conflicting entries of a feed."""
    return CONFLICTS + feed


def conflict(feed: PublicKey, seq: int, entry_id: bytes = b"") -> bytes:
    """A conflicting entry; without its id the prefix of all at that place."""
    return CONFLICTS + feed + number(seq) + entry_id


def head(feed: PublicKey) -> bytes:
    """Where the feed's main chain ends."""
    return HEADS + feed


def place(entry_id: bytes) -> bytes:
    """Which feed and seq an entry with this id has."""
    return b"i" + entry_id[:16]


def turn(feed: PublicKey, unit: bytes, ctr: int, entry_id: bytes = b"") -> bytes:
    """An entry of a unit's chain; without the id the prefix of all at that counter."""
    return b"g" + feed + unit + number(ctr) + entry_id[:16]


def ending(feed: PublicKey, unit: bytes, lctr: int, entry_id: bytes = b"") -> bytes:
    """A RELEASE of a lease by its counter; without the id the prefix of all of that lease."""
    return b"l" + feed + unit + number(lctr) + entry_id[:16]


def reference(referred: Digest, referrer: bytes = b"") -> bytes:
    """That one entry names another; without the referrer the prefix of all that do."""
    return b"r" + referred[:16] + referrer[:16]


def offence(offender: PublicKey, key: bytes) -> bytes:
    """The evidence kept for one offence."""
    return EVIDENCE + offender + key


def nonce(renter: PublicKey, request_nonce: bytes) -> bytes:
    """Which of our grants answered this request."""
    return _VIEW + b"nonce\0" + renter + request_nonce


def waiting(feed: PublicKey, seq: int) -> bytes:
    """An entry that waits to be judged."""
    return WAITING + feed + number(seq)


def waiting_of(feed: PublicKey) -> tuple[bytes, bytes]:
    """From where to where the feed's entries that wait are."""
    prefix = WAITING + feed
    return prefix, after(prefix)


def meta(name: bytes) -> bytes:
    """What the store says of itself."""
    return b"m" + name


def after(prefix: bytes) -> bytes:
    """The first key behind all that begin with the prefix; no prefix ends in the highest byte."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1])
