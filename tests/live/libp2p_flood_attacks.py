"""What a peer can do by sheer number; see libp2p_attacks."""

from functools import partial
from typing import Any

import pytest
import trio
from libp2p.peer.peerdata import PeerData
from libp2p.pubsub.pb import rpc_pb2
from multiaddr import Multiaddr

from p2pnode.network.libp2p_adapter import doors, host, judged_pubsub, paced_reading, patches
from p2pnode.network.libp2p_adapter.doors import Doors
from p2pnode.network.libp2p_adapter.judged_pubsub import JudgedPubsub
from p2pnode.network.libp2p_adapter.known_topics import KnownTopicsRouter
from p2pnode.network.libp2p_adapter.libp2p_transport import Libp2pTransport
from p2pnode.network.libp2p_adapter.paced_reading import PacedStream
from protocol.errors import Unavailable
from tests.live.libp2p_gossip_attacks import ED25519, GOSSIP, send_gossip, signed
from tests.live.libp2p_victim import against_a_victim, connection, make, setting
from tests.transport_suite import ECHO, TOPIC, Listener, until

IDENTIFY_PUSH = "/ipfs/id/push/1.0.0"


async def topics_that_are_invented() -> None:
    """The library keeps times for every topic that a peer names, for ever."""

    async def attack(attacker: Libp2pTransport, victim: Libp2pTransport) -> None:
        ear = Listener()
        await victim.subscribe(TOPIC, ear)
        control = rpc_pb2.ControlMessage()
        for number in range(100):
            control.prune.add(topicID=f"invented {number}", backoff=2**40)
            control.graft.add(topicID=f"invented {number}")
            control.ihave.add(topicID=f"invented {number}", messageIDs=[b"00"])
        await send_control(attacker, victim, control)
        await send_gossip(attacker, victim, signed(ED25519, sequence=1, payload=b"last"))
        await until(lambda: b"last" in ear.payloads())
        router = victim._host.router
        peer = connection(victim, attacker).muxed_conn.peer_id
        assert "invented 1" not in router.back_off
        assert not router.graft_flood_tracking[peer]
        assert not router.ihave_message_limits[peer]

    await against_a_victim(attack)


async def a_peer_that_is_left_alone_and_leaves() -> None:
    async def attack(attacker: Libp2pTransport, victim: Libp2pTransport) -> None:
        await victim.subscribe(TOPIC, Listener())
        control = rpc_pb2.ControlMessage()
        control.prune.add(topicID=TOPIC, backoff=2**40)
        await send_control(attacker, victim, control)
        router = victim._host.router
        await until(lambda: bool(router.back_off.get(TOPIC)))
        await connection(victim, attacker).close()
        with trio.fail_after(3):
            await until(lambda: not router.back_off[TOPIC])

    await against_a_victim(attack)


async def signatures_without_end() -> None:
    """The library verifies each of them before it asks anybody."""

    async def attack(attacker: Libp2pTransport, victim: Libp2pTransport) -> None:
        await victim.subscribe(TOPIC, Listener())
        for number in range(30):
            message = signed(ED25519, sequence=number, payload=b"%d" % number)
            message.signature = bytes(64)
            await send_gossip(attacker, victim, message)
        with trio.fail_after(3):
            await until(lambda: victim.statistics().gossip_over_budget >= 15)

    with setting(judged_pubsub, SIGNATURES_PER_S=1, SIGNATURES_BURST=10):
        await against_a_victim(attack)


async def gossip_faster_than_we_read() -> None:
    """Whatever it is, it costs: control messages have no budget of their own."""

    async def attack(attacker: Libp2pTransport, victim: Libp2pTransport) -> None:
        await victim.subscribe(TOPIC, Listener())
        stream = await attacker.open_stream(victim.peer_id, GOSSIP)
        sent = 0
        with trio.move_on_after(1) as patience:
            while sent < 1024 * 1024:
                await stream.send_all(b"\x80\x80\x01" + b"\x22\xfc\xff\x00" + bytes(16_380))
                sent += 16_387
        assert patience.cancelled_caught, sent

    with setting(paced_reading, BYTES_PER_S=10_000, BYTES_BURST=50_000):
        await against_a_victim(attack)


async def a_list_of_a_thousand_addresses() -> None:
    """Each is compared with all before it."""
    patches.apply()
    peer = PeerData()
    for number in range(1_000):
        peer.add_addrs([Multiaddr(f"/ip4/10.0.0.1/tcp/{number + 1}")])
    assert len(peer.get_addrs()) == patches.PEER_ADDRESSES_MAX
    assert str(peer.get_addrs()[-1]).endswith("/1000")
    await trio.lowlevel.checkpoint()


async def addresses_that_are_pushed() -> None:
    async def attack(attacker: Libp2pTransport, victim: Libp2pTransport) -> None:
        with pytest.raises(Unavailable):
            await attacker.open_stream(victim.peer_id, IDENTIFY_PUSH)

    await against_a_victim(attack)


async def streams_without_end() -> None:
    async def attack(attacker: Libp2pTransport, victim: Libp2pTransport) -> None:
        for _ in range(20):
            with trio.move_on_after(0.2):
                try:
                    await attacker.open_stream(victim.peer_id, ECHO)
                except Unavailable:
                    break
        with trio.fail_after(3):
            await until(lambda: victim.statistics().streams_over_budget > 0)

    with setting(doors, STREAMS_PER_S=0.1, STREAMS_BURST=12):
        await against_a_victim(attack)


async def a_source_that_knocks_and_knocks() -> None:
    victim = make(1)
    with setting(doors, CONNECTS_PER_S=0.1, CONNECTS_BURST=5):
        async with trio.open_nursery() as nursery:
            await nursery.start(victim.run)
            _, _, address, _, port = victim.addresses()[0].split("/")
            # The first was awaited before the door was guarded, five are the burst.
            for _ in range(20):
                stream = await trio.open_tcp_stream(address, int(port))
                nursery.start_soon(partial(_listen, stream))
            with trio.fail_after(3):
                await until(lambda: victim.statistics().connections_over_budget == 14)
            nursery.cancel_scope.cancel()


async def _listen(stream: trio.SocketStream) -> None:
    async with stream:
        while await stream.receive_some():
            pass


async def send_control(attacker: Libp2pTransport, victim: Libp2pTransport, control: Any) -> None:
    queues = attacker._host.pubsub.peer_queues
    peer = connection(attacker, victim).muxed_conn.peer_id
    await until(lambda: peer in queues)
    queues[peer].push(rpc_pb2.RPC(control=control))


def leave_out_known_topics() -> None:
    for name in ("handle_ihave", "handle_graft", "handle_prune", "remove_peer"):
        delattr(KnownTopicsRouter, name)


def leave_out_signature_budget() -> None:
    setattr(JudgedPubsub, "_may_be_verified", lambda _self, _forwarder: True)  # noqa: B010


def leave_out_pace() -> None:
    async def read(self: PacedStream, size: int | None = None) -> Any:
        return await self._stream.read(size)

    setattr(PacedStream, "read", read)  # noqa: B010


def leave_out_doors() -> None:
    setattr(Doors, "may_connect", lambda _self, _remote: True)  # noqa: B010
    setattr(Doors, "may_open_stream", lambda _self, _peer: True)  # noqa: B010


def leave_identify_push() -> None:
    setattr(host, "refuse_pushed_addresses", lambda _host: None)  # noqa: B010
