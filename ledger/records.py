"""What a store holds, as values: entries, heads, indices. SPEC.md section 5. Judges nothing."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final

from msgspec import UNSET, Meta

from ledger import keys
from ledger.bodies import Accept, Body, Grant, Release, ReleaseTurn, Statement, requested
from ledger.entry import Entry, Link, read_draft, read_entry
from ledger.limits import HEADER_BYTES_MAX
from ledger.store import DamagedStore, Store
from ledger.units_chain import turns_of
from protocol.codec import Hash, Instant, Seal, UInt, Wire, decode
from protocol.errors import LocalFault, PeerFault
from protocol.layout import uint
from protocol.units import Digest, Millis, NetId, PublicKey

SCHEMA: Final = b"\x01"
"""Of the store's layout."""
HEAD_BYTES_MAX: Final = 64
STUB_BYTES_MAX: Final = HEADER_BYTES_MAX + 72


class HeadRecord(Wire, frozen=True, array_like=True):
    """The end of a feed's main chain, as stored under its feed."""

    seq: UInt
    id: Hash
    ts_ms: Instant


class Stub(Wire, frozen=True, array_like=True):
    """What is kept of an entry below a checkpoint."""

    hdr: Annotated[bytes, Meta(max_length=HEADER_BYTES_MAX)]
    sig: Seal


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
        found = self.store.range(keys.entry(feed, first), keys.entry(feed, stop))
        for seq, (key, raw) in enumerate(found, first):
            if key != keys.entry(feed, seq):
                return  # The body of the one before is gone.
            yield raw

    def stub(self, feed: PublicKey, seq: int) -> Entry | None:
        """Header and signature of the main chain's entry at this place, if its body is gone.

        It links, and proves forks; what it said nobody can tell from it.
        """
        raw = self.store.get(keys.pruned(feed, seq))
        return None if raw is None else self._stub(raw)

    def _stub(self, raw: bytes) -> Entry:
        try:
            return read_stub(raw, self.net)
        except PeerFault as fault:
            raise DamagedStore("The ledger's store holds an entry that cannot be read.") from fault

    def headers_at(self, feed: PublicKey, seq: int) -> list[Entry]:
        """As `at`, and stubs: enough for links and forks."""
        stub = self.stub(feed, seq) if seq >= 0 else None
        return self.at(feed, seq) if stub is None else [stub, *self.at(feed, seq)]

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
        return [] if ctr < 0 else self._indexed(feed, keys.turn(feed, unit, ctr))

    def endings(self, feed: PublicKey, unit: bytes, lctr: int) -> list[Entry]:
        """All RELEASEs that name a lease of the unit by this counter."""
        return self._indexed(feed, keys.ending(feed, unit, lctr))

    def _indexed(self, feed: PublicKey, prefix: bytes) -> list[Entry]:
        """The entries of a feed whose places stand under the prefix, with their ids as suffix."""
        found: list[Entry] = []
        for key, place in self._under(prefix):
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

    def bodies_between(self, feed: PublicKey, first: int, stop: int) -> Iterator[bytes]:
        """Those entries of the main chain from `first` up to `stop` whose bodies are here."""
        for _, raw in self.store.range(keys.entry(feed, first), keys.entry(feed, stop)):
            yield raw

    def stubs_between(self, feed: PublicKey, first: int, stop: int) -> Iterator[Entry]:
        """Those of the others of these places: what is left of them."""
        for _, raw in self.store.range(keys.pruned(feed, first), keys.pruned(feed, stop)):
            yield self._stub(raw)

    def evidence_of(self, offender: PublicKey) -> Iterator[bytes]:
        """The evidence against this one."""
        for _, raw in self._under(keys.EVIDENCE + offender):
            yield raw

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


def read_stub(raw: bytes, net: NetId) -> Entry:
    """The header and signature in these bytes, with an empty body. Raises PeerFault."""
    stub = decode(raw, Stub, size_max=STUB_BYTES_MAX)
    return Entry(draft=read_draft(stub.hdr, b"", net), signature=stub.sig)


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


def put_entry(batch: dict[bytes, bytes], entry: Entry, body: Body | None, *, is_main: bool) -> None:
    """Adds all that is written for one entry: itself and its indices."""
    header, entry_id = entry.draft.header, entry.draft.id
    feed, seq = header.feed, header.seq
    number = keys.number(seq)
    place = feed + number
    key = keys.ENTRIES + place if is_main else keys.conflict(feed, seq, entry_id)
    batch[key] = entry.raw
    batch[keys.place(entry_id)] = place
    for turn in turns_of(body):
        batch[keys.turn(feed, turn.unit, turn.ctr, entry_id)] = number
        if isinstance(turn, ReleaseTurn):
            batch[keys.ending(feed, turn.unit, turn.lctr, entry_id)] = number
    for referred in _references(body):
        batch[keys.reference(referred, entry_id)] = place


def put_head(batch: dict[bytes, bytes], feed: PublicKey, head: Link) -> None:
    """Adds where the feed's main chain ends: the encoding of a HeadRecord."""
    batch[keys.head(feed)] = b"".join(
        (b"\x83", uint(head.seq), b"\x58\x20", head.id, uint(head.ts_ms))
    )


def put_answer(batch: dict[bytes, bytes], entry: Entry, body: Body | None) -> None:
    """Adds that an entry of ours answers a renter's request, if it does."""
    if isinstance(body, Grant):
        renter, request = requested(body)
        batch[keys.nonce(renter, request.nonce)] = entry.id


def _references(body: Body | None) -> tuple[Digest, ...]:
    match body:
        case Release() | Accept():
            return (body.grant,)
        case Statement():
            named = (body.lease, body.half)
            return tuple(each for each in named if each is not UNSET)
        case _:
            return ()
