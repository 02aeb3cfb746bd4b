"""Which bodies can be dropped: of entries below a checkpoint, needed by nothing. SPEC.md 15.

Reads, never writes. Header and signature stay, so that links hold and forks are proved as before;
statements stay, so that no number that is derived from them changes.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ledger import keys
from ledger.bodies import Accept, Body, Grant, Release, Statement, read_body
from ledger.capability_bodies import Capacity
from ledger.checkpoints import CheckpointPart
from ledger.continuity_bodies import Successor
from ledger.entry import Entry
from ledger.fold import State
from ledger.rail_bodies import RailCapture, RailHold, RailVoid
from ledger.records import Records, Stub
from ledger.witness_bodies import Probe
from protocol.codec import encode
from protocol.units import Digest, Millis, PublicKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What was dropped."""

    entries: int
    size: int
    """Bytes of the bodies."""

    def __add__(self, other: "Pruned") -> "Pruned":
        return Pruned(entries=self.entries + other.entries, size=self.size + other.size)


def prunable(records: Records, state: State, feed: PublicKey, before_ms: Millis) -> Iterator[Entry]:
    """The entries of this feed whose bodies nothing needs, in order.

    Of a feed against which there is evidence nothing is dropped.
    """
    upto = _summed_up(state, feed, before_ms)
    if upto is None or state.fork_of(feed) is not None or any(records.evidence_of(feed)):
        return
    books = _Books(state=state, stated=_stated(state), probed=_probed(state), before_ms=before_ms)
    for raw in records.bodies_between(feed, 1, upto + 1):
        entry = records.read(raw)
        if entry.header.ts_ms > before_ms:
            return
        if not books.need(entry, read_body(entry.draft)):
            yield entry


def batch_of_pruning(entry: Entry) -> tuple[dict[bytes, bytes | None], int]:
    """What is written to drop the entry's body, and how many bytes that frees."""
    stub = encode(Stub(entry.draft.hdr, entry.signature))
    batch: dict[bytes, bytes | None] = {
        keys.pruned(entry.feed, entry.seq): stub,
        keys.entry(entry.feed, entry.seq): None,
    }
    return batch, len(entry.raw) - len(stub)


def is_complete(parts: list[CheckpointPart]) -> bool:
    """Whether the ranges of these parts of one checkpoint cover all units and accounts."""
    reached = b""
    for part in sorted(parts, key=lambda part: part.start):
        if part.start > reached:
            return False
        if part.stop is None:
            return True
        reached = max(reached, part.stop)
    return False


def _summed_up(state: State, feed: PublicKey, before_ms: Millis) -> int | None:
    """The highest place up to which old and complete checkpoints of the feed go."""
    old = [part for part in state.checkpoints(feed) if part.ts_ms <= before_ms]
    by_place: dict[int, list[CheckpointPart]] = {}
    for part in old:
        by_place.setdefault(part.upto, []).append(part)
    return max((upto for upto, parts in by_place.items() if is_complete(parts)), default=None)


def _stated(state: State) -> dict[tuple[PublicKey, Digest], None]:
    """Whose books tell of which leases."""
    return {
        (author, Digest(half.statement.lease)): None
        for author, peer, money, answers in state.accounts()
        if not answers
        for half in state.halves(author, peer, money=money)
        if isinstance(half.statement.lease, bytes)
    }


def _probed(state: State) -> dict[Digest, None]:
    return {lease: None for lease, _ in state.probed()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Books:
    """What decides whether an entry's body is still needed."""

    state: State
    stated: dict[tuple[PublicKey, Digest], None]
    probed: dict[Digest, None]
    before_ms: Millis

    def need(self, entry: Entry, body: Body | None) -> bool:
        """Whether some number, or somebody's right, hangs on what the entry says."""
        match body:
            case Statement() | Successor() | Capacity() | Probe():
                return True
            case RailHold() | RailCapture() | RailVoid():
                return True
            case Grant():
                return self._is_newest(entry, body) or self._is_live(entry.id)
            case Release():
                return self._is_newest(entry, body) or self._is_live(Digest(body.grant))
            case Accept():
                return self._is_live(Digest(body.grant))
            case _:
                return False

    def _is_newest(self, entry: Entry, body: Grant | Release) -> bool:
        """Whether the next turn of a unit comes after this one."""
        turns = (self.state.turn(entry.feed, turn.unit) for turn in body.units)
        return any(turn is not None and turn.id == entry.id for turn in turns)

    def _is_live(self, lease: Digest) -> bool:
        """Whether it may still run, its owner has not billed it yet, or somebody has probed it."""
        known = self.state.lease(lease)
        return known is not None and (
            known.ended_ms > self.before_ms
            or (known.owner, lease) not in self.stated
            or lease in self.probed
        )
