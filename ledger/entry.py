"""One link of a peer's feed: header, signature, body. SPEC.md section 2. Knows no kind but 0."""

import re
from hashlib import sha256
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from ledger.limits import BODY_BYTES_MAX, ENTRY_BYTES_MAX, HEADER_BYTES_MAX, KIND_MAX
from protocol.codec import Hash, Instant, Key, Seal, UInt, Wire, decode
from protocol.errors import PeerFault
from protocol.layout import UINT, length, read_bytes, uint, uint_of
from protocol.signing import Signer, is_signed, preimage
from protocol.units import Digest, Millis, NetId, PublicKey, Signature

GENESIS: Final = 0
NO_ENTRY: Final = Digest(bytes(32))
"""What entry 0 names as its predecessor."""

Kind = Annotated[int, Meta(ge=0, le=KIND_MAX)]
RulesPrefix = Annotated[bytes, Meta(min_length=8, max_length=8)]


class Header(Wire, frozen=True, array_like=True, gc=False):
    """The signed part of an entry; its digest is the entry's id."""

    v: Literal[1]
    feed: Key
    seq: UInt
    prev: Hash
    ts_ms: Instant
    kind: Kind
    rules: RulesPrefix
    """First bytes of the digest of the rules bundle that the author judged by."""
    body_hash: Hash
    body_len: Annotated[int, Meta(ge=1, le=BODY_BYTES_MAX)]


class Frame(Wire, frozen=True, array_like=True):
    """An entry as it travels and is stored."""

    hdr: Annotated[bytes, Meta(max_length=HEADER_BYTES_MAX)]
    sig: Seal
    body: Annotated[bytes, Meta(min_length=1, max_length=BODY_BYTES_MAX)]


# Three of these are made for each entry that is read, and a frozen dataclass takes four times as
# long to make. None of them can be part of a cycle.


class Draft(Struct, frozen=True, kw_only=True, gc=False):
    """An entry before its signature: all that decides its id."""

    header: Header
    hdr: bytes
    body: bytes
    id: Digest


class Entry(Struct, frozen=True, kw_only=True, gc=False):
    """An entry in memory; `check_seal` tells whether its signature and body hash hold."""

    draft: Draft
    signature: Signature

    @property
    def id(self) -> Digest:
        """What names the entry; it does not cover the signature."""
        return self.draft.id

    @property
    def header(self) -> Header:
        """The decoded header."""
        return self.draft.header

    @property
    def feed(self) -> PublicKey:
        """The author."""
        return self.draft.header.feed

    @property
    def seq(self) -> int:
        """The place in the author's feed."""
        return self.draft.header.seq

    @property
    def raw(self) -> bytes:
        """The bytes that travel and are stored."""
        return pack_frame(self.draft.hdr, self.signature, self.draft.body)


class Link(Struct, frozen=True, kw_only=True, gc=False):
    """The place after which an entry comes: the predecessor's seq, id and time."""

    seq: int
    id: Digest
    ts_ms: Millis


def pack_header(header: Header) -> bytes:
    """As `encode`, in less time."""
    return b"".join((
        b"\x89\x01\x58\x20", header.feed, uint(header.seq), b"\x58\x20", header.prev,
        uint(header.ts_ms), uint(header.kind), b"\x48", header.rules, b"\x58\x20",
        header.body_hash, uint(header.body_len),
    ))  # fmt: skip


def pack_frame(hdr: bytes, sig: Signature, body: bytes) -> bytes:
    """As `encode` of a Frame, in less time."""
    return b"".join((b"\x83", length(len(hdr)), hdr, b"\x58\x40", sig, length(len(body)), body))


def link_of(draft: Draft) -> Link:
    """What the next entry of the feed must name."""
    return Link(seq=draft.header.seq, id=draft.id, ts_ms=draft.header.ts_ms)


def id_of(hdr: bytes, net: NetId) -> Digest:
    """SHA-256 over use, network and header; two signatures over one header are one entry."""
    return Digest(sha256(preimage("id", net, hdr)).digest())


def draft_entry(
    *,
    feed: PublicKey,
    after: Link | None,
    ts_ms: Millis,
    kind: int,
    rules: bytes,
    body: bytes,
    net: NetId,
) -> Draft:
    """The unsigned entry that follows `after`, or entry 0."""
    header = Header(
        v=1,
        feed=feed,
        seq=0 if after is None else after.seq + 1,
        prev=NO_ENTRY if after is None else after.id,
        ts_ms=ts_ms,
        kind=kind,
        rules=rules,
        body_hash=Digest(sha256(body).digest()),
        body_len=len(body),
    )
    hdr = pack_header(header)
    return Draft(header=header, hdr=hdr, body=body, id=id_of(hdr, net))


def seal(draft: Draft, *, signer: Signer, net: NetId) -> Entry:
    """The entry, signed by its author."""
    return Entry(draft=draft, signature=signer.sign("entry", net, draft.hdr))


