"""What a peer can do to a host of the library, each as a coroutine that raises if the host fails.

`python -m tests.live.libp2p_attacks ATTACK` runs one with the cure left out, and so must fail:
that is how the tests show that each cure is still needed.
"""

import sys
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from libp2p.network.connection.exceptions import RawConnError
from libp2p.network.health.monitor import ConnectionHealthMonitor
from libp2p.pubsub.mcache import MessageCache
from libp2p.stream_muxer.yamux.yamux import Yamux

from p2pnode.network.libp2p_adapter import host, judged_pubsub, libp2p_transport, patches
from p2pnode.network.libp2p_adapter.judged_pubsub import JudgedPubsub
from p2pnode.network.libp2p_adapter.libp2p_transport import Libp2pTransport
from protocol.errors import Unavailable
from protocol.units import PeerId
from tests.live import libp2p_flood_attacks as flood
from tests.live import libp2p_gossip_attacks as gossip
from tests.live.libp2p_victim import against_a_victim, assert_serves, connection, make, setting
from tests.transport_suite import ECHO, echo, link, serve_echo, until


async def text_that_is_no_text() -> None:
    """Multistream-select decodes what a peer says without a net."""

    async def attack(attacker: Libp2pTransport, victim: Libp2pTransport) -> None:
        stream = await connection(attacker, victim).new_stream()
        await stream.write(b"\x13/multistream/1.0.0\n\x05\xff\xfe\xfd\xfc\n")
        await until(lambda: victim.statistics().streams_dropped == 1)

    await against_a_victim(attack)


async def many_visitors_in_turn() -> None:
    with setting(host, CONNECTIONS_MAX=3, CONNECTIONS_HIGH=3):
        victim = make(1)
        async with trio.open_nursery() as nursery:
            await nursery.start(victim.run)
            victim.serve(ECHO, serve_echo)
            for number in range(2, 8):
                async with trio.open_nursery() as visit:
                    visitor = make(number)
                    await visit.start(visitor.run)
                    await assert_serves(victim, visitor)
                    visit.cancel_scope.cancel()
                await until(lambda: victim.neighbours() == ())
            nursery.cancel_scope.cancel()


async def a_listener_that_falls_silent() -> None:
    """It speaks multistream-select and agrees to Noise, and then says nothing."""

    async def agree(stream: trio.SocketStream) -> None:
        await stream.send_all(b"\x13/multistream/1.0.0\n\x07/noise\n")
        await trio.sleep_forever()

    dialler = make(1)
    stranger = make(2).peer_id
    with setting(patches, DIAL_S=0.5):
        async with trio.open_nursery() as nursery:
            await nursery.start(dialler.run)
            listeners = await nursery.start(trio.serve_tcp, agree, 0)
            port = listeners[0].socket.getsockname()[1]
            with trio.move_on_after(0.1):  # giving up does not stop the dial, nor start another
                await dialler.connect(stranger, (f"/ip4/127.0.0.1/tcp/{port}",))
            assert len(dialler._dials) == 1
            with pytest.raises(Unavailable):
                await dialler.connect(stranger, (f"/ip4/127.0.0.1/tcp/{port}",))
            with trio.fail_after(3):
                await until(lambda: not dialler._dials)
            assert dialler._host.network._resource_manager._current_connections == 0
            nursery.cancel_scope.cancel()


class SlowWire:
    """A secured connection that takes a frame in two parts, or never the second one."""

    is_initiator = True

    def __init__(self, *, gap_s: float) -> None:
        self.gap_s = gap_s
        self.written = b""
        self.is_closed = False

    async def write(self, data: bytes) -> None:
        self.written += data[:6]
        await trio.sleep(self.gap_s)
        self.written += data[6:]

    async def close(self) -> None:
        self.is_closed = True
        await trio.lowlevel.checkpoint()


def yamux_over(wire: SlowWire) -> Any:
    muxer = Yamux(wire, peer_id="somebody", is_initiator=True)
    muxer.swarm = SimpleNamespace()
    return muxer


async def a_write_that_is_cancelled() -> None:
    patches.apply()
    wire = SlowWire(gap_s=0.05)
    with trio.move_on_after(0.01):
        await yamux_over(wire)._write_frame(b"twelve bytes")
    assert wire.written == b"twelve bytes"


