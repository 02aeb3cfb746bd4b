"""What a peer can do by gossip; see libp2p_attacks."""

from functools import partial
from typing import Any

import trio
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.crypto.secp256k1 import create_new_key_pair as create_secp256k1_key_pair
from libp2p.custom_types import TProtocol
from libp2p.peer.id import ID
from libp2p.pubsub.pb import rpc_pb2
from libp2p.pubsub.validators import PUBSUB_SIGNING_PREFIX

from p2pnode.network.libp2p_adapter.libp2p_transport import Libp2pTransport
from protocol.units import PeerId
from tests.live.libp2p_victim import against_a_victim, connection, make
from tests.transport_suite import TOPIC, Listener, link, until

GOSSIP = TProtocol("/meshsub/1.1.0")
ED25519 = create_new_key_pair(b"a" * 32)
SECP256K1 = create_secp256k1_key_pair(b"a" * 32)


async def gossip_that_is_no_protobuf() -> None:
    async def attack(attacker: Libp2pTransport, victim: Libp2pTransport) -> None:
        peer = connection(attacker, victim).muxed_conn.peer_id
        stream = await attacker._host.host.new_stream(peer, [GOSSIP])
        await stream.write(b"\x05\xff\xff\xff\xff\xff")
        await until(lambda: victim.statistics().streams_dropped == 1)

    await against_a_victim(attack)


async def gossip_of_nobody() -> None:
    """An author that is no key, with a key that is no key."""

    async def attack(attacker: Libp2pTransport, victim: Libp2pTransport) -> None:
        await victim.subscribe(TOPIC, Listener())
        message = rpc_pb2.Message(
            from_id=b"\xff\x00garbage", key=b"\xff", signature=b"x", topicIDs=[TOPIC], data=b"d"
        )
        await send_gossip(attacker, victim, message)
        await until(lambda: victim.statistics().gossip_dropped == 1)

    await against_a_victim(attack)


async def a_judge_that_raises() -> None:
    def raise_always(_forwarder: PeerId, _publisher: PeerId, _payload: bytes) -> Any:
        raise RuntimeError("a bug of ours")

    async def attack(attacker: Libp2pTransport, victim: Libp2pTransport) -> None:
        await victim.subscribe(TOPIC, raise_always)
        await send_gossip(attacker, victim, signed(ED25519, sequence=1, payload=b"d"))
        await until(lambda: victim.statistics().handlers_failed == 1)

    await against_a_victim(attack)


async def a_number_used_twice() -> None:
    """The library takes a second message with an author's old number for judged."""

    async def attack(attacker: Libp2pTransport, victim: Libp2pTransport) -> None:
        ear = Listener()
        await victim.subscribe(TOPIC, ear)
        for payload in (b"good", b"other", b"good"):
            message = signed(ED25519, sequence=7, payload=payload)
            await send_gossip(attacker, victim, message)
            with trio.fail_after(3):
                await until(partial(ear.has_heard, payload))
        await send_gossip(attacker, victim, signed(ED25519, sequence=8, payload=b"last"))
        await until(lambda: b"last" in ear.payloads())
        assert ear.payloads() == [b"good", b"other", b"last"]

    await against_a_victim(attack)


async def gossip_of_a_stranger_key() -> None:
    """A sound signature by a kind of key that is not ours."""

    async def attack(attacker: Libp2pTransport, victim: Libp2pTransport) -> None:
        ear = Listener()
        await victim.subscribe(TOPIC, ear)
        strange = signed(SECP256K1, sequence=1, payload=b"strange")
        await send_gossip(attacker, victim, strange)
        await send_gossip(attacker, victim, signed(ED25519, sequence=1, payload=b"ours"))
        await until(lambda: b"ours" in ear.payloads())
        assert ear.payloads() == [b"ours"]

    await against_a_victim(attack)


def signed(keys: Any, *, sequence: int, payload: bytes) -> Any:
    author = ID.from_pubkey(keys.public_key)
    message = rpc_pb2.Message(
        from_id=author.to_bytes(),
        seqno=sequence.to_bytes(8, "big"),
        topicIDs=[TOPIC],
        data=payload,
    )
    message.signature = keys.private_key.sign(
        PUBSUB_SIGNING_PREFIX.encode() + message.SerializeToString()
    )
    return message


async def send_gossip(attacker: Libp2pTransport, victim: Libp2pTransport, message: Any) -> None:
    queues = attacker._host.pubsub.peer_queues
    peer = connection(attacker, victim).muxed_conn.peer_id
    await until(lambda: peer in queues)
    queues[peer].push(rpc_pb2.RPC(publish=[message]))


async def a_burst_of_gossip() -> None:
    one, other = make(1), make(2)
    ear = Listener()
    async with trio.open_nursery() as nursery:
        for transport in (one, other):
            await nursery.start(transport.run)
        await link(one, other)
        await one.subscribe(TOPIC, Listener())
        await other.subscribe(TOPIC, ear)
        await until(lambda: one.mesh(TOPIC) and other.mesh(TOPIC))
        for number in range(300):
            await one.publish(TOPIC, b"%d" % number)
        with trio.fail_after(8):
            await until(lambda: len(ear.heard) == 300)
        nursery.cancel_scope.cancel()


async def an_offer_of_what_is_known() -> None:
    """Gossip to peers outside the mesh, by names that they must recognise."""
    one, other = make(1), make(2)
    ear = Listener()
    async with trio.open_nursery() as nursery:
        for transport in (one, other):
            await nursery.start(transport.run)
        await link(one, other)
        await other.subscribe(TOPIC, ear)
        await until(lambda: one.peer_id in other.neighbours() and one._host.pubsub.peer_topics)
        await one.publish(TOPIC, b"offer")
        offered = one._host.router.mcache.window(TOPIC)
        await until(lambda: ear.heard)
        assert len(offered) == 1
        assert other._host.pubsub.seen_messages.has(offered[0])
        nursery.cancel_scope.cancel()
