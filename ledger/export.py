"""A ledger, or one feed of it, as one file that another replica can take. SPEC.md section 13.

Neither side holds more than one record at a time. Nothing here judges what a record says: who
takes it does that, as with what comes from a peer.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from ledger import keys
from ledger.limits import ENTRY_BYTES_MAX, EVIDENCE_BYTES_MAX
from ledger.records import Records
from protocol.errors import PeerFault
from protocol.units import NetId, PublicKey

MAGIC: Final = b"p2pnode/export\n"
VERSION: Final = b"\x01"
HEAD_BYTES: Final = len(MAGIC) + len(VERSION) + 32
"""Magic, version and network."""
DIGEST_BYTES: Final = 32
END: Final = b"."

SIZES: Final[dict[bytes, int]] = {
    keys.ENTRIES: ENTRY_BYTES_MAX,
    keys.CONFLICTS: ENTRY_BYTES_MAX,
    keys.EVIDENCE: EVIDENCE_BYTES_MAX,
}
"""What a record of each tag may have at most, in the order in which they stand in a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record of a file, yet to be judged."""

    tag: bytes
    """One of SIZES."""
    raw: bytes


Read = Callable[[int], bytes]
"""read(n): the next n bytes, fewer where the file ends."""


def begin_export(records: Records, feed: PublicKey | None) -> Iterator[Record]:
    """All records as they are now, or those of one feed; may be walked in any thread."""
    prefixes = [prefix + (feed or b"") for prefix in SIZES]
    # All are opened before anything can be written, so that they fit each other.
    ranges = [records.store.range(prefix, keys.after(prefix)) for prefix in prefixes]
    return _walk(ranges)


def _walk(ranges: list[Iterator[tuple[bytes, bytes]]]) -> Iterator[Record]:
    for tag, pairs in zip(SIZES, ranges, strict=True):
        for _, raw in pairs:
            yield Record(tag=tag, raw=raw)


def file_of(records: Iterator[Record], net: NetId) -> Iterator[bytes]:
    """The bytes of the file, piece by piece."""
    whole = sha256()
    for piece in _pieces(records, net):
        whole.update(piece)
        yield piece
    yield whole.digest()


def _pieces(records: Iterator[Record], net: NetId) -> Iterator[bytes]:
    yield MAGIC + VERSION + net
    for record in records:
        yield record.tag + len(record.raw).to_bytes(4, "big") + record.raw
    yield END


def records_in(read: Read, net: NetId) -> Iterator[Record]:
    """The records of a file, as they come; only the end tells whether the file is whole.

    Raises PeerFault `export.magic`, `export.version` or `export.net` before the first record, and
    `export.record`, `export.short` or `export.digest` where the file stops making sense.
    """
    source = _Source(read)
    _check_head(source, net)
    while (tag := source.take(1)) != END:
        if tag not in SIZES:
            raise PeerFault("export.record", f"a record of unknown kind {tag!a}")
        size = int.from_bytes(source.take(4), "big")
        if size > SIZES[tag]:
            raise PeerFault("export.record", f"a record of {size} bytes")
        yield Record(tag=tag, raw=source.take(size))
    said, found = source.digest(), read(DIGEST_BYTES + 1)
    if len(found) < DIGEST_BYTES:
        raise PeerFault("export.short", "the file ends in its digest")
    if found != said:
        raise PeerFault("export.digest", "not the digest of what is before, or something after it")


class _Source:
    """What is read, and the digest of it so far."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._whole = sha256()

    def take(self, size: int) -> bytes:
        raw = self._read(size)
        if len(raw) < size:
            raise PeerFault("export.short", "the file ends inside a record")
        self._whole.update(raw)
        return raw

    def digest(self) -> bytes:
        return self._whole.digest()


def _check_head(source: _Source, net: NetId) -> None:
    try:
        magic = source.take(len(MAGIC))
    except PeerFault as fault:
        raise PeerFault("export.magic", "too short for an export of a ledger") from fault
    if magic != MAGIC:
        raise PeerFault("export.magic", "no export of a ledger")
    if source.take(1) != VERSION:
        raise PeerFault("export.version", "a version that is not known here")
    named = source.take(32)
    if named != net:
        raise PeerFault("export.net", f"of network {named.hex()}")
