"""Mends py-libp2p 0.8.1, so that no peer can end, deafen or hang the host; adds no features.

These are replacements of private methods, hence the exact pin. A patch may go when its test in
`tests/live/test_libp2p_patches.py` passes without it on a newer release.
"""

import functools
import logging
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import version
from typing import Final

import trio
from libp2p.io.abc import ReadWriteCloser
from libp2p.kad_dht.routing_table import KBucket
from libp2p.network.auto_connector import AutoConnector
from libp2p.network.connection.exceptions import RawConnError
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.network.connection.swarm_connection import SwarmConn
from libp2p.network.health.monitor import ConnectionHealthMonitor
from libp2p.network.swarm import Swarm
from libp2p.peer.id import ID
from libp2p.peer.peerdata import PeerData
from libp2p.pubsub import gossipsub as gossipsub_module
from libp2p.pubsub import pubsub as pubsub_module
from libp2p.stream_muxer.yamux.yamux import Yamux, YamuxStream
from libp2p.transport.tcp.tcp import TCP
from multiaddr import Multiaddr

from p2pnode.network.libp2p_adapter.counted import CountedConnection
from p2pnode.network.libp2p_adapter.damage import Damage
from p2pnode.network.libp2p_adapter.doors import Doors
from p2pnode.network.libp2p_adapter.health import check_health

log = logging.getLogger(__name__)

LIBRARY_VERSION: Final = "0.8.1"

WRITE_STALL_S: Final = 10.0
"""How long a peer may leave its receive buffer full before its connection is closed."""

DIAL_S: Final = 4.0
"""For the TCP connect of a dial, and once more for the Noise and yamux handshakes."""

CREDIT_STEP: Final = 64 * 1024
"""Bytes read before we tell the sender; a quarter of the smallest window, so it never starves."""

RPC_QUEUE: Final = 1024
"""Gossip messages waiting for one peer; beyond that they are dropped silently."""

PEER_ADDRESSES_MAX: Final = 16
"""Addresses of one peer that the library keeps; an advert has at most eight."""

Method = Callable[..., Awaitable[object]]

_CLOSE_S: Final = 1.0
_MARK: Final = "_mended_by_p2pnode"
_COUNT_MARK: Final = "_counted_by_p2pnode"


def apply() -> None:
    """Put all patches in place; again is harmless."""
    installed = version("libp2p")
    assert installed == LIBRARY_VERSION, (
        f"patches are for libp2p {LIBRARY_VERSION}, not {installed}"
    )
    for patch in PATCHES:
        patch()


def damage_of(swarm: Swarm) -> Damage:
    """The counters of the host that this swarm belongs to."""
    damage: Damage = vars(swarm).setdefault("_p2pnode_damage", Damage())
    return damage


def doors_of(swarm: Swarm) -> Doors:
    """What others may ask of the host that this swarm belongs to."""
    doors: Doors = vars(swarm).setdefault("_p2pnode_doors", Doors())
    return doors


def _replace(owner: object, name: str, wrap: Callable[..., object], *, mark: str = _MARK) -> None:
    original = getattr(owner, name)
    if hasattr(original, mark):
        return
    replacement = wrap(original)
    setattr(replacement, mark, True)
    setattr(owner, name, replacement)


def mend_inbound_streams() -> None:
    """An inbound stream that raises is reset; without this it ends the process.

    Non-UTF-8 in multistream-select and an unparsable gossip frame suffice. And a peer that opens
    them faster than any use of ours has its further ones reset: each may fill a window of 256 KiB.
    May go when SwarmConn catches the errors of its stream tasks, and counts them.
    """

    def wrap(original: Method) -> Method:
        async def handle(self: SwarmConn, muxed_stream: YamuxStream) -> None:
            if not doors_of(self.swarm).may_open_stream(self.muxed_conn.peer_id):
                damage_of(self.swarm).streams_over_budget += 1
                with trio.move_on_after(_CLOSE_S, shield=True):
                    await _reset_quietly(muxed_stream)
                return
            try:
                await original(self, muxed_stream)
            except Exception as error:  # noqa: BLE001 - the peer decides what the library raises
                damage_of(self.swarm).streams_dropped += 1
                log.debug(
                    "inbound stream dropped",
                    extra={"peer": str(self.muxed_conn.peer_id), "error": repr(error)},
                )
                with trio.move_on_after(_CLOSE_S, shield=True):
                    await _reset_quietly(muxed_stream)

        return handle

    _replace(SwarmConn, "_handle_muxed_stream", wrap)


