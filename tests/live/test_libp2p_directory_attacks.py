"""What a hostile peer can say to the directory costs its stream, and little of our memory."""

import random

import pytest
import trio
from libp2p.kad_dht.pb.kademlia_pb2 import Message
from libp2p.kad_dht.routing_table import KBucket
from libp2p.peer.id import ID
from libp2p.peer.peerinfo import PeerInfo
from multiaddr import Multiaddr

from p2pnode.network.libp2p_adapter import kad_server, provider_records
from p2pnode.network.libp2p_adapter.kad_frames import (
    ADD_PROVIDER,
    CLOSER_MAX,
    FRAME_BYTES_MAX,
    PROVIDERS_MAX,
    Contacts,
    contacts_of,
    frame_of,
    read_message,
)
from p2pnode.network.libp2p_adapter.kad_lookup import ASKED_MAX, Lookup
from p2pnode.network.libp2p_adapter.kad_server import KAD
from p2pnode.network.libp2p_adapter.libp2p_transport import Libp2pTransport
from p2pnode.network.libp2p_adapter.provider_records import KEYS_PER_PROVIDER_MAX, ProviderRecords
from protocol.errors import Unavailable
from protocol.signing import peer_id_of
from protocol.units import PeerId, PublicKey
from tests import directory_suite as suite
from tests.live.conftest import Start
from tests.live.libp2p_victim import setting

pytestmark = pytest.mark.live

Type = Message.MessageType


def peer(number: int) -> PeerId:
    return peer_id_of(PublicKey(number.to_bytes(32, "big")))


def huge_id() -> Message:
    message = Message(type=Type.ADD_PROVIDER, key=suite.KEY)
    message.providerPeers.add(id=bytes(50_000), addrs=[b"\xff" * 1000] * 10)
    return message


def of_another() -> Message:
    message = Message(type=Type.ADD_PROVIDER, key=suite.KEY)
    message.providerPeers.add(id=peer(7), addrs=[b"\x04\x7f\x00\x00\x01\x06\x10\x00"])
    return message


def value() -> Message:
    message = Message(type=Type.PUT_VALUE, key=b"/pk/key")
    message.record.key = b"/pk/key"
    message.record.value = b"value"
    return message


PING = frame_of(Message(type=Type.PING))
FRAMES = {
    "nothing": b"\x00",
    "no-protobuf": b"\x04\xff\xff\xff\xff",
    "a-size-without-end": b"\xff" * 20,
    "too-large": b"\xff\xff\x7f",
    "half-a-message": b"\x20\x08\x04",
    "no-key": frame_of(Message(type=Type.FIND_NODE)),
    "a-huge-key": frame_of(Message(type=Type.GET_PROVIDERS, key=bytes(60_000))),
    "a-value": frame_of(value()),
    "a-question-for-a-value": frame_of(Message(type=Type.GET_VALUE, key=b"/pk/key")),
    "a-huge-id": frame_of(huge_id()),
    "an-announcement-for-another": frame_of(of_another()),
    "no-signed-record": frame_of(
        Message(type=Type.FIND_NODE, key=suite.KEY, senderRecord=b"\xff" * 1000)
    ),
}


async def say(attacker: Libp2pTransport, victim: Libp2pTransport, raw: bytes) -> Message | None:
    """What the victim answers to these bytes; None for a reset or the end."""
    with trio.fail_after(5):
        async with await attacker.open_stream(victim.peer_id, KAD) as stream:
            try:
                await stream.send_all(raw)
                await stream.send_eof()
                return await read_message(stream)
            except trio.BrokenResourceError:
                return None


async def say_or_fail(
    attacker: Libp2pTransport, victim: Libp2pTransport, raw: bytes
) -> Message | None:
    """The same where even the stream may be refused."""
    try:
        return await say(attacker, victim, raw)
    except Unavailable:
        return None


async def assert_serves(victim: Libp2pTransport, visitor: Libp2pTransport) -> None:
    await visitor.connect(victim.peer_id, victim.addresses())
    await visitor.announce(suite.OTHER_KEY)
    assert visitor.peer_id in await victim.find(suite.OTHER_KEY)


@pytest.mark.parametrize("raw", FRAMES.values(), ids=FRAMES.keys())
async def test_a_hostile_message_ends_its_stream_at_most(start: Start, raw: bytes) -> None:
    attacker, victim, visitor = await start(3)
    await suite.gather_around(victim, attacker)
    for _ in range(3):
        await say(attacker, victim, raw)
    records = victim._directory._kad.provider_store
    assert records.size() == 0
    assert victim._directory._kad.get_value_store_size() == 0
    assert victim.statistics().handlers_failed == 0
    await assert_serves(victim, visitor)


async def test_noise_of_every_kind_is_survived(start: Start) -> None:
    attacker, victim, visitor = await start(3)
    await suite.gather_around(victim, attacker)
    dice = random.Random(1)
    seeds = list(FRAMES.values())
    for _ in range(150):
        raw = bytearray(dice.choice(seeds)[:2_000])
        for _ in range(dice.randrange(4)):
            raw[dice.randrange(len(raw))] = dice.randrange(256)
        await say(attacker, victim, bytes(raw))
    assert victim.statistics().handlers_failed == 0
    await assert_serves(victim, visitor)


async def test_values_are_neither_kept_nor_served(start: Start) -> None:
    attacker, victim = await start(2)
    await suite.gather_around(victim, attacker)
    assert await say(attacker, victim, FRAMES["a-value"]) is None
    assert await say(attacker, victim, FRAMES["a-question-for-a-value"]) is None


