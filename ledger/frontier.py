"""What a replica has, in a form that two replicas can compare: heads of feeds, ids of evidence.

SPEC.md section "Sync". Follows a ledger; writes nothing.
"""

from hashlib import sha256
from typing import Annotated

from msgspec import Meta

from ledger.dealings import Dealings
from ledger.entry import Entry, read_entry
from ledger.evidence import check
from ledger.keys import number
from ledger.ledger import Ledger
from ledger.limits import CONFLICTS_MAX, FEEDS_MAX, FORK_WINDOW
from ledger.ranges import Items
from protocol.codec import Id16, Key, UInt, Wire
from protocol.signing import digest
from protocol.units import Digest, PublicKey


class HeadItem(Wire, frozen=True, array_like=True):
    """Where a feed stands at a replica; equal where replicas have the same of it."""

    feed: Key
    seq: UInt
    """Of the last entry; of the lowest known fork where there is one."""
    id16: Id16
    """Of the last entry's id; of `fork_stamp` where the feed is forked."""
    forked: Annotated[int, Meta(ge=0, le=1)]


def feed_key(feed: PublicKey) -> str:
    """The key of a feed among all feeds: even, whatever keys their authors drew."""
    return sha256(feed).hexdigest()


def head_key(item: HeadItem) -> str:
    """The key of a head among heads."""
    return feed_key(item.feed)


def proof_key(proof: Digest) -> str:
    """The key of an evidence id among such."""
    return proof.hex()


def proof_id(raw: bytes) -> Digest:
    """What names an evidence in sync."""
    return digest("sync-proof", raw)


def head_stamp(item: HeadItem) -> bytes:
    """What stands for a head in fingerprints."""
    return item.feed + number(item.seq) + item.id16 + bytes([item.forked])


def head_item(ledger: Ledger, feed: PublicKey) -> HeadItem | None:
    """Where the feed stands in this ledger; None if no entry of it is here."""
    head = ledger.head(feed)
    if head is None:
        return None
    if head.fork is None:
        return HeadItem(feed, head.seq, head.id[:16], 0)
    held = min(head.seq + 1, head.fork)
    return HeadItem(feed, head.fork, fork_stamp(ledger, feed, held, head.fork), 1)


def fork_stamp(ledger: Ledger, feed: PublicKey, held: int, fork: int) -> bytes:
    """Names what is held of a forked feed: how far below the fork, and which entries from it on.

    A replica that has more than CONFLICTS_MAX of these has enough of them, and does not say which:
    replicas that keep different ones of too many agree all the same.
    """
    last = b"" if held == 0 else id_at(ledger, feed, held - 1) or b""
    # Whose body was dropped is known all the same, and asking for it would bring nothing.
    _, stubs = ledger.places(feed, fork, _stop(fork))
    ids = sorted(entry.id for entry in (*tail(ledger, feed, fork), *stubs))
    if len(ids) > CONFLICTS_MAX:
        ids = []
        last += b"full"
    return digest("sync-fork", number(held) + last + b"".join(ids))[:16]


def id_at(ledger: Ledger, feed: PublicKey, seq: int) -> Digest | None:
    """The id of the main chain's entry at this place, whether its body is here or not."""
    for raw in ledger.entries(feed, seq, seq + 1):
        return read_entry(raw, ledger.net).id
    stub = ledger.stub(feed, seq)
    return None if stub is None else stub.id


def tail(ledger: Ledger, feed: PublicKey, first: int) -> list[Entry]:
    """The entries of all branches of a forked feed from this place on, by place, then id.

    Those whose bodies are here.
    """
    stop = _stop(first)
    main, _ = ledger.places(feed, first, stop)
    rest = [entry for entry in ledger.conflicts(feed) if first <= entry.seq < stop]
    return sorted(main + rest, key=lambda entry: (entry.seq, entry.id))


def _stop(first: int) -> int:
    """So far that the main chain's alone are too many, should the fork be in FORK_WINDOW."""
    return first + FORK_WINDOW + CONFLICTS_MAX + 1


class Frontier:
    """The items of one ledger, kept as it grows. `refresh` must be told of each feed that has."""

    def __init__(self, ledger: Ledger, *, feeds_max: int = FEEDS_MAX) -> None:
        self._ledger = ledger
        self._feeds_max = feeds_max
        self._dealings = Dealings(ledger)
        self.heads: Items[HeadItem] = Items()
        self.proofs: Items[Digest] = Items()
        self.expected: dict[PublicKey, None] = {}
        """Feeds of which nothing is here yet, and which sessions are bringing now."""
        self._raw: dict[Digest, bytes] = {}
        self._proved: dict[tuple[PublicKey, bytes], Digest] = {}
        """What is kept for each offence."""
        self._accusations = ledger.accusations
        for head in ledger.heads():
            self.refresh(head.feed)
        for raw in ledger.evidence():
            self._learn(raw)
        self.refresh_proofs()

    def has_room_for(self, feed: PublicKey) -> bool:
        """Whether entries of this feed may be taken: those of strangers are up to a bound."""
        return self._count() < self._feeds_max or not self.is_stranger(feed)

    def is_crowded(self) -> bool:
        """Whether so much of the room is taken that strangers are let in at a pace."""
        return self._count() >= self._feeds_max // 2

    def is_stranger(self, feed: PublicKey) -> bool:
        """Whether nothing of this feed is here, and it is neither ours nor named in ours."""
        return (
            self.heads.get(feed_key(feed)) is None
            and self._ledger.waiting_end(feed) is None
            and feed != self._ledger.feed
            and feed not in self._dealings
        )

    def _count(self) -> int:
        return len(self.heads) + len(self.expected)

    def refresh(self, feed: PublicKey) -> None:
        """The ledger's part of this feed has changed, or may have."""
        item = head_item(self._ledger, feed)
        if item is not None:
            self.heads.put(head_key(item), item, head_stamp(item))
            self.expected.pop(feed, None)

    def refresh_proofs(self) -> bool:
        """The ledger's evidence has changed, or may have; whether it has."""
        since, self._accusations = self._accusations, self._ledger.accusations
        news = [self._learn(raw) for raw in self._ledger.evidence_since(since)]
        return any(news)

    def _learn(self, raw: bytes) -> bool:
        """Adds this evidence, in the place of what was kept for the offence; whether it is new."""
        proof = proof_id(raw)
        if proof in self._raw:
            return False
        offence = check(raw, self._ledger.net)
        named = (offence.offender, offence.key)
        if (old := self._proved.get(named)) is not None:
            self.proofs.drop(proof_key(old))
            del self._raw[old]
        self.proofs.put(proof_key(proof), proof, proof)
        self._raw[proof], self._proved[named] = raw, proof
        self.refresh(offence.offender)
        return True

    def proof(self, proof: Digest) -> bytes | None:
        """The evidence with this id."""
        return self._raw.get(proof)

    def heads_of(self, only: dict[PublicKey, None]) -> Items[HeadItem]:
        """Where these feeds stand now."""
        heads: Items[HeadItem] = Items()
        for feed in only:
            item = self.heads.get(feed_key(feed))
            if item is not None:
                heads.put(feed_key(feed), item, head_stamp(item))
        return heads
