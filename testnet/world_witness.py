"""Sees every frame of one node leave, and knows whether what it promises was durable by then."""

from typing import Final, TypeVar

from ledger import keys
from ledger.bodies import Grant, read_body
from ledger.entry import read_entry
from ledger.store import MemoryStore
from p2pnode.accounts import COSIGNED_BYTES_MAX, CosignedTick
from p2pnode.cabinet import MemoryCabinet
from protocol.auction import Reply
from protocol.codec import Wire, decode
from protocol.errors import PeerFault
from protocol.hello import Answer
from protocol.lease_stream import Cosigned
from protocol.limits import FRAME_BYTES_MAX
from protocol.units import Digest, NetId, PublicKey

T = TypeVar("T", bound=Wire)

PREFIX_BYTES: Final = 4
"""Of a frame: its length."""


class Witness:
    """Looks at the disk of a node whenever the node says something that binds it."""

    def __init__(
        self, feed: PublicKey, net: NetId, store: MemoryStore, cabinet: MemoryCabinet
    ) -> None:
        self._feed = feed
        self._net = net
        self._store = store
        self._cabinet = cabinet
        self.granted: Final[dict[Digest, None]] = {}
        """The GRANTs that have left."""
        self.broken: Final[list[str]] = []
        """Promises that left before they were durable."""

    def see(self, frame: bytes) -> None:
        """A frame is about to leave."""
        answer = _read(frame[PREFIX_BYTES:], Answer)
        if answer is None or not isinstance(answer.b, bytes):
            return
        reply = _read(answer.b, Reply)
        if reply is not None and isinstance(reply.yes, bytes):
            self._see_grant(reply.yes)
        cosigned = _read(answer.b, Cosigned)
        if cosigned is not None:
            self._see_cosigned(cosigned.by)

    def _see_grant(self, raw: bytes) -> None:
        try:
            entry = read_entry(raw, self._net)
        except PeerFault:
            return  # a bid
        if not isinstance(read_body(entry.draft), Grant):
            return
        self.granted[entry.id] = None
        if self._store.get(keys.entry(self._feed, entry.seq)) != raw:
            self.broken.append(f"GRANT {entry.id.hex()} left before it was durable")

    def _see_cosigned(self, by: bytes) -> None:
        kept = (self._cabinet.get(name) for name in self._cabinet.names("ticks"))
        if not any(
            decode(raw, CosignedTick, size_max=COSIGNED_BYTES_MAX).by == by for raw in kept if raw
        ):
            self.broken.append(f"co-signature {by.hex()} left before it was durable")


def _read(raw: bytes, kind: type[T]) -> T | None:
    try:
        return decode(raw, kind, size_max=FRAME_BYTES_MAX)
    except PeerFault:
        return None