def read_entry(raw: bytes, net: NetId) -> Entry:
    """The entry in these bytes; neither seal nor body has been judged.

    Raises PeerFault `entry.size` or `entry.form`.
    """
    if len(raw) > ENTRY_BYTES_MAX:
        raise PeerFault("entry.size", f"{len(raw)} bytes")
    try:
        hdr, sig, body = _fields(raw)
    except (ValueError, IndexError):
        hdr, sig, body = _decoded_fields(raw)
    return Entry(draft=read_draft(hdr, body, net), signature=sig)


def _fields(raw: bytes) -> tuple[bytes, Signature, bytes]:
    """Header, signature and body, item by item: ValueError or IndexError unless all is as usual."""
    hdr, at = read_bytes(raw, 1)
    body, stop = read_bytes(raw, at + 66)
    if raw[0] != 0x83 or raw[at : at + 2] != b"\x58\x40" or stop != len(raw):
        raise ValueError("not a frame")
    if len(hdr) > HEADER_BYTES_MAX or not 1 <= len(body) <= BODY_BYTES_MAX:
        raise ValueError("out of bounds")
    return hdr, Signature(raw[at + 2 : at + 66]), body


def _decoded_fields(raw: bytes) -> tuple[bytes, Signature, bytes]:
    """The same by the codec, which says what is wrong."""
    try:
        frame = decode(raw, Frame, size_max=ENTRY_BYTES_MAX)
    except PeerFault as fault:
        raise PeerFault("entry.form", fault.detail) from fault
    return frame.hdr, frame.sig, frame.body


def read_draft(hdr: bytes, body: bytes, net: NetId) -> Draft:
    """The unsigned entry of these parts. Raises PeerFault `entry.form`."""
    header = _laid_out_header(hdr) or _decoded_header(hdr)
    return Draft(header=header, hdr=hdr, body=body, id=id_of(hdr, net))


_LAYOUT: Final = re.compile(
    rb"\x89\x01\x58\x20(.{32})"  # version, feed
    + UINT  # seq
    + rb"\x58\x20(.{32})"  # prev
    + UINT  # ts_ms
    + UINT  # kind
    + rb"\x48(.{8})"  # rules
    + rb"\x58\x20(.{32})"  # body_hash
    + UINT,  # body_len
    re.DOTALL,
)


def _laid_out_header(hdr: bytes) -> Header | None:
    """The header by its layout; None if it has another, or is out of bounds."""
    match = _LAYOUT.fullmatch(hdr)
    if match is None:
        return None
    feed, seq, prev, ts, number, rules, body_hash, size = match.groups()
    ts_ms, kind, body_len = uint_of(ts), uint_of(number), uint_of(size)
    if ts_ms < 1 or kind > KIND_MAX or not 1 <= body_len <= BODY_BYTES_MAX:
        return None
    return Header(
        1,
        PublicKey(feed),
        uint_of(seq),
        Digest(prev),
        Millis(ts_ms),
        kind,
        rules,
        Digest(body_hash),
        body_len,
    )


def _decoded_header(hdr: bytes) -> Header:
    """The same by the codec, which says what is wrong."""
    try:
        return decode(hdr, Header, size_max=HEADER_BYTES_MAX)
    except PeerFault as fault:
        raise PeerFault("entry.form", fault.detail) from fault


def check_place(header: Header) -> None:
    """Raises PeerFault `entry.kind` or `entry.prev` where entry 0 and GENESIS do not go together.

    This much can be said of a header alone.
    """
    if (header.seq == 0) != (header.kind == GENESIS):
        raise PeerFault("entry.kind", "entry 0 and no other is a GENESIS")
    if header.seq == 0 and header.prev != NO_ENTRY:
        raise PeerFault("entry.prev", "entry 0 follows nothing")


def check_link(header: Header, after: Link | None) -> None:
    """Whether the entry follows `after`; None stands for the start of the feed.

    Raises PeerFault `entry.seq`, `entry.prev` or `entry.time`.
    """
    if header.seq != (0 if after is None else after.seq + 1):
        raise PeerFault("entry.seq", f"{header.seq}")
    if after is None:
        return
    if header.prev != after.id:
        raise PeerFault("entry.prev")
    if header.ts_ms < after.ts_ms:
        raise PeerFault("entry.time", "before its predecessor")


def check_seal(entry: Entry, net: NetId) -> None:
    """Whether the body is the one that was signed, and the author signed it.

    Whether the key is a sound point is asked with entry 0, in its certificate.
    Raises PeerFault `entry.body` or `entry.seal`.
    """
    header, body = entry.header, entry.draft.body
    if header.body_len != len(body) or header.body_hash != sha256(body).digest():
        raise PeerFault("entry.body", "not the body that the header names")
    if not is_signed(header.feed, "entry", net, entry.draft.hdr, by=entry.signature):
        raise PeerFault("entry.seal")