async def test_streams_that_stay_silent_make_nobody_deaf(start: Start) -> None:
    attacker, victim, visitor = await start(3)
    await suite.gather_around(victim, attacker)
    silent = [
        await attacker.open_stream(victim.peer_id, KAD)
        for _ in range(kad_server.STREAMS_PER_PEER_MAX)
    ]
    assert await say_or_fail(attacker, victim, PING) is None
    await assert_serves(victim, visitor)
    for stream in silent:
        await stream.abort()


async def test_a_silent_stream_is_cut(start: Start) -> None:
    with setting(kad_server, STREAM_S=0.5):
        attacker, victim = await start(2)
        await suite.gather_around(victim, attacker)
        with trio.fail_after(5):
            async with await attacker.open_stream(victim.peer_id, KAD) as stream:
                with pytest.raises(trio.BrokenResourceError):
                    await stream.receive_some()


async def test_one_peer_that_announces_without_end_is_refused(start: Start) -> None:
    attacker, victim = await start(2)
    await suite.gather_around(victim, attacker)
    taken = 0
    for number in range(15):
        message = Message(type=ADD_PROVIDER, key=b"\x12\x20" + number.to_bytes(32, "big"))
        where = b"\x04\x7f\x00\x00\x01\x06\x10\x00"
        message.providerPeers.add(id=attacker.peer_id, addrs=[where])
        taken += await say(attacker, victim, frame_of(message)) is not None
    assert taken == 10
    assert victim._directory._kad.provider_store.size() == 10


def info(number: int) -> PeerInfo:
    return PeerInfo(ID(peer(number)), [])


async def test_a_million_keys_of_one_provider_take_a_few_places(
    autojump_clock: trio.abc.Clock,
) -> None:
    records = ProviderRecords(ID(peer(0)))
    for number in range(20_000):
        records.add_provider(number.to_bytes(34, "big"), info(1))
    assert records.size() == KEYS_PER_PROVIDER_MAX


async def test_one_key_takes_so_many_providers_and_renews_those(
    autojump_clock: trio.abc.Clock,
) -> None:
    records = ProviderRecords(ID(peer(0)))
    for number in range(PROVIDERS_MAX + 50):
        records.add_provider(suite.KEY, info(number))
    assert len(records.get_providers(suite.KEY)) == PROVIDERS_MAX
    await trio.sleep(provider_records.RECORD_LIFE_S - 1)
    records.add_provider(suite.KEY, info(3))
    await trio.sleep(2)
    assert [provider.peer_id for provider in records.get_providers(suite.KEY)] == [info(3).peer_id]
    records.add_provider(suite.KEY, info(1_000))
    assert records.size() == 2, "the stale ones made room"


async def test_with_many_keys_of_many_providers_the_nearest_keys_stay(
    autojump_clock: trio.abc.Clock,
) -> None:
    with setting(provider_records, KEYS_MAX=50, RECORDS_MAX=60):
        records = ProviderRecords(ID(peer(0)))
        keys = [number.to_bytes(34, "big") for number in range(400)]
        for number, key in enumerate(keys):
            records.add_provider(key, info(number))
        nearest = sorted(keys, key=records._distance)[:50]
        assert [key for key in keys if records.get_providers(key)] == sorted(nearest)
        assert records.size() == 50
        for number in range(100):
            records.add_provider(nearest[0], info(1_000 + number))
        assert records.size() <= 60


def test_peers_made_up_without_end_cost_a_bounded_look_up() -> None:
    lookup = Lookup(suite.KEY, width=10, known={peer(0): ("/ip4/192.0.2.1/tcp/1",)})
    asked, made_up = 0, 1
    while batch := lookup.next_to_ask():
        asked += len(batch)
        for answerer in batch:
            closer: Contacts = dict.fromkeys(
                [peer(made_up + n) for n in range(CLOSER_MAX)], ("/ip4/192.0.2.1/tcp/1",)
            )
            made_up += CLOSER_MAX
            lookup.take(answerer, closer, {})
    assert asked <= ASKED_MAX + 4
    assert len(lookup.answered()) <= 10


def test_of_an_answer_only_what_is_wanted_is_read() -> None:
    message = Message()
    for number in range(500):
        message.closerPeers.add(id=peer(number), addrs=[b"\x04\x7f\x00\x00\x01\x06\x10\x00"] * 50)
        message.closerPeers.add(id=b"somebody else")
    contacts = contacts_of(message.closerPeers, CLOSER_MAX)
    assert len(contacts) == CLOSER_MAX
    assert set(map(len, contacts.values())) == {8}
    assert FRAME_BYTES_MAX == 65_536


async def test_a_full_bucket_dials_nobody(start: Start) -> None:
    one, other = await start(2)
    host, where = one._host.host, [Multiaddr(address) for address in other.addresses()]
    host.get_peerstore().add_addrs(ID(other.peer_id), where, 60)
    bucket = KBucket(host, 1)
    assert await bucket.add_peer(PeerInfo(ID(other.peer_id), where))
    assert await bucket.add_peer(info(2)), "nobody is connected, so the new one is as good"
    assert one.neighbours() == ()
    await one.connect(other.peer_id, other.addresses())
    bucket = KBucket(host, 1)
    assert await bucket.add_peer(PeerInfo(ID(other.peer_id), where))
    assert not await bucket.add_peer(info(2))
