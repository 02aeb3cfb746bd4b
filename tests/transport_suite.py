"""What Gossip and Streams promise, as checks of running transports that know nothing of each other.

A test starts the transports, calls one check, and stops them. The same checks hold for the real
network and for the one in memory.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

import pytest
import trio

from p2pnode.network.transport import Gossip, Judge, Streams, Verdict
from protocol.errors import Unavailable
from protocol.units import PeerId

TOPIC = "suite/offers/1"
ECHO = "/suite/echo/1"
PATIENCE_S = 15


class Transport(Gossip, Streams, Protocol):
    """Both ports, and whose they are."""

    @property
    def peer_id(self) -> PeerId: ...


async def until(condition: Callable[[], object]) -> None:
    """Wait until the condition holds; fails after some seconds."""
    with trio.fail_after(PATIENCE_S):
        await trio.lowlevel.checkpoint()
        while not condition():  # noqa: ASYNC110 - the ports tell nobody of such changes
            await trio.sleep(0.02)


async def link(one: Transport, other: Transport) -> None:
    await one.connect(other.peer_id, other.addresses())
    await until(lambda: one.peer_id in other.neighbours())


async def receive_all(stream: trio.abc.Stream) -> bytes:
    received = bytearray()
    while part := await stream.receive_some():
        received += part
    return bytes(received)


async def serve_echo(_remote: PeerId, stream: trio.abc.Stream) -> None:
    while part := await stream.receive_some():
        await stream.send_all(part)


async def echo(client: Transport, server: PeerId, payload: bytes) -> bytes:
    """What a round trip through the server's echo gives back."""
    stream = await client.open_stream(server, ECHO)
    received = bytearray()

    async def send() -> None:
        await stream.send_all(payload)

    async with stream, trio.open_nursery() as nursery:
        nursery.start_soon(send)
        while len(received) < len(payload):
            part = await stream.receive_some()
            assert part, "the echo ended early"
            received += part
    return bytes(received)


class Listener:
    """A judge that remembers what it was asked: forwarder, publisher, payload."""

    def __init__(
        self, verdict: Callable[[bytes], Verdict] = lambda _payload: Verdict.ACCEPT
    ) -> None:
        self.heard: list[tuple[PeerId, PeerId, bytes]] = []
        self.verdict = verdict

    def __call__(self, forwarder: PeerId, publisher: PeerId, payload: bytes) -> Verdict:
        self.heard.append((forwarder, publisher, payload))
        return self.verdict(payload)

    def has_heard(self, payload: bytes) -> bool:
        return payload in self.payloads()

    def payloads(self) -> list[bytes]:
        return [payload for _forwarder, _publisher, payload in self.heard]


async def join_chain(
    peers: tuple[Transport, Transport, Transport], judges: tuple[Judge, Judge, Judge]
) -> None:
    """Connect left, middle and right in a row, and wait until the topic's mesh spans them."""
    left, middle, right = peers
    await link(left, middle)
    await link(right, middle)
    for peer, judge in zip(peers, judges, strict=True):
        await peer.subscribe(TOPIC, judge)
    ends = tuple(sorted((left.peer_id, right.peer_id)))
    await until(
        lambda: (
            middle.mesh(TOPIC) == ends
            and left.mesh(TOPIC) == (middle.peer_id,)
            and right.mesh(TOPIC) == (middle.peer_id,)
        )
    )


# What follows are the checks; each has the claim as its name.


async def a_mebibyte_survives_the_way_there_and_back(one: Transport, other: Transport) -> None:
    for server in (one, other):
        server.serve(ECHO, serve_echo)
    await link(one, other)
    payload = bytes(range(256)) * 4096
    assert await echo(one, other.peer_id, payload) == payload
    assert await echo(other, one.peer_id, payload) == payload


async def both_sides_are_told_apart_by_their_ids(one: Transport, other: Transport) -> None:
    callers: list[PeerId] = []

    async def note(remote: PeerId, _stream: trio.abc.Stream) -> None:
        callers.append(remote)
        await trio.lowlevel.checkpoint()

    other.serve(ECHO, note)
    await link(one, other)
    assert one.neighbours() == (other.peer_id,)
    assert other.neighbours() == (one.peer_id,)
    async with await one.open_stream(other.peer_id, ECHO) as stream:
        await receive_all(stream)
    assert callers == [one.peer_id]


