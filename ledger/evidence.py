"""Proof of an offence that anybody can check alone. SPEC.md section 8. Total and pure.

It accuses only the signer of bytes that are inside the evidence, and needs no clock, no store and
no reporter. An offence has a key; one evidence is kept for each key.
"""

from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeVar

from msgspec import Meta

from ledger.bodies import Grant, GrantTurn, Release, ReleaseTurn, read_body
from ledger.entry import Entry, Header, check_seal, id_of, read_draft, read_entry
from ledger.limits import ENTRY_BYTES_MAX, EVIDENCE_BYTES_MAX, HEADER_BYTES_MAX
from ledger.units_chain import UnitEntry, follows, is_sound_alone, turn_in
from protocol.codec import Id16, Seal, Wire, decode, decode_plain, encode
from protocol.errors import PeerFault
from protocol.signing import is_signed
from protocol.units import NetId, PublicKey, Signature

Rule = Literal["A1", "A2", "A4", "A5"]

FORK: Final = b"\x01"
SAME_COUNTER: Final = b"\x04"
OVERLAP: Final = b"\x05"

_Hdr = Annotated[bytes, Meta(max_length=HEADER_BYTES_MAX)]
W = TypeVar("W", bound=Wire)
_Raw = Annotated[bytes, Meta(max_length=ENTRY_BYTES_MAX)]


class TwoHeaders(Wire, frozen=True, array_like=True):
    """A1 and A2: two signed headers of one feed."""

    rule: Literal[1, 2]
    hdr1: _Hdr
    sig1: Seal
    hdr2: _Hdr
    sig2: Seal


class TwoEntries(Wire, frozen=True, array_like=True):
    """A4, and A5 by a pair: the unit, and two entries about it."""

    rule: Literal[4, 5]
    unit: Id16
    first: _Raw
    second: _Raw


class OneEntry(Wire, frozen=True, array_like=True):
    """A5 by one entry whose intervals overlap."""

    rule: Literal[5]
    unit: Id16
    only: _Raw


@dataclass(frozen=True, slots=True, kw_only=True)
class Offence:
    """What was proved, and of whom."""

    rule: Rule
    offender: PublicKey
    key: bytes
    """Family of the offence, then what makes it unique for the offender."""
    seq: int | None = None
    """Where the feed forks; None for other offences."""


def prove_fork(one: Entry, other: Entry) -> bytes | None:
    """Evidence that the author of these two entries forked its feed, if they show it."""
    if one.feed != other.feed or one.id == other.id:
        return None
    if one.seq == other.seq:
        rule: Literal[1, 2] = 1
        first, second = sorted((one, other), key=lambda entry: entry.draft.hdr)
    else:
        rule = 2
        first, second = sorted((one, other), key=lambda entry: entry.seq)
        if second.seq != first.seq + 1 or second.header.prev == first.id:
            return None
    return encode(
        TwoHeaders(rule, first.draft.hdr, first.signature, second.draft.hdr, second.signature)
    )


def prove_same_counter(unit: bytes, one: Entry, other: Entry) -> bytes:
    """Evidence from two entries that bear one counter of the unit."""
    first, second = sorted((one, other), key=lambda entry: entry.draft.hdr)
    return encode(TwoEntries(4, unit, first.raw, second.raw))


def prove_bad_turn(unit: bytes, *entries: Entry) -> bytes:
    """Evidence from an entry, or from a unit's entries at counters c and c+1."""
    if len(entries) == 1:
        return encode(OneEntry(5, unit, entries[0].raw))
    first, second = entries
    return encode(TwoEntries(5, unit, first.raw, second.raw))


def check(raw: bytes, net: NetId) -> Offence:
    """The offence that these bytes prove.

    Raises PeerFault `evidence.size`, `evidence.form`, `evidence.seal`, `evidence.void` (they prove
    nothing), or what reading an entry or a body raises.
    """
    if len(raw) > EVIDENCE_BYTES_MAX:
        raise PeerFault("evidence.size", f"{len(raw)} bytes")
    match _plain(raw):
        case [1 | 2, *_]:
            return _check_headers(_decode(raw, TwoHeaders), net)
        case [4, *_]:
            return _check_same_counter(_decode(raw, TwoEntries), net)
        case [5, _, _]:
            return _check_open(_decode(raw, OneEntry), net)
        case [5, *_]:
            return _check_step(_decode(raw, TwoEntries), net)
        case _:
            raise PeerFault("evidence.form", "no known rule")