async def a_peer_that_never_reads() -> None:
    patches.apply()
    wire = SlowWire(gap_s=1000)
    muxer = yamux_over(wire)
    with setting(patches, WRITE_STALL_S=0.1), trio.fail_after(3), pytest.raises(RawConnError):
        await muxer._write_frame(b"twelve bytes")
    assert wire.is_closed
    assert patches.damage_of(muxer.swarm).connections_stalled == 1


async def a_stream_that_is_cancelled_while_it_opens() -> None:
    one, other = make(1), make(2)
    async with trio.open_nursery() as nursery:
        for transport in (one, other):
            await nursery.start(transport.run)
        other.serve(ECHO, serve_echo)
        await link(one, other)
        muxer = connection(one, other).muxed_conn
        # What the library keeps open for itself: gossip, once identify is through.
        await until(lambda: one._host.pubsub.peers and not one._host.host._identify_inflight)
        places = muxer.stream_backlog_semaphore.value
        fast = muxer.secured_conn.write

        async def slow(data: bytes) -> None:
            await trio.sleep(0.02)
            await fast(data)

        muxer.secured_conn.write = slow
        for _ in range(5):
            with trio.move_on_after(0.01):
                await one.open_stream(other.peer_id, ECHO)
        muxer.secured_conn.write = fast
        assert await echo(one, other.peer_id, b"hello") == b"hello"
        with trio.fail_after(3):  # later the other side gives up and the place comes back
            await until(lambda: muxer.stream_backlog_semaphore.value == places)
        nursery.cancel_scope.cancel()


async def a_reader_of_single_bytes() -> None:
    """Not an attack but how the library itself reads: a frame of credit for each byte."""

    async def speak(_remote: PeerId, stream: trio.abc.Stream) -> None:
        await stream.send_all(bytes(500))

    one, other = make(1), make(2)
    async with trio.open_nursery() as nursery:
        for transport in (one, other):
            await nursery.start(transport.run)
        other.serve("/attack/speak/1", speak)
        await link(one, other)
        frames = []
        muxer = connection(one, other).muxed_conn
        write = muxer._write_frame

        async def count(data: bytes) -> None:
            frames.append(data)
            await write(data)

        muxer._write_frame = count
        async with await one.open_stream(other.peer_id, "/attack/speak/1") as stream:
            for _ in range(500):
                await stream.receive_some(1)
        assert len(frames) < 50, len(frames)
        nursery.cancel_scope.cancel()


async def an_address_from_hearsay() -> None:
    """The library must not dial what it happens to hear of."""
    one, other = make(1), make(2)
    async with trio.open_nursery() as nursery:
        for transport in (one, other):
            await nursery.start(transport.run)
        network = one._host.network
        network.peerstore.add_addrs(other._host.host.get_id(), other._host.host.get_addrs(), 120)
        await network.auto_connector.maybe_connect()
        assert one.neighbours() == ()
        nursery.cancel_scope.cancel()


async def many_peers_that_hang() -> None:
    patches.apply()
    swarm = SimpleNamespace(
        connections={number: [object()] for number in range(10)}, connection_config=None
    )
    monitor = ConnectionHealthMonitor(swarm)
    checked: list[int] = []

    async def ping(peer: int, _connection: object) -> None:
        await trio.sleep(0.3)
        checked.append(peer)

    monitor._check_connection_health = ping
    with trio.fail_after(1):
        await monitor._check_all_connections()
    assert sorted(checked) == list(range(10))


async def a_sender_that_ignores_our_windows() -> None:
    async def never_read(_remote: PeerId, _stream: trio.abc.Stream) -> None:
        await trio.sleep_forever()

    async def attack(attacker: Libp2pTransport, victim: Libp2pTransport) -> None:
        victim.serve("/attack/flood/1", never_read)
        stream = await attacker.open_stream(victim.peer_id, "/attack/flood/1")
        stream._muxed.send_window = 1 << 30
        with pytest.raises(trio.BrokenResourceError):
            await send_for_ever(stream)
        await until(lambda: victim.statistics().connections_flooded == 1)

    with setting(libp2p_transport, BUFFERED_MAX=1024 * 1024):
        await against_a_victim(attack)


