"""Everything in a store judged anew. SPEC.md section 7. Reads, never writes."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from heapq import merge
from itertools import chain

from ledger import keys
from ledger.bodies import read_body
from ledger.entry import Entry, Link, check_link, check_place, check_seal, link_of, read_entry
from ledger.evidence import check
from ledger.records import HEAD_BYTES_MAX, HeadRecord, Records, read_stub
from ledger.store import DamagedStore
from ledger.validity import check_body
from protocol.codec import decode
from protocol.errors import PeerFault
from protocol.signing import is_signed
from protocol.units import NetId, PublicKey

Judge = Callable[[bytes, bytes], None]
"""Raises PeerFault if the record of this key and value does not hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """The first record that does not hold, and the rule that it breaks."""

    key: bytes
    """Under which it is stored; entries have their feed and seq in it."""
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was walked. Without `broken` all of it holds."""

    feeds: int
    entries: int
    conflicts: int
    evidence: int
    broken: Broken | None
    pruned: int = 0
    """Of the entries, those whose bodies were dropped: link and seal are judged."""


Audit = Callable[[Callable[[], None]], Report]
"""audit(go_on): does the walk, once and in any thread; `go_on` is called before each record, and
what it raises ends the walk."""


def begin_audit(records: Records) -> Audit:
    """A walk of entries, heads, conflicts and evidence as they are now, yet to be done.

    The first broken record ends the judging.
    """
    links_of = _Chain(records.net)
    judges: dict[bytes, Judge] = {
        keys.ENTRIES: links_of.judge,
        keys.PRUNED: links_of.judge_stub,
        keys.HEADS: links_of.judge_head,
        keys.CONFLICTS: partial(_judge_conflict, records.net),
        keys.EVIDENCE: partial(_judge_evidence, records.net),
    }
    # All are opened before anything can be written, so that they fit each other.
    ranges = {prefix: records.store.range(prefix, keys.after(prefix)) for prefix in judges}
    # A chain is walked in order, whether the bodies of its entries are there or not.
    whole, stubs = ranges.pop(keys.ENTRIES), ranges.pop(keys.PRUNED)
    links = merge(whole, stubs, key=lambda record: record[0][1:])
    return partial(_audit, judges, (links, *ranges.values()))


def _audit(
    judges: Mapping[bytes, Judge],
    ranges: Iterable[Iterator[tuple[bytes, bytes]]],
    go_on: Callable[[], None],
) -> Report:
    counts = dict.fromkeys(judges, 0)
    broken = None
    for key, raw in chain.from_iterable(ranges):
        go_on()
        counts[key[:1]] += 1
        if broken is None:
            broken = _broken(judges[key[:1]], key, raw)
    return Report(
        feeds=counts[keys.HEADS],
        entries=counts[keys.ENTRIES] + counts[keys.PRUNED],
        conflicts=counts[keys.CONFLICTS],
        evidence=counts[keys.EVIDENCE],
        broken=broken,
        pruned=counts[keys.PRUNED],
    )


def check_own_feed(records: Records, feed: PublicKey) -> None:
    """Links and seals of our own feed. Raises DamagedStore at the first that does not."""
    links = _Chain(records.net)
    for key, raw in records.store.range(*keys.entries(feed)):
        if broken := _broken(links.judge, key, raw):
            raise DamagedStore(f"Our feed is damaged in the store: {broken.rule}.")
    head = records.head(feed)
    if head != links.after:
        raise DamagedStore("Our feed in the store does not end where it should.")


def _broken(judge: Judge, key: bytes, raw: bytes) -> Broken | None:
    try:
        judge(key, raw)
    except PeerFault as fault:
        return Broken(key=key, rule=fault.rule)
    return None


class _Chain:
    """Judges the entries of main chains as they come, feed by feed."""

    def __init__(self, net: NetId) -> None:
        self.after: Link | None = None
        self._net = net
        self._feed = b""
        self._ends: dict[bytes, Link] = {}

    def judge(self, key: bytes, raw: bytes) -> None:
        entry = read_entry(raw, self._net)
        if key != keys.entry(entry.feed, entry.seq):
            raise PeerFault("store.key", "an entry of another place")
        self._follow(key, entry)
        _judge_alone(entry, self._net)

    def judge_stub(self, key: bytes, raw: bytes) -> None:
        """An entry whose body was dropped: its place, link and signature."""
        stub = read_stub(raw, self._net)
        if key != keys.pruned(stub.feed, stub.seq):
            raise PeerFault("store.key", "an entry of another place")
        self._follow(key, stub)
        if not is_signed(stub.feed, "entry", self._net, stub.draft.hdr, by=stub.signature):
            raise PeerFault("entry.seal")

    def _follow(self, key: bytes, entry: Entry) -> None:
        if key[1:33] != self._feed:
            self._feed, self.after = key[1:33], None
        check_link(entry.header, self.after)
        self.after = self._ends[self._feed] = link_of(entry.draft)

    def judge_head(self, key: bytes, raw: bytes) -> None:
        """The record of a feed's end, when all entries have been judged."""
        head = decode(raw, HeadRecord, size_max=HEAD_BYTES_MAX)
        if self._ends.get(key[1:]) != Link(seq=head.seq, id=head.id, ts_ms=head.ts_ms):
            raise PeerFault("store.head", "not the end of the feed's entries")


def _judge_alone(entry: Entry, net: NetId) -> None:
    check_place(entry.header)
    check_seal(entry, net)
    check_body(read_body(entry.draft), entry.header, net)


def _judge_conflict(net: NetId, key: bytes, raw: bytes) -> None:
    entry = read_entry(raw, net)
    if key != keys.conflict(entry.feed, entry.seq, entry.id):
        raise PeerFault("store.key", "an entry of another place")
    _judge_alone(entry, net)


def _judge_evidence(net: NetId, key: bytes, raw: bytes) -> None:
    offence = check(raw, net)
    if key != keys.offence(offence.offender, offence.key):
        raise PeerFault("store.key", "evidence of another offence")
