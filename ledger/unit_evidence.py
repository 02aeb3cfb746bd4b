"""Proof that an owner broke its unit's chain or a lease: A4, A5, A6, A7. SPEC.md section 8."""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from ledger.bodies import Grant, GrantTurn, Release, ReleaseTurn
from ledger.early_release import Freed, Leased, has_right, misnamed_turn
from ledger.entry import Entry
from ledger.judging import (
    Judged,
    Offence,
    RawEntry,
    Rule,
    in_order,
    judged,
    read_shape,
    void,
)
from ledger.keys import number
from ledger.units_chain import UnitEntry, breaks_chain, follows, is_sound_alone, turn_in
from protocol.codec import Id16, Wire, encode
from protocol.limits import SEAL_BYTES, TICK_BYTES_MAX
from protocol.tick import Tick
from protocol.units import NetId
from protocol.wire import unpack

SAME_COUNTER: Final = b"\x04"
OVERLAP: Final = b"\x05"
BROKEN_CHAIN: Final = b"\x06"
EARLY_RELEASE: Final = b"\x07"


class TwoEntries(Wire, frozen=True, array_like=True):
    """A4, A5 by a pair, and A6: the unit, and two entries about it."""

    rule: Literal[4, 5, 6]
    unit: Id16
    first: RawEntry
    second: RawEntry


class OneEntry(Wire, frozen=True, array_like=True):
    """A5 by one entry whose intervals overlap."""

    rule: Literal[5]
    unit: Id16
    only: RawEntry


class ReleaseOfGrant(Wire, frozen=True, array_like=True):
    """A7 by two entries."""

    rule: Literal[7]
    grant: RawEntry
    release: RawEntry


class ReleaseAfterTick(Wire, frozen=True, array_like=True):
    """A7 by two entries and what the owner metered."""

    rule: Literal[7]
    grant: RawEntry
    release: RawEntry
    tick: Annotated[bytes, Meta(max_length=TICK_BYTES_MAX + SEAL_BYTES)]


def prove_same_counter(unit: bytes, one: Entry, other: Entry) -> bytes:
    """Evidence from two entries that bear one counter of the unit."""
    first, second = in_order(one, other)
    return encode(TwoEntries(4, unit, first.raw, second.raw))


def prove_bad_turn(unit: bytes, *entries: Entry) -> bytes:
    """Evidence from an entry, or from a unit's entries at counters c and c+1."""
    if len(entries) == 1:
        return encode(OneEntry(5, unit, entries[0].raw))
    first, second = entries
    return encode(TwoEntries(5, unit, first.raw, second.raw))


def prove_broken_chain(unit: bytes, before: Entry, after: Entry) -> bytes:
    """Evidence from a unit's entry and one that it should follow, or says that it follows."""
    return encode(TwoEntries(6, unit, before.raw, after.raw))


def prove_early_release(grant: Entry, release: Entry, tick: bytes | None = None) -> bytes:
    """Evidence from a RELEASE without right; `tick` is what the owner sealed of the lease."""
    if tick is None:
        return encode(ReleaseOfGrant(7, grant.raw, release.raw))
    return encode(ReleaseAfterTick(7, grant.raw, release.raw, tick))


class _Turned(Struct, frozen=True, kw_only=True, gc=False):
    """A unit's part of an entry that was judged."""

    judged: Judged
    body: UnitEntry
    turn: GrantTurn | ReleaseTurn

    @property
    def entry(self) -> Entry:
        return self.judged.entry


def _turned(raw: bytes, unit: bytes, net: NetId) -> _Turned:
    one = judged(raw, net)
    turn = turn_in(one.body, unit) if isinstance(one.body, Grant | Release) else None
    if turn is None or not isinstance(one.body, Grant | Release):
        raise void("an entry that is not about the unit")
    return _Turned(judged=one, body=one.body, turn=turn)