async def closing_delivers_what_was_sent_and_then_the_end(one: Transport, other: Transport) -> None:
    received: list[bytes] = []

    async def collect(_remote: PeerId, stream: trio.abc.Stream) -> None:
        received.append(await receive_all(stream))

    other.serve(ECHO, collect)
    await link(one, other)
    async with await one.open_stream(other.peer_id, ECHO) as stream:
        await stream.send_all(b"all of it")
    await until(lambda: received == [b"all of it"])


async def what_was_sent_before_closing_arrives_although_nobody_read_the_question(
    one: Transport, other: Transport
) -> None:
    async def answer(_remote: PeerId, stream: trio.abc.Stream) -> None:
        await stream.send_all(b"no")

    other.serve(ECHO, answer)
    await link(one, other)
    async with await one.open_stream(other.peer_id, ECHO) as stream:
        with pytest.raises(trio.BrokenResourceError), trio.fail_after(PATIENCE_S):
            await send_for_ever(stream)
        assert await receive_all(stream) == b"no"


async def send_for_ever(stream: trio.abc.SendStream) -> None:
    while True:
        await stream.send_all(bytes(10_000))


async def a_transfer_that_is_cancelled_does_not_look_complete(
    one: Transport, other: Transport
) -> None:
    endings: list[str] = []

    async def collect(_remote: PeerId, stream: trio.abc.Stream) -> None:
        await trio.lowlevel.checkpoint()
        try:
            await receive_all(stream)
        except trio.BrokenResourceError:
            endings.append("broken")
        else:
            endings.append("complete")

    other.serve(ECHO, collect)
    await link(one, other)
    with trio.CancelScope() as scope:
        async with await one.open_stream(other.peer_id, ECHO) as stream:
            await stream.send_all(b"half of it")
            scope.cancel()
            await trio.lowlevel.checkpoint()
    await until(lambda: endings == ["broken"])


async def a_closed_stream_refuses_everything(one: Transport, other: Transport) -> None:
    other.serve(ECHO, serve_echo)
    await link(one, other)
    stream = await one.open_stream(other.peer_id, ECHO)
    await stream.aclose()
    await stream.aclose()
    with pytest.raises(trio.ClosedResourceError):
        await stream.send_all(b"more")
    with pytest.raises(trio.ClosedResourceError):
        await stream.receive_some()


async def connecting_from_both_sides_at_once_works(one: Transport, other: Transport) -> None:
    for peer in (one, other):
        peer.serve(ECHO, serve_echo)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.connect, other.peer_id, other.addresses())
        nursery.start_soon(other.connect, one.peer_id, one.addresses())
    assert await echo(one, other.peer_id, b"there") == b"there"
    assert await echo(other, one.peer_id, b"back") == b"back"


async def an_unknown_protocol_is_unavailable(one: Transport, other: Transport) -> None:
    await link(one, other)
    with pytest.raises(Unavailable), trio.fail_after(PATIENCE_S):
        await one.open_stream(other.peer_id, "/suite/nobody-speaks-this/1")


async def a_stream_needs_a_connection(one: Transport, other: Transport) -> None:
    other.serve(ECHO, serve_echo)
    with pytest.raises(Unavailable), trio.fail_after(PATIENCE_S):
        await one.open_stream(other.peer_id, ECHO)


async def somebody_else_at_the_address_is_unavailable(
    one: Transport, other: Transport, third: Transport
) -> None:
    with pytest.raises(Unavailable), trio.fail_after(PATIENCE_S):
        await one.connect(third.peer_id, other.addresses())
    assert third.peer_id not in one.neighbours()


async def a_dead_address_is_unavailable_and_the_next_is_tried(
    one: Transport, other: Transport, dead: str
) -> None:
    with pytest.raises(Unavailable), trio.fail_after(PATIENCE_S):
        await one.connect(other.peer_id, (dead, "not an address"))
    with trio.fail_after(PATIENCE_S):
        await one.connect(other.peer_id, (dead, *other.addresses()))
    assert one.neighbours() == (other.peer_id,)


async def connecting_again_is_nothing(one: Transport, other: Transport) -> None:
    await link(one, other)
    await one.connect(other.peer_id, ())
    assert one.neighbours() == (other.peer_id,)


async def a_raising_handler_costs_one_stream(one: Transport, other: Transport) -> None:
    async def fail(_remote: PeerId, stream: trio.abc.Stream) -> None:
        await stream.receive_some()
        raise RuntimeError("a bug of ours")

    other.serve("/suite/fails/1", fail)
    other.serve(ECHO, serve_echo)
    await link(one, other)
    async with await one.open_stream(other.peer_id, "/suite/fails/1") as stream:
        await stream.send_all(b"please")
        with pytest.raises(trio.BrokenResourceError), trio.fail_after(PATIENCE_S):
            await receive_all(stream)
    assert await echo(one, other.peer_id, b"still here") == b"still here"


