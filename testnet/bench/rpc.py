"""GossipSub and identify messages written by hand, sound or not: attackers need both."""

from typing import Final

from nacl.signing import SigningKey

from protocol.units import PeerId

PREFIX: Final = b"libp2p-pubsub:"


def varint(number: int) -> bytes:
    """The number in base 128, lowest first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number: int, value: bytes | int) -> bytes:
    """One field of a protobuf message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def fields(number: int, values: list[bytes]) -> bytes:
    """A repeated field."""
    return b"".join(field(number, value) for value in values)


def prefixed(message: bytes) -> bytes:
    """As it goes over a stream."""
    return varint(len(message)) + message


def published(*messages: bytes) -> bytes:
    """An RPC that publishes these messages."""
    return prefixed(fields(2, list(messages)))


def controlled(control: bytes) -> bytes:
    """An RPC with this control message."""
    return prefixed(field(3, control))


def subscribed(topics: list[str]) -> bytes:
    """An RPC that subscribes to the topics."""
    return prefixed(fields(1, [field(1, 1) + field(2, topic.encode()) for topic in topics]))


def message(publisher: PeerId, topic: str, data: bytes, seqno: int) -> bytes:
    """A gossip message without a signature; what is signed."""
    return (
        field(1, publisher)
        + field(2, data)
        + field(3, (seqno % 2**64).to_bytes(8, "big"))
        + field(4, topic.encode())
    )


def sealed(peer_seed: bytes, unsigned: bytes) -> bytes:
    """The message with its publisher's signature."""
    return unsigned + field(5, SigningKey(peer_seed).sign(PREFIX + unsigned).signature)