def check_same_counter(raw: bytes, net: NetId) -> Offence:
    """The double lease that this A4 proves. Raises PeerFault."""
    evidence = read_shape(raw, TwoEntries)
    one = _turned(evidence.first, evidence.unit, net)
    other = _turned(evidence.second, evidence.unit, net)
    if (
        one.judged.feed != other.judged.feed
        or one.turn.ctr != other.turn.ctr
        or not one.entry.draft.hdr < other.entry.draft.hdr
    ):
        raise void("not one counter twice, or in the wrong order")
    return _of_turn("A4", SAME_COUNTER, one)


def check_open(raw: bytes, net: NetId) -> Offence:
    """The double lease that this A5 proves by one entry. Raises PeerFault."""
    evidence = read_shape(raw, OneEntry)
    only = _turned(evidence.only, evidence.unit, net)
    if is_sound_alone(only.body, evidence.unit, only.entry.header.ts_ms):
        raise void("no overlap")
    return _of_turn("A5", OVERLAP, only)


def check_step(raw: bytes, net: NetId) -> Offence:
    """The double lease that this A5 proves by two entries. Raises PeerFault."""
    evidence = read_shape(raw, TwoEntries)
    before = _turned(evidence.first, evidence.unit, net)
    after = _turned(evidence.second, evidence.unit, net)
    if before.judged.feed != after.judged.feed or after.turn.ctr != before.turn.ctr + 1:
        raise void("not two entries of a unit that follow each other")
    if follows(before.turn.open, after.body, evidence.unit, after.entry.header.ts_ms):
        raise void("the intervals follow")
    return _of_turn("A5", OVERLAP, after)


def check_chain(raw: bytes, net: NetId) -> Offence:
    """The broken chain that this A6 proves. Raises PeerFault."""
    evidence = read_shape(raw, TwoEntries)
    before = judged(evidence.first, net)
    after = _turned(evidence.second, evidence.unit, net)
    if before.feed != after.judged.feed:
        raise void("two owners")
    if not breaks_chain(before.entry, before.body, after.entry, after.turn):
        raise void("the entries are linked, or are not about each other")
    return _of_turn("A6", BROKEN_CHAIN, after)


def check_early_release(raw: bytes, net: NetId, *, with_tick: bool) -> Offence:
    """The RELEASE without right that this A7 proves. Raises PeerFault."""
    if with_tick:
        whole = read_shape(raw, ReleaseAfterTick)
        pair, tick = (whole.grant, whole.release), unpack(whole.tick, net, Tick)
    else:
        bare = read_shape(raw, ReleaseOfGrant)
        pair, tick = (bare.grant, bare.release), None
    granted, released = judged(pair[0], net), judged(pair[1], net)
    if not isinstance(granted.body, Grant) or not isinstance(released.body, Release):
        raise void("not a GRANT and a RELEASE")
    if granted.feed != released.feed or (tick is not None and tick.signer != granted.feed):
        raise void("two owners")
    if tick is not None and tick.body.lease != granted.entry.id:
        raise void("a tick of another lease")
    lease = Leased(entry=granted.entry, grant=granted.body)
    release = Freed(entry=released.entry, release=released.body)
    turn = misnamed_turn(lease, released.body)
    if turn is None:
        if has_right(lease, release, None if tick is None else tick.body, net):
            raise void("the owner may")
        turn = released.body.units[0]
    return _of_turn("A7", EARLY_RELEASE, _Turned(judged=released, body=released.body, turn=turn))


def _of_turn(rule: Rule, family: bytes, turned: _Turned) -> Offence:
    key = turn_key(family, turned.turn)
    return Offence(rule=rule, offender=turned.judged.feed, key=key)


def turn_key(family: bytes, turn: GrantTurn | ReleaseTurn) -> bytes:
    """Names an offence of this family by the turn that it is about: of two, the later one."""
    return family + turn.unit + number(turn.ctr)