async def _reset_quietly(muxed_stream: YamuxStream) -> None:
    await trio.lowlevel.checkpoint()
    try:
        await muxed_stream.reset()
    except Exception as error:  # noqa: BLE001 - the stream is being given up already
        log.debug("reset failed", extra={"error": repr(error)})


def mend_inbound_slots() -> None:
    """An inbound connection gives its slot back when it ends.

    The library waits for the end of the whole swarm instead, so that after some hundred
    connections in total nobody can connect. Only plain streams (TCP, WebSocket) come here, as
    QUIC is off. May go when the library waits for `event_closed` of the connection.
    """

    def wrap(_original: Method) -> Method:
        async def serve(
            self: Swarm, socket: ReadWriteCloser, listener: Multiaddr, _: object
        ) -> None:
            connection = RawConnection(socket, False)
            try:
                remote = self._build_remote_multiaddr(socket)
                if remote is None or await self.connection_gate.is_allowed(remote):
                    muxed = await self.upgrade_inbound_raw_conn(connection, listener)
                    await muxed.event_closed.wait()
            except Exception as error:  # noqa: BLE001 - a bad handshake raises anything
                log.debug("inbound connection refused", extra={"error": repr(error)})
            finally:
                with trio.move_on_after(_CLOSE_S, shield=True):
                    await connection.close()

        return serve

    _replace(Swarm, "_do_handle_inbound_connection", wrap)


def mend_dials() -> None:
    """A dial always ends by itself, so that nobody has to cancel it.

    The library bounds neither the connect nor the outbound Noise handshake, and a dial that is
    cancelled from outside keeps its place in the resource manager. A deadline inside raises an
    ordinary error there, which it cleans up after. May go when `Swarm.dial_addr` bounds both.
    """

    def wrap(original: Method) -> Method:
        async def bounded(self: object, *args: object) -> object:
            with trio.fail_after(DIAL_S):
                return await original(self, *args)

        return bounded

    _replace(TCP, "dial", wrap)
    _replace(Swarm, "upgrade_outbound_raw_conn", wrap)


def mend_frame_writing() -> None:
    """A yamux frame is written whole, or the connection is closed.

    A cancelled write leaves half a Noise packet on the wire and the connection dead for all its
    other streams; a peer that never reads blocks every writer for ever. May go when the library
    shields its writes and bounds them.
    """

    def wrap(_original: Method) -> Method:
        async def write_frame(self: Yamux, data: bytes) -> None:
            async with self._write_lock:
                with trio.move_on_after(WRITE_STALL_S, shield=True) as patience:
                    await self.secured_conn.write(data)
                if patience.cancelled_caught:
                    damage_of(self.swarm).connections_stalled += 1
                    log.info("connection stalled", extra={"peer": str(self.peer_id)})
                    # Its reading task sees the end of the connection and cleans up.
                    with trio.move_on_after(_CLOSE_S, shield=True):
                        await self.secured_conn.close()
                    raise RawConnError("connection closed: the peer does not read")
            await trio.lowlevel.checkpoint()

        return write_frame

    _replace(Yamux, "_write_frame", wrap)


def mend_stream_opening() -> None:
    """Opening a stream may be cancelled without losing one of the 256 places of its connection.

    Waiting for a place stays cancellable. May go when `Yamux.open_stream` gives the place back
    on cancellation too.
    """

    def wrap(original: Method) -> Method:
        async def new_stream(self: SwarmConn) -> object:
            places = self.muxed_conn.stream_backlog_semaphore
            await places.acquire()
            places.release()  # nobody runs between this and the acquire within
            # Bounded, because the frame that opens the stream is (mend_frame_writing).
            with trio.CancelScope(shield=True):
                return await original(self)
            raise AssertionError("a shield alone swallows no cancellation")

        return new_stream

    _replace(SwarmConn, "new_stream", wrap)


def mend_credit() -> None:
    """Credit for what was read is sent in steps, not once for each read.

    Gossip reads its lengths byte by byte, and each read cost a frame: more than half of the CPU
    time of a message. May go when the library batches small updates.
    """

    def wrap(original: Method) -> Method:
        async def credit(self: YamuxStream, *, bytes_read: int = 0) -> None:
            held = getattr(self, "_p2pnode_held", 0) + bytes_read
            if held < CREDIT_STEP:
                self._p2pnode_held = held
                await trio.lowlevel.checkpoint()
                return
            self._p2pnode_held = 0
            await original(self, bytes_read=held)

        return credit

    _replace(YamuxStream, "_auto_tune_and_send_window_update", wrap)