async def accepted_gossip_goes_on_to_the_third(
    left: Transport, middle: Transport, right: Transport
) -> None:
    ears = (Listener(), Listener(), Listener())
    await join_chain((left, middle, right), ears)
    await left.publish(TOPIC, b"offer")
    await until(lambda: ears[2].heard)
    assert ears[1].heard == [(left.peer_id, left.peer_id, b"offer")]
    assert ears[2].heard == [(middle.peer_id, left.peer_id, b"offer")]
    assert ears[0].heard == [], "own messages are not judged"


async def each_message_is_judged_once(left: Transport, middle: Transport, right: Transport) -> None:
    ears = (Listener(), Listener(), Listener())
    await link(left, right)  # a triangle, so that copies arrive by two ways
    await link(left, middle)
    await link(right, middle)
    for peer, ear in zip((left, middle, right), ears, strict=True):
        await peer.subscribe(TOPIC, ear)
    await until(lambda: all(len(peer.mesh(TOPIC)) == 2 for peer in (left, middle, right)))
    sent = [b"offer %d" % number for number in range(20)]
    for payload in sent:
        await left.publish(TOPIC, payload)
    await until(lambda: len(ears[1].heard) >= 20 and len(ears[2].heard) >= 20)
    assert sorted(ears[1].payloads()) == sorted(sent)
    assert sorted(ears[2].payloads()) == sorted(sent)


async def refused_gossip_goes_no_further(
    peers: tuple[Transport, Transport, Transport], verdict: Verdict
) -> None:
    left, _middle, _right = peers
    strict = Listener(lambda payload: verdict if payload == b"bad" else Verdict.ACCEPT)
    last = Listener()
    await join_chain(peers, (Listener(), strict, last))
    await left.publish(TOPIC, b"bad")
    await left.publish(TOPIC, b"good")
    await until(lambda: b"good" in last.payloads())
    assert strict.payloads() == [b"bad", b"good"]
    assert last.payloads() == [b"good"]


async def publishing_needs_no_subscription(one: Transport, other: Transport) -> None:
    ear = Listener()
    await one.publish(TOPIC, b"to nobody")
    await link(one, other)
    await other.subscribe(TOPIC, ear)
    with trio.fail_after(PATIENCE_S):
        await one.publish(TOPIC, b"first")
        number = 0
        while not ear.heard:  # until the subscription has come through
            await trio.sleep(0.05)
            await one.publish(TOPIC, b"try %d" % number)
            number += 1
    assert ear.heard[0][:2] == (one.peer_id, one.peer_id)
    assert one.mesh(TOPIC) == ()


async def a_peer_that_stops_is_no_neighbour(
    one: Transport, other: Transport, stop: Callable[[], Awaitable[None]]
) -> None:
    async def say_nothing(_remote: PeerId, stream: trio.abc.Stream) -> None:
        await receive_all(stream)

    other.serve(ECHO, say_nothing)
    await link(one, other)
    stopped = other.peer_id
    stream = await one.open_stream(stopped, ECHO)
    await stop()
    with pytest.raises(trio.BrokenResourceError), trio.fail_after(PATIENCE_S):
        await stream.receive_some()  # a lost connection is no end of stream
    await stream.aclose()
    await until(lambda: one.neighbours() == ())
    with pytest.raises(Unavailable), trio.fail_after(PATIENCE_S):
        await one.open_stream(stopped, ECHO)


PAIR_CHECKS = (
    a_mebibyte_survives_the_way_there_and_back,
    both_sides_are_told_apart_by_their_ids,
    closing_delivers_what_was_sent_and_then_the_end,
    what_was_sent_before_closing_arrives_although_nobody_read_the_question,
    a_transfer_that_is_cancelled_does_not_look_complete,
    a_closed_stream_refuses_everything,
    connecting_from_both_sides_at_once_works,
    an_unknown_protocol_is_unavailable,
    a_stream_needs_a_connection,
    connecting_again_is_nothing,
    a_raising_handler_costs_one_stream,
    publishing_needs_no_subscription,
)
TRIO_CHECKS = (
    somebody_else_at_the_address_is_unavailable,
    accepted_gossip_goes_on_to_the_third,
    each_message_is_judged_once,
)
