"""Kademlia messages cut down to what we say and hear; all that comes from a peer is bounded."""

from collections.abc import Iterable
from typing import Final

import trio
from google.protobuf.message import DecodeError
from libp2p.kad_dht.pb.kademlia_pb2 import Message
from libp2p.utils.varint import encode_varint_prefixed
from multiaddr import Multiaddr

from p2pnode.network.libp2p_adapter.peer_ids import is_peer_id
from protocol.errors import Unavailable
from protocol.units import PeerId

FRAME_BYTES_MAX: Final = 64 * 1024
"""Twenty closer peers and 128 providers with two addresses each take about 20 kB."""

CLOSER_MAX: Final = 20
PROVIDERS_MAX: Final = 128
"""A shard of a class is meant to hold about a hundred owners."""

ADDRESSES_MAX: Final = 8
ADDRESS_BYTES_MAX: Final = 128

Contacts = dict[PeerId, tuple[str, ...]]

FIND_NODE: Final = Message.MessageType.FIND_NODE
GET_PROVIDERS: Final = Message.MessageType.GET_PROVIDERS
ADD_PROVIDER: Final = Message.MessageType.ADD_PROVIDER
PING: Final = Message.MessageType.PING


async def read_message(stream: trio.abc.ReceiveStream) -> Message | None:
    """The next message, or None at the end. Raises Unavailable if it is none that we would read."""
    size = await _read_size(stream)
    if size is None:
        return None
    if size > FRAME_BYTES_MAX:
        raise Unavailable(f"a directory message of {size} bytes")
    frame = bytearray()
    while len(frame) < size:
        part = await stream.receive_some(size - len(frame))
        if not part:
            raise Unavailable("a directory message that ends early")
        frame += part
    return parse(bytes(frame))


def parse(frame: bytes) -> Message:
    """The message in these bytes. Raises Unavailable."""
    message = Message()
    try:
        message.ParseFromString(frame)
    except DecodeError as error:
        raise Unavailable("not a directory message") from error
    return message


def frame_of(message: Message) -> bytes:
    """The message as it is sent."""
    return encode_varint_prefixed(message.SerializeToString())


def question_of(message: Message) -> Message:
    """Of a peer's question, what we answer to; nothing else reaches the library.

    Values are neither kept nor served, and signed records would only fill the peer store.
    Raises Unavailable for all other kinds.
    """
    if message.type not in {FIND_NODE, GET_PROVIDERS, ADD_PROVIDER, PING}:
        raise Unavailable("a question that this directory does not answer")
    question = Message(type=message.type, key=message.key)
    if message.type == ADD_PROVIDER:
        add_peers(question.providerPeers, contacts_of(message.providerPeers, 1))
    return question


def add_peers(field: object, contacts: Contacts) -> None:
    """Put peers and their addresses into a repeated field of a message."""
    for peer, addresses in contacts.items():
        field.add(id=peer, addrs=[Multiaddr(a).to_bytes() for a in addresses])  # type: ignore[attr-defined]


def contacts_of(peers: Iterable[Message.Peer], most: int) -> Contacts:
    """The first so many peers with ids of our form, each with the addresses that can be read."""
    contacts: Contacts = {}
    for peer in peers:
        if len(contacts) == most:
            break
        if is_peer_id(peer.id):
            contacts.setdefault(PeerId(peer.id), _addresses_of(peer.addrs))
    return contacts


def without_peer(address: str) -> str:
    """The address without the peer's own id at its end, which others put there."""
    head, _, tail = address.rpartition("/p2p/")
    return head if head and "/" not in tail else address


def _addresses_of(raw: Iterable[bytes]) -> tuple[str, ...]:
    texts = []
    for address, _ in zip(raw, range(ADDRESSES_MAX), strict=False):
        if len(address) > ADDRESS_BYTES_MAX:
            continue
        try:
            texts.append(without_peer(str(Multiaddr(address))))
        except Exception:  # noqa: BLE001, S112 - the library raises what its many codecs raise
            continue
    return tuple(texts)


async def _read_size(stream: trio.abc.ReceiveStream) -> int | None:
    size = 0
    for shift in (0, 7, 14):
        byte = await stream.receive_some(1)
        if not byte:
            if shift:
                raise Unavailable("a directory message that ends early")
            return None
        size |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return size
    raise Unavailable("a directory message that is too large")
