"""One replica of a simulation without a scheduler: a ledger in memory that syncs by sessions."""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, is_dataclass
from hashlib import sha256
from typing import Final

from msgspec import Struct, structs

from ledger.entry import Entry
from ledger.fold import State
from ledger.frontier import Frontier
from ledger.guard import MemoryGuard
from ledger.ledger import Ledger, open_ledger
from ledger.store import MemoryStore, Store
from ledger.sync import Effect, Ingest, Session
from protocol.errors import PeerFault
from protocol.signing import Signer
from protocol.units import NetId, PublicKey

FRAMES_MAX: Final = 400
"""Of one session, so that nobody can keep another one talking for good."""


@dataclass(slots=True, kw_only=True)
class Replica:
    """A ledger, and what sync needs to know of it."""

    number: int
    signer: Signer
    store: Store
    ledger: Ledger
    frontier: Frontier

    @property
    def feed(self) -> PublicKey:
        """Its author's key."""
        return self.ledger.feed

    def wrote(self, entry: Entry) -> Entry:
        """The entry of ours, which sync now knows of."""
        self.frontier.refresh(entry.feed)
        return entry

    def speak(self, frame: bytes) -> bytes:
        """What goes out for this frame: itself."""
        return frame

    def session(self, *, is_opener: bool, only: tuple[PublicKey, ...] | None) -> Session:
        """Our side of a session."""
        return Session(
            ledger=self.ledger,
            frontier=self.frontier,
            only=only,
            keeps=lambda _: True,
            is_opener=is_opener,
        )


def open_replica(number: int, signer: Signer, net: NetId, store: Store | None = None) -> Replica:
    """A replica with this store, or an empty one."""
    kept = MemoryStore() if store is None else store
    uuid = number.to_bytes(16, "big")
    ledger = open_ledger(store=kept, guard=MemoryGuard(), signer=signer, net=net, uuid=uuid)
    return Replica(
        number=number, signer=signer, store=kept, ledger=ledger, frontier=Frontier(ledger)
    )


@dataclass(slots=True, kw_only=True)
class Talks:
    """What has been said in all sessions so far."""

    sessions: int = 0
    frames: int = 0
    size: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    """How often each rule was broken."""


def converse(
    opener: Replica,
    server: Replica,
    talks: Talks,
    *,
    only: tuple[PublicKey, ...] | None = None,
) -> None:
    """One session, to its end or to the first broken rule; what came before stays."""
    sides = (opener.session(is_opener=True, only=only), server.session(is_opener=False, only=None))
    speakers = (opener, server)
    talks.sessions += 1
    waiting = [(1, opener.speak(sides[0].hello()))]
    try:
        for _ in range(FRAMES_MAX):
            if not waiting:
                return
            to, frame = waiting.pop(0)
            talks.frames += 1
            talks.size += len(frame) + 4
            for effect in sides[to].handle(frame):
                _perform(sides[to], effect)
            waiting += [(1 - to, speakers[to].speak(each)) for each in sides[to].reply()]
    except PeerFault as fault:
        talks.faults[fault.rule] = talks.faults.get(fault.rule, 0) + 1
    finally:
        for side in sides:
            side.settle()


def _perform(side: Session, effect: Effect) -> None:
    """All of the effect. Raises PeerFault at the first part that breaks a rule."""
    left: Effect | None = effect
    while left is not None:
        done = side.perform(left)
        if done is not None and done.fault is not None:
            raise done.fault
        left = left.after(done) if done is not None and isinstance(left, Ingest) else None


def fold_digest(state: State) -> bytes:
    """Equal for equal folds, in every process."""
    return sha256(_canonical(vars(state)).encode()).digest()


def _canonical(value: object) -> str:
    """A text that stands for the value; tables are in the order of their keys' texts."""
    match value:
        case dict():
            pairs = sorted((_canonical(key), _canonical(each)) for key, each in value.items())
            return f"{{{_joined(f'{key}:{each}' for key, each in pairs)}}}"
        case list() | tuple():
            return f"[{_joined(map(_canonical, value))}]"
        case bytes():
            return value.hex()
        case Struct():
            return type(value).__name__ + _canonical(list(structs.astuple(value)))
        case int() | str() | None:
            return repr(value)
        case _ if is_dataclass(value):
            parts = [getattr(value, each.name) for each in fields(value)]
            return type(value).__name__ + _canonical(parts)
        case _ if hasattr(value, "__dict__"):
            return type(value).__name__ + _canonical(vars(value))
        case _:
            return type(value).__name__


def _joined(texts: Iterable[str]) -> str:
    return ",".join(texts)
