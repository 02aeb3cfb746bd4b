"""What this replica has: its records, what they add up to, and where feeds end.

The three change together: first the store, then what is remembered of it. SPEC.md sections 5, 7.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from ledger import keys
from ledger.entry import Link
from ledger.evidence import check
from ledger.fold import State
from ledger.limits import PRUNE_AT_ONCE
from ledger.pruning import Pruned, batch_of_pruning, prunable
from ledger.records import Records
from ledger.store import Batch, Store
from protocol.errors import LocalFault
from protocol.units import Millis, NetId, PublicKey


class Holdings:
    """The one writer of a store, and the memory of what it holds."""

    def __init__(self, store: Store, net: NetId) -> None:
        self.net: Final = net
        self.records: Final = Records(store=store, net=net)
        self.state: Final = State()
        self._store = store
        self._heads = dict(self.records.heads())
        self._is_whole = True
        self.changes = 0
        """Writes so far."""
        self.accused: list[bytes] = []
        """The keys of the evidence written so far."""

    def head(self, feed: PublicKey) -> Link | None:
        """The end of the feed's main chain."""
        return self._heads.get(feed)

    def heads(self) -> list[tuple[PublicKey, Link]]:
        """All feeds with the ends of their main chains, in the order of the feeds."""
        return [(feed, self._heads[feed]) for feed in sorted(self._heads)]

    def check_whole(self) -> None:
        """Raises LocalFault after a write that failed: nobody knows what it left."""
        if not self._is_whole:
            raise LocalFault("A write to the ledger failed before.", "restart the node")

    def begin_step(self) -> None:
        """From here to `end_step` whatever fails leaves us not whole."""
        self._is_whole = False

    def end_step(self) -> None:
        """All of it is done."""
        self._is_whole = True

    def write(self, batch: Batch, *, sync: bool) -> None:
        """Into the store. Raises LocalFault after a write that failed, and as `Store.write`."""
        self.check_whole()
        self.begin_step()
        self._store.write(batch, sync=sync)
        self.end_step()
        self.changes += bool(batch)

    def write_grave(self, batch: Batch) -> None:
        """A batch with evidence: on the disk on return. Raises as `Store.write`."""
        self.write(batch, sync=True)
        self.accused += [key for key in batch if key.startswith(keys.EVIDENCE)]

    def evidence_since(self, count: int) -> list[bytes]:
        """What was written after the first `count`, and is kept."""
        found = [self._store.get(key) for key in dict.fromkeys(self.accused[count:])]
        return [raw for raw in found if raw is not None]

    def move_head(self, feed: PublicKey, head: Link) -> None:
        """The feed's main chain ends there now."""
        self._heads[feed] = head

    def learn_forks(self, proofs: Iterable[bytes]) -> None:
        """The evidence is in the store now."""
        for raw in proofs:
            offence = check(raw, self.net)
            if offence.seq is not None:
                self.state.fork(offence.offender, offence.seq)

    def prune(self, feed: PublicKey, before_ms: Millis) -> Iterator[Pruned]:
        """Drops what can be dropped of one feed, some at each step; see Ledger.prune_feed."""
        found = prunable(self.records, self.state, feed, before_ms)
        while entries := list(islice(found, PRUNE_AT_ONCE)):
            self.check_whole()
            batch: dict[bytes, bytes | None] = {}
            size = 0
            for entry in entries:
                dropped, freed = batch_of_pruning(entry)
                batch |= dropped
                size += freed
            self.write(batch, sync=False)
            yield Pruned(entries=len(entries), size=size)
            # Others may have written meanwhile.
            if self.state.fork_of(feed) is not None or any(self.records.evidence_of(feed)):
                return

    def load(self) -> None:
        """Folds all that is stored."""
        for entry in self.records.all_entries():
            self.state.apply(entry)
        self.learn_forks(self.records.evidence())