def mend_gossip_queue() -> None:
    """A burst of gossip fits into a peer's outbound queue; 32 places lose most of it silently.

    May go when the size is an argument of Pubsub.
    """
    _replace(pubsub_module, "RpcQueue", lambda queue: functools.partial(queue, max_size=RPC_QUEUE))


def mend_health_checks() -> None:
    """All connections are pinged at once, by a frame of yamux, and closed at the second silence.

    One after the other, each peer that hangs holds up the check of all the rest by its timeout. A
    stream for each ping costs both sides more than all the gossip of a quiet network. And on a
    machine that is short of time one late answer cuts connections, whose renewal costs still more
    time, until nobody is connected. May go when the library's monitor does the same.
    """

    def wrap_all(_original: Method) -> Method:
        async def check(self: ConnectionHealthMonitor) -> None:
            async with trio.open_nursery() as nursery:
                for peer, connections in list(self.swarm.connections.items()):
                    for connection in connections:
                        nursery.start_soon(self._check_connection_health, peer, connection)

        return check

    def wrap_one(_original: Method) -> Method:
        async def check(self: ConnectionHealthMonitor, _peer: ID, connection: SwarmConn) -> None:
            await check_health(connection, answer_s=self.config.ping_timeout)

        return check

    _replace(ConnectionHealthMonitor, "_check_all_connections", wrap_all)
    _replace(ConnectionHealthMonitor, "_check_connection_health", wrap_one)


def mend_peer_records() -> None:
    """The signed addresses that come with each gossip message are not looked at.

    The library verifies a signature for each, some twice, and parses as many addresses as there
    are; ours come by adverts. May go when it looks at what has changed only.
    """

    def wrap(_original: Callable[..., bool]) -> object:
        return lambda _message, _host, _peer: True

    for module in (pubsub_module, gossipsub_module):
        _replace(module, "maybe_consume_signed_record", wrap)


def mend_address_lists() -> None:
    """Of one peer's addresses the newest sixteen are kept.

    Each one is compared with all that are kept: a list of a thousand stops the host for a second.
    May go when the library bounds the list.
    """

    def wrap(original: Callable[..., None]) -> object:
        def add(self: PeerData, addrs: Sequence[Multiaddr]) -> None:
            original(self, addrs[-PEER_ADDRESSES_MAX:])
            del self.addrs[:-PEER_ADDRESSES_MAX]

        return add

    _replace(PeerData, "add_addrs", wrap)


def mend_auto_connector() -> None:
    """Only we dial.

    The library aims at the middle between its two watermarks, so even with a low one of nought
    it dials everybody that it has heard of, and cancels those dials too. May go when it dials
    nobody with `low_watermark=0`.
    """

    def wrap(_original: Method) -> Method:
        async def connect_nobody(_self: AutoConnector) -> None:
            await trio.lowlevel.checkpoint()

        return connect_nobody

    _replace(AutoConnector, "maybe_connect", wrap)


def mend_full_buckets() -> None:
    """A full bucket of the routing table keeps whom we are connected with, and dials nobody.

    The library pings the oldest of the bucket before it lets a new one in, dialling it if need
    be, so that anybody who fills a bucket decides where we dial. May go when it asks the swarm.
    """

    def wrap(_original: Method) -> Method:
        async def is_connected(self: KBucket, peer_id: ID) -> bool:
            await trio.lowlevel.checkpoint()
            return peer_id in self.host.get_connected_peers()

        return is_connected

    _replace(KBucket, "_ping_peer", wrap)


def count_bytes() -> None:
    """What every connection sends and receives is counted; the library's own metrics hang it.

    Not a mend, and without a row among the attacks: `test_what_passes_a_host_is_counted`.
    """

    def wrap(original: Method) -> Method:
        @functools.wraps(original)
        async def upgrade(
            self: Swarm, raw: RawConnection, *more: object, **named: object
        ) -> object:
            if isinstance(raw, RawConnection):
                raw.stream = CountedConnection(raw.stream, damage_of(self))
            return await original(self, raw, *more, **named)

        return upgrade

    _replace(Swarm, "upgrade_inbound_raw_conn", wrap, mark=_COUNT_MARK)
    _replace(Swarm, "upgrade_outbound_raw_conn", wrap, mark=_COUNT_MARK)


PATCHES: tuple[Callable[[], None], ...] = (
    mend_inbound_streams,
    mend_inbound_slots,
    mend_dials,
    mend_frame_writing,
    mend_stream_opening,
    mend_credit,
    mend_gossip_queue,
    mend_health_checks,
    mend_peer_records,
    mend_address_lists,
    mend_auto_connector,
    mend_full_buckets,
    count_bytes,
)
