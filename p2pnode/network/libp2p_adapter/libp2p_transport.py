"""The ports Gossip, Streams and Directory on one libp2p host; whom to talk to is not decided here.

The library logs a line for each connection and each failed handshake, some of them straight to
the root logger: a configuration of logging should set "libp2p" to CRITICAL and give the root
logger a handler.
"""

import logging
from collections.abc import Iterable
from dataclasses import asdict
from typing import Final

import trio
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.custom_types import TProtocol
from libp2p.network.connection.swarm_connection import SwarmConn
from libp2p.network.stream.net_stream import NetStream
from libp2p.network.swarm import Swarm
from libp2p.peer.id import ID
from multiaddr import Multiaddr
from multiaddr.utils import get_thin_waist_addresses

from p2pnode.network.libp2p_adapter.damage import Statistics
from p2pnode.network.libp2p_adapter.doors import guard
from p2pnode.network.libp2p_adapter.host import RPC_BYTES_MAX, SEEN_S, Host, build_host
from p2pnode.network.libp2p_adapter.libp2p_directory import DirectoryMode, Libp2pDirectory
from p2pnode.network.libp2p_adapter.libp2p_stream import Libp2pStream
from p2pnode.network.libp2p_adapter.lifecycle import (
    close_connection,
    open_connections,
    run_host,
)
from p2pnode.network.libp2p_adapter.patches import damage_of, doors_of
from p2pnode.network.libp2p_adapter.peer_ids import is_peer_id
from p2pnode.network.transport import Judge, StreamHandler
from protocol.errors import LocalFault, PeerFault, Unavailable
from protocol.limits import ADDRESSES_MAX
from protocol.units import PeerId

log = logging.getLogger(__name__)

ADDRESS_S: Final = 5.0
"""How long `connect` waits for one address; the dial itself ends in any case (mend_dials)."""

BUFFERED_MAX: Final = 32 * 1024 * 1024
"""Bytes that one connection may hold unread; only a peer that ignores our windows gets there."""

BUFFER_CHECK_S: Final = 1.0

PAYLOAD_MAX: Final = RPC_BYTES_MAX - 4096
"""Bytes of a gossip message, leaving room for names, keys and signatures."""

LOOPBACK: Final = ("/ip4/127.", "/ip6/::1/")

_ENDINGS: Final = (
    PeerFault,
    Unavailable,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
    trio.EndOfChannel,
    trio.TooSlowError,
)