async def send_for_ever(stream: trio.abc.SendStream) -> None:
    with trio.fail_after(5):
        while True:
            await stream.send_all(bytes(64 * 1024))
            await trio.sleep(0.01)


async def _watch_nothing(_network: object) -> None:
    await trio.sleep_forever()


def leave_out(patch: Callable[[], None]) -> Callable[[], None]:
    def cripple() -> None:
        patches.PATCHES = tuple(other for other in patches.PATCHES if other is not patch)

    return cripple


def leave_out_judging_guard() -> None:
    del JudgedPubsub.push_msg
    setattr(JudgedPubsub, "_ask", lambda _self, judge, *question: judge(*question))  # noqa: B010


def leave_out_watch() -> None:
    setattr(libp2p_transport, "_watch_buffers", _watch_nothing)  # noqa: B010


def leave_out_key_check() -> None:
    setattr(judged_pubsub, "is_peer_id", lambda _raw: True)  # noqa: B010


def leave_out_message_cache() -> None:
    setattr(host, "MessagesById", MessageCache)  # noqa: B010


def leave_out_message_id() -> None:
    from libp2p.pubsub.pubsub import get_peer_and_seqno_msg_id

    judged_pubsub.message_id = get_peer_and_seqno_msg_id


Attack = Callable[[], Awaitable[None]]

ATTACKS: dict[Attack, tuple[Callable[[], None], str]] = {
    text_that_is_no_text: (leave_out(patches.mend_inbound_streams), "UnicodeDecodeError"),
    gossip.gossip_that_is_no_protobuf: (leave_out(patches.mend_inbound_streams), "DecodeError"),
    gossip.gossip_of_nobody: (leave_out_judging_guard, "DecodeError"),
    gossip.gossip_of_a_stranger_key: (leave_out_key_check, "AssertionError"),
    gossip.a_judge_that_raises: (leave_out_judging_guard, "RuntimeError: a bug of ours"),
    gossip.a_number_used_twice: (leave_out_message_id, "TooSlowError"),
    gossip.an_offer_of_what_is_known: (leave_out_message_cache, "AssertionError"),
    many_visitors_in_turn: (leave_out(patches.mend_inbound_slots), "Unavailable"),
    a_listener_that_falls_silent: (leave_out(patches.mend_dials), "TooSlowError"),
    a_write_that_is_cancelled: (leave_out(patches.mend_frame_writing), "AssertionError"),
    a_peer_that_never_reads: (leave_out(patches.mend_frame_writing), "TooSlowError"),
    a_stream_that_is_cancelled_while_it_opens: (
        leave_out(patches.mend_stream_opening),
        "TooSlowError",
    ),
    a_reader_of_single_bytes: (leave_out(patches.mend_credit), "AssertionError"),
    gossip.a_burst_of_gossip: (leave_out(patches.mend_gossip_queue), "TooSlowError"),
    an_address_from_hearsay: (leave_out(patches.mend_auto_connector), "AssertionError"),
    many_peers_that_hang: (leave_out(patches.mend_health_checks), "TooSlowError"),
    a_sender_that_ignores_our_windows: (leave_out_watch, "TooSlowError"),
    flood.topics_that_are_invented: (flood.leave_out_known_topics, "AssertionError"),
    flood.a_peer_that_is_left_alone_and_leaves: (flood.leave_out_known_topics, "TooSlowError"),
    flood.signatures_without_end: (flood.leave_out_signature_budget, "TooSlowError"),
    flood.gossip_faster_than_we_read: (flood.leave_out_pace, "AssertionError"),
    flood.a_list_of_a_thousand_addresses: (
        leave_out(patches.mend_address_lists),
        "AssertionError",
    ),
    flood.addresses_that_are_pushed: (flood.leave_identify_push, "DID NOT RAISE"),
    flood.streams_without_end: (flood.leave_out_doors, "TooSlowError"),
    flood.a_source_that_knocks_and_knocks: (flood.leave_out_doors, "TooSlowError"),
}
"""Each attack, what leaves its cure out of a fresh process, and what then shows."""


def main(name: str) -> None:
    """Run the attack on a host without the cure."""
    attack = next(attack for attack in ATTACKS if attack.__name__ == name)
    cripple, _symptom = ATTACKS[attack]
    cripple()
    trio.run(attack)


if __name__ == "__main__":
    main(sys.argv[1])
