"""What a replica has, in a form that two replicas can compare: heads of feeds, ids of evidence.

SPEC.md section "Sync". Follows a ledger; writes nothing.
"""

from hashlib import sha256
from typing import Annotated

from msgspec import Meta

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
    ids = sorted(entry.id for entry in tail(ledger, feed, fork))
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

    Only so far that the main chain's alone are too many, should the fork be in FORK_WINDOW.
    """
    stop = first + FORK_WINDOW + CONFLICTS_MAX + 1
    main = [read_entry(raw, ledger.net) for raw in ledger.entries(feed, first, stop)]
    rest = [entry for entry in ledger.conflicts(feed) if first <= entry.seq < stop]
    return sorted(main + rest, key=lambda entry: (entry.seq, entry.id))


class Frontier:
    """The items of one ledger, kept as it grows. `refresh` must be told of each feed that has."""

    def __init__(self, ledger: Ledger, *, feeds_max: int = FEEDS_MAX) -> None:
        self._ledger = ledger
        self._feeds_max = feeds_max
        self.heads: Items[HeadItem] = Items()
        self.proofs: Items[Digest] = Items()
        self._raw: dict[Digest, bytes] = {}
        self._offenders: dict[Digest, PublicKey] = {}
        for head in ledger.heads():
            self.refresh(head.feed)
        self.refresh_proofs()

    def has_room_for(self, feed: PublicKey) -> bool:
        """Whether entries of this feed may be taken: new feeds are up to a bound."""
        return len(self.heads) < self._feeds_max or self.heads.get(feed_key(feed)) is not None

    def refresh(self, feed: PublicKey) -> None:
        """The ledger's part of this feed has changed, or may have."""
        item = head_item(self._ledger, feed)
        if item is not None:
            self.heads.put(head_key(item), item, head_stamp(item))

    def refresh_proofs(self) -> bool:
        """The ledger's evidence has changed, or may have; whether it has."""
        known = {proof_id(raw): raw for raw in self._ledger.evidence()}
        if known.keys() == self._raw.keys():
            return False
        proofs: Items[Digest] = Items()
        for proof, raw in known.items():
            proofs.put(proof_key(proof), proof, proof)
            if proof not in self._offenders:
                self._offenders[proof] = offender(self._ledger, raw)
                self.refresh(self._offenders[proof])
        self.proofs, self._raw = proofs, known
        self._offenders = {proof: self._offenders[proof] for proof in known}
        return True

    def proof(self, proof: Digest) -> bytes | None:
        """The evidence with this id."""
        return self._raw.get(proof)

    def narrowed(self, only: dict[PublicKey, None]) -> tuple[Items[HeadItem], Items[Digest]]:
        """The items that are about these feeds, as they are now."""
        heads: Items[HeadItem] = Items()
        for feed in only:
            item = self.heads.get(feed_key(feed))
            if item is not None:
                heads.put(feed_key(feed), item, head_stamp(item))
        proofs: Items[Digest] = Items()
        for proof, feed in self._offenders.items():
            if feed in only:
                proofs.put(proof_key(proof), proof, proof)
        return heads, proofs


def offender(ledger: Ledger, raw: bytes) -> PublicKey:
    """Whom this evidence accuses. Raises PeerFault as `evidence.check`."""
    return check(raw, ledger.net).offender