class Libp2pTransport:
    """See Gossip, Streams and Directory.

    Everything but `serve` and `peer_id` raises Unavailable before `run` has started and after it
    was cancelled. Of the same seed one may run at a time. `announced` are the addresses to be
    found at in the directory, if others than those listened on.
    """

    def __init__(
        self,
        *,
        seed: bytes,
        listen: tuple[str, ...],
        topics: frozenset[str] | tuple[str, ...],
        heartbeat_s: float = 1,
        seen_s: float = SEEN_S,
        directory: DirectoryMode = "server",
        announced: tuple[str, ...] = (),
    ) -> None:
        self._seed = seed
        self._listen = listen
        self._topics = frozenset(topics)
        self._heartbeat_s = heartbeat_s
        self._seen_s = seen_s
        self._mode: DirectoryMode = directory
        self._announced = announced
        self._handlers: dict[str, StreamHandler] = {}
        self._dials: dict[tuple[PeerId, str], trio.Event] = {}
        self._running: tuple[Host, trio.Nursery, Libp2pDirectory] | None = None
        self.peer_id: Final = PeerId(
            ID.from_pubkey(create_new_key_pair(seed).public_key).to_bytes()
        )

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the host up until cancelled; started once it listens and gossips.

        Cancelled, it closes all connections and sockets within some seconds before it ends.
        Raises LocalFault if an address cannot be bound.
        """
        host = build_host(
            seed=self._seed,
            listen=self._listen,
            topics=self._topics,
            heartbeat_s=self._heartbeat_s,
            seen_s=self._seen_s,
        )
        directory = Libp2pDirectory(
            host=host, streams=self, mode=self._mode, announced=self._announced
        )
        ready, stop = trio.Event(), trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_host, host, self._listen, ready, stop)
            try:
                await ready.wait()
                if len(host.network.listeners) == len(self._listen):
                    self._running = (host, nursery, directory)
                    self._guard_doors()
                    for protocol, handler in self._handlers.items():
                        self._register(protocol, handler)
                    nursery.start_soon(_watch_buffers, host.network)
                    nursery.start_soon(directory.run)
                    task_status.started()
                    await trio.sleep_forever()
            finally:
                self._running = None
                stop.set()
        raise LocalFault(f"cannot listen on {', '.join(self._listen)}", "choose another port")

    async def subscribe(self, topic: str, judge: Judge) -> None:
        assert topic in self._topics, topic
        self._host.pubsub.judges[topic] = judge
        await self._host.pubsub.subscribe(topic)

    async def publish(self, topic: str, payload: bytes) -> None:
        """See Gossip. The same payload again within some minutes is lost, as a repetition."""
        assert topic in self._topics, topic
        assert len(payload) <= PAYLOAD_MAX, len(payload)
        await self._host.pubsub.publish(topic, payload)

    def mesh(self, topic: str) -> tuple[PeerId, ...]:
        return _sorted_ids(self._host.router.mesh.get(topic, ()))

    async def connect(self, peer: PeerId, addresses: tuple[str, ...]) -> None:
        """See Streams. Takes five seconds at most for each address; may be cancelled freely."""
        assert peer != self.peer_id, "nobody connects with himself"
        for address in addresses:
            if self._connections(peer):
                break
            # Not in this task: a dial that is cancelled keeps its place in the library for ever.
            key = (peer, address)
            if key not in self._dials:
                self._dials[key] = trio.Event()
                self._nursery.start_soon(self._dial, key, self._host.network)
            with trio.move_on_after(ADDRESS_S):
                await self._dials[key].wait()
        await trio.lowlevel.checkpoint()
        if not self._connections(peer):
            raise Unavailable(f"no address leads to {ID(peer)}")

    async def open_stream(self, peer: PeerId, protocol: str) -> Libp2pStream:
        """See Streams. Blocks while 256 streams of ours to the peer are open.

        A handler that fails before it has read anything may look like an unknown protocol.
        """
        if not self._connections(peer):
            raise Unavailable(f"not connected with {ID(peer)}")
        try:
            stream = await self._host.host.new_stream(ID(peer), [TProtocol(protocol)])
        except Exception as error:
            # Refused, reset, gone, too slow: the library has a class for each, or none.
            raise Unavailable(f"{ID(peer)} does not answer to {protocol}") from error
        return Libp2pStream(stream)

    def serve(self, protocol: str, handler: StreamHandler) -> None:
        self._handlers[protocol] = handler
        if self._running is not None:
            self._register(protocol, handler)

    def neighbours(self) -> tuple[PeerId, ...]:
        return _sorted_ids(
            peer
            for peer, connections in self._host.network.connections.items()
            if any(not connection.is_closed for connection in connections)
        )

    def address_of(self, peer: PeerId) -> str | None:
        """The IP address from which a peer is connected; None if it is not, or hides it."""
        for connection in self._host.network.connections.get(ID(peer), ()):
            remote = connection.muxed_conn.get_remote_address()
            if remote is not None and not connection.is_closed:
                return str(remote[0])
        return None

    def addresses(self) -> tuple[str, ...]:
        bound = [
            str(address)
            for listener in self._host.network.listeners.values()
            for wildcard in listener.get_addrs()
            for address in get_thin_waist_addresses(wildcard)
        ]
        # Loopback is for peers on this host, which may use any other address as well.
        reachable = [text for text in bound if not text.startswith(LOOPBACK)]
        return tuple((reachable or bound)[:ADDRESSES_MAX])

    async def announce(self, key: bytes) -> None:
        await self._directory.announce(key)

    async def find(self, key: bytes) -> dict[PeerId, tuple[str, ...]]:
        return await self._directory.find(key)

    def bytes_moved(self) -> int:
        """Sent and received by this run so far."""
        if self._running is None:
            return 0
        damage = damage_of(self._host.network)
        return damage.bytes_sent + damage.bytes_received

    def statistics(self) -> Statistics:
        """The totals of this run so far."""
        damage = damage_of(self._host.network)
        return Statistics(connections=len(self.neighbours()), **asdict(damage))

    @property
    def _host(self) -> Host:
        # Streams are still being answered while the host goes down, so this is no bug.
        if self._running is None:
            raise Unavailable("the transport is not running")
        return self._running[0]

    @property
    def _nursery(self) -> trio.Nursery:
        if self._running is None:
            raise Unavailable("the transport is not running")
        return self._running[1]

    @property
    def _directory(self) -> Libp2pDirectory:
        if self._running is None:
            raise Unavailable("the transport is not running")
        return self._running[2]

    def _connections(self, peer: PeerId) -> list[SwarmConn]:
        connections = self._host.network.get_connections(ID(peer))
        return [connection for connection in connections if not connection.is_closed]

    async def _dial(self, key: tuple[PeerId, str], network: Swarm) -> None:
        peer, address = key
        await trio.lowlevel.checkpoint()
        try:
            # One failure blocks a peer for a minute, whatever its new address.
            network.unblock_peer(ID(peer))
            await network.dial_addr(Multiaddr(address), ID(peer))
        except Exception as error:  # noqa: BLE001 - text and peer come from others
            log.debug("dial failed", extra={"address": address, "error": repr(error)})
        finally:
            self._dials.pop(key).set()

    def _register(self, protocol: str, handler: StreamHandler) -> None:
        async def answer(stream: NetStream) -> None:
            await self._answer(protocol, handler, stream)

        self._host.host.set_stream_handler(TProtocol(protocol), answer)

    async def _answer(self, protocol: str, handler: StreamHandler, raw: NetStream) -> None:
        remote = raw.muxed_conn.peer_id
        async with Libp2pStream(raw) as stream:
            if not is_peer_id(remote.to_bytes()):
                await stream.abort()
                return
            try:
                await handler(PeerId(remote.to_bytes()), stream)
            except Exception as error:
                await stream.abort()
                facts = {"peer": str(remote), "protocol": protocol, "error": repr(error)}
                if _is_ending(error):
                    log.info("stream given up", extra=facts)
                else:
                    # A bug of ours, yet any peer may be able to trigger it at will.
                    damage_of(raw.swarm_conn.swarm).handlers_failed += 1
                    log.exception("stream handler failed", extra=facts)

    def _guard_doors(self) -> None:
        network = self._host.network
        damage = damage_of(network)

        def refused() -> None:
            damage.connections_over_budget += 1

        for listener in network.listeners.values():
            for each in listener.listeners:
                guard(each, doors_of(network), refused)


def _sorted_ids(peers: Iterable[ID]) -> tuple[PeerId, ...]:
    raw_ids = (peer.to_bytes() for peer in peers)
    return tuple(sorted(PeerId(raw) for raw in raw_ids if is_peer_id(raw)))


def _is_ending(error: Exception) -> bool:
    if isinstance(error, ExceptionGroup):
        return all(_is_ending(part) for part in error.exceptions)
    return isinstance(error, _ENDINGS)


async def _watch_buffers(network: Swarm) -> None:
    """Close the connection of a peer that sends on beyond its windows."""
    while True:
        await trio.sleep(BUFFER_CHECK_S)
        for connection in open_connections(network):
            buffers = connection.muxed_conn.stream_buffers.values()
            if sum(len(buffer) for buffer in buffers) > BUFFERED_MAX:
                damage_of(network).connections_flooded += 1
                log.warning(
                    "peer ignores our windows",
                    extra={"peer": str(connection.muxed_conn.peer_id)},
                )
                await close_connection(connection)
