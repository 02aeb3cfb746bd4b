"""A whole network in one process: the ports of `transport` without sockets."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import trio

from p2pnode.network.memory_stream import MemoryStream, memory_streams
from p2pnode.network.transport import Judge, StreamHandler, Verdict
from protocol.errors import P2PError, Unavailable
from protocol.units import PeerId

log = logging.getLogger(__name__)

Link = Callable[[PeerId, PeerId], bool]
"""Whether one gossip message gets from the first peer to the second: the dice of a world."""

HANDLERS_WAITING_MAX: Final = 1_024


def sound_link(_sender: PeerId, _receiver: PeerId) -> bool:
    """A link that loses nothing."""
    return True


@dataclass(slots=True)
class _Seat:
    """What the medium knows of one running peer."""

    address: str
    to_handle: trio.MemorySendChannel[tuple[StreamHandler, PeerId, MemoryStream]]
    judges: dict[str, Judge]
    handlers: dict[str, StreamHandler]
    connected: dict[PeerId, None] = field(default_factory=dict)
    seen: dict[tuple[PeerId, str, bytes], None] = field(default_factory=dict)


class MemoryHub:
    """The medium: who is up, at which address, connected with whom."""

    def __init__(self, link: Link = sound_link) -> None:
        self._link = link
        self._seats: dict[PeerId, _Seat] = {}
        self._pipes: dict[int, tuple[PeerId, PeerId, MemoryStream]] = {}
        self._apart: set[frozenset[PeerId]] = set()

    def sit(self, peer: PeerId, seat: _Seat) -> None:
        """The peer is up."""
        self._seats[peer] = seat

    def leave(self, peer: PeerId) -> None:
        """The peer is gone; whoever was connected with it notices at once."""
        del self._seats[peer]
        for seat in self._seats.values():
            seat.connected.pop(peer, None)
        self._reset(lambda ends: peer in ends)

    def cut(self, one: PeerId, other: PeerId) -> None:
        """Nothing passes between the two until `heal`, and no connection comes about."""
        ends = frozenset({one, other})
        self._apart.add(ends)
        for peer in ends:
            if (seat := self._seats.get(peer)) is not None:
                for gone in ends - {peer}:
                    seat.connected.pop(gone, None)
        self._reset(lambda pipe: pipe == ends)

    def heal(self) -> None:
        """Undo every cut; whoever wants to be connected again must connect."""
        self._apart.clear()

    def _reset(self, is_of: Callable[[frozenset[PeerId]], bool]) -> None:
        """Break the streams between such peers."""
        for key, (one, other, stream) in list(self._pipes.items()):
            if is_of(frozenset({one, other})):
                stream.reset()
                del self._pipes[key]

    def neighbours(self, peer: PeerId) -> tuple[PeerId, ...]:
        """Whom the peer is connected with; sorted."""
        seat = self._seats.get(peer)
        return () if seat is None else tuple(sorted(seat.connected))

    def subscribers(self, peer: PeerId, topic: str) -> tuple[PeerId, ...]:
        """The neighbours who subscribed to the topic."""
        return tuple(n for n in self.neighbours(peer) if topic in self._seats[n].judges)

    def join(self, one: PeerId, other: PeerId, addresses: tuple[str, ...]) -> None:
        """Connect two peers. Raises Unavailable if no address leads to the other one."""
        seat = self._seats.get(other)
        is_apart = frozenset({one, other}) in self._apart
        if seat is None or seat.address not in addresses or one == other or is_apart:
            raise Unavailable("no address leads to the peer")
        seat.connected[one] = None
        self._seats[one].connected[other] = None

    def open(self, one: PeerId, other: PeerId, protocol: str) -> MemoryStream:
        """A stream from one peer to another's handler. Raises Unavailable."""
        if other not in self.neighbours(one):
            raise Unavailable("not connected")
        seat = self._seats[other]
        handler = seat.handlers.get(protocol)
        if handler is None:
            raise Unavailable(f"the peer does not speak {protocol}")
        ours, theirs = memory_streams()
        try:
            seat.to_handle.send_nowait((handler, one, theirs))
        except trio.WouldBlock as error:
            raise Unavailable("the peer is too busy") from error
        self._pipes[id(theirs)] = (one, other, theirs)
        return ours

    def forget(self, stream: MemoryStream) -> None:
        """The handler of this stream has ended."""
        self._pipes.pop(id(stream), None)

    def spread(self, topic: str, publisher: PeerId, payload: bytes) -> None:
        """Flood as a mesh does: each peer judges a message once and forwards what it accepts."""
        key = (publisher, topic, payload)
        waiting = [publisher]
        while waiting:
            sender = waiting.pop(0)
            for peer in self.subscribers(sender, topic):
                seat = self._seats[peer]
                if peer == publisher or key in seat.seen or not self._link(sender, peer):
                    continue
                seat.seen[key] = None
                if seat.judges[topic](sender, publisher, payload) is Verdict.ACCEPT:
                    waiting.append(peer)


class MemoryTransport:
    """See Gossip and Streams. Every connected subscriber is in the mesh."""

    def __init__(self, hub: MemoryHub, peer_id: PeerId, address: str) -> None:
        self.peer_id: Final = peer_id
        self._hub = hub
        to_handle, self._to_handle = trio.open_memory_channel[
            tuple[StreamHandler, PeerId, MemoryStream]
        ](HANDLERS_WAITING_MAX)
        self._seat = _Seat(address=address, to_handle=to_handle, judges={}, handlers={})

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Be up until cancelled."""
        self._hub.sit(self.peer_id, self._seat)
        try:
            async with trio.open_nursery() as nursery:
                task_status.started()
                async for handler, peer, stream in self._to_handle:
                    nursery.start_soon(self._handle, handler, peer, stream)
        finally:
            self._hub.leave(self.peer_id)

    async def subscribe(self, topic: str, judge: Judge) -> None:
        self._seat.judges[topic] = judge
        await trio.lowlevel.checkpoint()

    async def publish(self, topic: str, payload: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self._hub.spread(topic, self.peer_id, payload)

    def mesh(self, topic: str) -> tuple[PeerId, ...]:
        return self._hub.subscribers(self.peer_id, topic) if topic in self._seat.judges else ()

    async def connect(self, peer: PeerId, addresses: tuple[str, ...]) -> None:
        await trio.lowlevel.checkpoint()
        if peer not in self.neighbours():
            self._hub.join(self.peer_id, peer, addresses)

    async def open_stream(self, peer: PeerId, protocol: str) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        return self._hub.open(self.peer_id, peer, protocol)

    def serve(self, protocol: str, handler: StreamHandler) -> None:
        self._seat.handlers[protocol] = handler

    def neighbours(self) -> tuple[PeerId, ...]:
        return self._hub.neighbours(self.peer_id)

    def addresses(self) -> tuple[str, ...]:
        return (self._seat.address,)

    async def _handle(self, handler: StreamHandler, peer: PeerId, stream: MemoryStream) -> None:
        """One inbound stream; what a bad peer can cause ends here."""
        try:
            async with stream:
                try:
                    await handler(peer, stream)
                except Exception:
                    stream.reset()
                    raise
        except (P2PError, trio.TooSlowError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        except Exception:
            log.exception("stream handler failed", extra={"peer": peer.hex()})
        finally:
            self._hub.forget(stream)
