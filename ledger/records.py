"""What a store holds, as values: entries, heads, indices. SPEC.md section 5. Judges nothing."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from msgspec import UNSET

from ledger import keys
from ledger.bodies import Accept, Body, Grant, Release, Statement, requested
from ledger.entry import Entry, Link, read_entry
from ledger.store import DamagedStore, Store
from ledger.units_chain import turns_of
from protocol.codec import Hash, Instant, UInt, Wire, decode, encode
from protocol.errors import LocalFault, PeerFault
from protocol.units import Digest, Millis, NetId, PublicKey

SCHEMA: Final = b"\x01"
"""Of the store's layout."""
HEAD_BYTES_MAX: Final = 64


class HeadRecord(Wire, frozen=True, array_like=True):
    """The end of a feed's main chain, as stored under its feed."""

    seq: UInt
    id: Hash
    ts_ms: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A feed as this replica has it."""

    feed: PublicKey
    seq: int
    id: Digest
    ts_ms: Millis
    fork: int | None
    """Lowest place at which the feed is known to fork."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Reads of one store in one network. A record that cannot be read raises DamagedStore."""

    store: Store
    net: NetId

    def head(self, feed: PublicKey) -> Link | None:
        """The end of the feed's main chain."""
        raw = self.store.get(keys.head(feed))
        return None if raw is None else self._link(raw)

    def heads(self) -> Iterator[tuple[PublicKey, Link]]:
        """All feeds with the ends of their main chains, in the order of the feeds."""
        for key, raw in self._under(keys.HEADS):
            yield PublicKey(key[1:]), self._link(raw)

    def entry(self, feed: PublicKey, seq: int) -> Entry | None:
        """The entry of the feed's main chain at this place."""
        raw = self.store.get(keys.entry(feed, seq))
        return None if raw is None else self.read(raw)

    def raw_entries(self, feed: PublicKey, first: int, stop: int) -> Iterator[bytes]:
        """The bytes of the main chain from `first` up to but not including `stop`."""
        for _, raw in self.store.range(keys.entry(feed, first), keys.entry(feed, stop)):
            yield raw

    def conflicts(self, feed: PublicKey) -> list[Entry]:
        """The entries of the feed's other branches, by place."""
        return [self.read(raw) for _, raw in self._under(keys.conflicts(feed))]

    def at(self, feed: PublicKey, seq: int) -> list[Entry]:
        """All entries at this place, that of the main chain first."""
        if seq < 0:
            return []
        main = self.entry(feed, seq)
        others = [self.read(raw) for _, raw in self._under(keys.conflict(feed, seq))]
        return others if main is None else [main, *others]

    def find(self, entry_id: Digest) -> Entry | None:
        """The entry with this id, on whichever branch."""
        place = self.store.get(keys.place(entry_id))
        if place is None:
            return None
        feed, seq = PublicKey(place[:32]), int.from_bytes(place[32:], "big")
        return next((entry for entry in self.at(feed, seq) if entry.id == entry_id), None)

    def turns(self, feed: PublicKey, unit: bytes, ctr: int) -> list[Entry]:
        """All entries of a unit's chain at this counter."""
        if ctr < 0:
            return []
        found: list[Entry] = []
        for key, place in self._under(keys.turn(feed, unit, ctr)):
            at = self.at(feed, int.from_bytes(place, "big"))
            found += [entry for entry in at if entry.id[:16] == key[-16:]]
        return found

    def referrers(self, referred: Digest) -> list[Entry]:
        """The entries that name this one, in the order of their ids."""
        found: list[Entry] = []
        for key, place in self._under(keys.reference(referred)):
            at = self.at(PublicKey(place[:32]), int.from_bytes(place[32:], "big"))
            found += [entry for entry in at if entry.id[:16] == key[-16:]]
        return found

    def all_entries(self) -> Iterator[Entry]:
        """Every entry, main chains first."""
        for prefix in (keys.ENTRIES, keys.CONFLICTS):
            for _, raw in self._under(prefix):
                yield self.read(raw)

    def evidence(self) -> Iterator[bytes]:
        """All evidence kept, by offender."""
        for _, raw in self._under(keys.EVIDENCE):
            yield raw

    def read(self, raw: bytes) -> Entry:
        """An entry that was judged before it was stored."""
        try:
            return read_entry(raw, self.net)
        except PeerFault as fault:
            raise DamagedStore("The ledger's store holds an entry that cannot be read.") from fault

    def _link(self, raw: bytes) -> Link:
        try:
            record = decode(raw, HeadRecord, size_max=HEAD_BYTES_MAX)
        except PeerFault as fault:
            raise DamagedStore("The ledger's store holds an entry that cannot be read.") from fault
        return Link(seq=record.seq, id=record.id, ts_ms=record.ts_ms)

    def _under(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self.store.range(prefix, keys.after(prefix))


def check_stamp(store: Store, *, net: NetId, uuid: bytes) -> None:
    """Stamps a new store. Raises LocalFault if it is another network's or of another layout."""
    known = store.get(keys.meta(b"schema"))
    if known is None:
        stamp = {b"schema": SCHEMA, b"net": net, b"uuid": uuid}
        store.write({keys.meta(name): value for name, value in stamp.items()}, sync=True)
    elif known != SCHEMA or store.get(keys.meta(b"net")) != net:
        raise LocalFault(
            "The ledger here is of another network or another version.",
            "give this network a home of its own",
        )


def batch_of(
    entry: Entry, body: Body | None, *, is_main: bool, is_ours: bool
) -> dict[bytes, bytes]:
    """All that is written for one entry: itself, the feed's end, and its indices."""
    feed, seq = entry.feed, entry.seq
    place = feed + keys.number(seq)
    batch = {keys.place(entry.id): place}
    if is_main:
        batch[keys.entry(feed, seq)] = entry.raw
        batch[keys.head(feed)] = encode(HeadRecord(seq, entry.id, entry.header.ts_ms))
    else:
        batch[keys.conflict(feed, seq, entry.id)] = entry.raw
    for turn in turns_of(body):
        batch[keys.turn(feed, turn.unit, turn.ctr, entry.id)] = keys.number(seq)
    for referred in _references(body):
        batch[keys.reference(referred, entry.id)] = place
    if is_ours and isinstance(body, Grant):
        renter, request = requested(body)
        batch[keys.nonce(renter, request.nonce)] = entry.id
    return batch


def _references(body: Body | None) -> tuple[Digest, ...]:
    match body:
        case Release() | Accept():
            return (body.grant,)
        case Statement():
            named = (body.lease, body.half)
            return tuple(each for each in named if each is not UNSET)
        case _:
            return ()