def _plain(raw: bytes) -> object:
    try:
        return decode_plain(raw, size_max=EVIDENCE_BYTES_MAX)
    except PeerFault as fault:
        raise PeerFault("evidence.form", fault.detail) from fault


def _decode(raw: bytes, shape: type[W]) -> W:
    try:
        return decode(raw, shape, size_max=EVIDENCE_BYTES_MAX)
    except PeerFault as fault:
        raise PeerFault("evidence.form", fault.detail) from fault


def _check_headers(evidence: TwoHeaders, net: NetId) -> Offence:
    first = _signed_header(evidence.hdr1, evidence.sig1, net)
    second = _signed_header(evidence.hdr2, evidence.sig2, net)
    if first.feed != second.feed:
        raise PeerFault("evidence.void", "two authors")
    if evidence.rule == 1:
        proved = first.seq == second.seq and evidence.hdr1 < evidence.hdr2
    else:
        proved = second.seq == first.seq + 1 and second.prev != id_of(evidence.hdr1, net)
    if not proved:
        raise PeerFault("evidence.void", "the headers belong together, or are in the wrong order")
    return Offence(
        rule="A1" if evidence.rule == 1 else "A2", offender=first.feed, key=FORK, seq=first.seq
    )


def _signed_header(hdr: bytes, signature: Signature, net: NetId) -> Header:
    header = read_draft(hdr, b"", net).header
    if not is_signed(header.feed, "entry", net, hdr, by=signature):
        raise PeerFault("evidence.seal")
    return header


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """A unit's part of an entry whose seal and body hash hold."""

    entry: Entry
    body: UnitEntry
    turn: GrantTurn | ReleaseTurn


def _judged(raw: bytes, unit: bytes, net: NetId) -> _Judged:
    entry = read_entry(raw, net)
    check_seal(entry, net)
    body = read_body(entry.draft)
    turn = turn_in(body, unit) if isinstance(body, Grant | Release) else None
    if turn is None or not isinstance(body, Grant | Release):
        raise PeerFault("evidence.void", "an entry that is not about the unit")
    return _Judged(entry=entry, body=body, turn=turn)


def _check_same_counter(evidence: TwoEntries, net: NetId) -> Offence:
    one = _judged(evidence.first, evidence.unit, net)
    other = _judged(evidence.second, evidence.unit, net)
    if (
        one.entry.feed != other.entry.feed
        or one.turn.ctr != other.turn.ctr
        or not one.entry.draft.hdr < other.entry.draft.hdr
    ):
        raise PeerFault("evidence.void", "not one counter twice, or in the wrong order")
    return _of_unit("A4", one, SAME_COUNTER)


def _check_open(evidence: OneEntry, net: NetId) -> Offence:
    only = _judged(evidence.only, evidence.unit, net)
    if is_sound_alone(only.body, evidence.unit, only.entry.header.ts_ms):
        raise PeerFault("evidence.void", "no overlap")
    return _of_unit("A5", only, OVERLAP)


def _check_step(evidence: TwoEntries, net: NetId) -> Offence:
    before = _judged(evidence.first, evidence.unit, net)
    after = _judged(evidence.second, evidence.unit, net)
    if before.entry.feed != after.entry.feed or after.turn.ctr != before.turn.ctr + 1:
        raise PeerFault("evidence.void", "not two entries of a unit that follow each other")
    if follows(before.turn.open, after.body, evidence.unit, after.entry.header.ts_ms):
        raise PeerFault("evidence.void", "the intervals follow")
    return _of_unit("A5", after, OVERLAP)


def _of_unit(rule: Rule, judged: _Judged, family: bytes) -> Offence:
    key = family + judged.turn.unit + judged.turn.ctr.to_bytes(8, "big")
    return Offence(rule=rule, offender=judged.entry.feed, key=key)
