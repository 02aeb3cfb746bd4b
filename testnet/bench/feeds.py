"""Feeds, replicas and stores to measure the ledger with; all keys follow from numbers."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ledger.bodies import Body, Genesis, Release, ReleaseTurn, Statement, encode_body, kind_of
from ledger.entry import NO_ENTRY, Entry, Link, draft_entry, link_of, seal
from ledger.guard import Guard, MemoryGuard
from ledger.ledger import Ledger, open_ledger
from ledger.leveldb_store import open_leveldb
from ledger.store import Store
from protocol.signing import Signer
from protocol.units import Digest, Micros, Millis, MillisSpan, NetId, PublicKey
from testnet.made_up import genesis_of

NET: Final = NetId(b"bench".ljust(32, b"."))
NOW: Final = Millis(1_700_000_000_000)
RULES: Final = b"bench..."
READER: Final = 1_000_000
"""Number of the signer that takes what others wrote."""


def signer(number: int) -> Signer:
    """The same key for the same number."""
    return Signer(number.to_bytes(32, "big"))


def genesis(of: Signer, net: NetId = NET) -> Genesis:
    """Entry 0 of this signer's feed."""
    return genesis_of(of, net, NOW)


def statement(number: int) -> Statement:
    """What an owner writes most: an hour's account of a lease, with its last tick."""
    return Statement(
        peer=PublicKey(b"p" * 32),
        ctr=number,
        used_ms=MillisSpan(number * 3_600_000),
        amount_micro=Micros(number * 250_000),
        money="USD",
        lease=Digest(b"l" * 32),
        tick=Digest(b"t" * 32),
    )


def release(ctr: int) -> Release:
    """An entry of a unit's chain; it follows nothing that there is."""
    turn = ReleaseTurn(b"unit-of-a-bench.", ctr, 1, Digest(b"g" * 32), (), 0)
    return Release(units=(turn,), grant=Digest(b"l" * 32), at_ms=NOW, reason="end")


@dataclass(slots=True)
class Feed:
    """Writes a feed without a ledger's care."""

    by: Signer
    last: Link | None = None
    net: NetId = NET

    def add(self, body: Body, ts_ms: Millis = NOW) -> Entry:
        """The next entry."""
        draft = draft_entry(
            feed=self.by.public,
            after=self.last,
            ts_ms=ts_ms,
            kind=kind_of(body),
            rules=RULES,
            body=encode_body(body),
            net=self.net,
        )
        self.last = link_of(draft)
        return seal(draft, signer=self.by, net=self.net)

    def beside(self, body: Body) -> Entry:
        """What the next entry would be, without writing it: two of these are a fork."""
        last = self.last
        entry = self.add(body)
        self.last = last
        return entry


def feed(number: int, length: int) -> list[Entry]:
    """GENESIS and statements, `length` in all."""
    author = Feed(signer(number))
    first = author.add(genesis(author.by))
    assert first.header.prev == NO_ENTRY
    return [first, *(author.add(statement(place)) for place in range(1, length))]


def open_at(store: Store, number: int, guard: Guard | None = None) -> Ledger:
    """The ledger of this signer in this store."""
    return open_ledger(
        store=store,
        guard=guard or MemoryGuard(),
        signer=signer(number),
        net=NET,
        uuid=number.to_bytes(16, "big"),
        rules=RULES,
    )


@contextmanager
def on_disk(folder: Path) -> Iterator[Store]:
    """A new LevelDB under the folder, gone afterwards."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        store = open_leveldb(str(Path(place) / "db"))
        try:
            yield store
        finally:
            store.close()
