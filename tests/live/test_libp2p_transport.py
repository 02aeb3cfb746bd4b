"""The real transport keeps what the ports promise, on loopback."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
import trio
import trio.testing
from libp2p.io.exceptions import IncompleteReadError
from libp2p.io.trio import TrioTCPStream
from libp2p.io.utils import read_exactly
from nacl.signing import SigningKey

from p2pnode.network.libp2p_adapter.counted import CountedConnection
from p2pnode.network.libp2p_adapter.damage import Damage
from p2pnode.network.libp2p_adapter.doors import source_of
from p2pnode.network.libp2p_adapter.libp2p_transport import Libp2pTransport
from p2pnode.network.transport import Verdict
from protocol.errors import LocalFault, PeerFault
from protocol.units import PeerId
from tests import transport_suite as suite

pytestmark = pytest.mark.live

Start = Callable[[int], Awaitable[list[Libp2pTransport]]]

PAIR_CHECKS = (
    suite.a_mebibyte_survives_the_way_there_and_back,
    suite.both_sides_are_told_apart_by_their_ids,
    suite.closing_delivers_what_was_sent_and_then_the_end,
    suite.what_was_sent_before_closing_arrives_although_nobody_read_the_question,
    suite.a_transfer_that_is_cancelled_does_not_look_complete,
    suite.a_closed_stream_refuses_everything,
    suite.connecting_from_both_sides_at_once_works,
    suite.an_unknown_protocol_is_unavailable,
    suite.a_stream_needs_a_connection,
    suite.connecting_again_is_nothing,
    suite.a_raising_handler_costs_one_stream,
    suite.publishing_needs_no_subscription,
)
TRIO_CHECKS = (
    suite.somebody_else_at_the_address_is_unavailable,
    suite.accepted_gossip_goes_on_to_the_third,
    suite.each_message_is_judged_once,
)
LOOPBACK = ("/ip4/127.0.0.1/tcp/0",)
DEAD = "/ip4/127.0.0.1/tcp/1"


@pytest.mark.parametrize("check", PAIR_CHECKS, ids=lambda check: check.__name__)
async def test_a_pair_conforms(
    start: Start, check: Callable[[suite.Transport, suite.Transport], Awaitable[None]]
) -> None:
    one, other = await start(2)
    await check(one, other)


@pytest.mark.parametrize("check", TRIO_CHECKS, ids=lambda check: check.__name__)
async def test_three_conform(
    start: Start,
    check: Callable[[suite.Transport, suite.Transport, suite.Transport], Awaitable[None]],
) -> None:
    one, two, three = await start(3)
    await check(one, two, three)


async def test_a_dead_address_is_unavailable_and_the_next_is_tried(start: Start) -> None:
    one, other = await start(2)
    await suite.a_dead_address_is_unavailable_and_the_next_is_tried(one, other, DEAD)


async def test_ignored_gossip_goes_no_further_and_costs_nothing(start: Start) -> None:
    left, middle, right = await start(3)
    await suite.refused_gossip_goes_no_further((left, middle, right), Verdict.IGNORE)
    assert score(middle, left) == 0


async def test_rejected_gossip_goes_no_further_and_costs_the_forwarder(start: Start) -> None:
    left, middle, right = await start(3)
    await suite.refused_gossip_goes_no_further((left, middle, right), Verdict.REJECT)
    assert score(middle, left) < 0
    assert score(middle, right) == 0


async def test_a_forwarder_of_many_bad_messages_is_no_longer_heard(start: Start) -> None:
    left, middle, right = await start(3)
    ear = suite.Listener(lambda payload: Verdict.ACCEPT if payload == b"good" else Verdict.REJECT)
    await suite.join_chain((left, middle, right), (suite.Listener(), ear, suite.Listener()))
    for number in range(12):
        await left.publish(suite.TOPIC, b"bad %d" % number)
    await left.publish(suite.TOPIC, b"good")
    await right.publish(suite.TOPIC, b"good")
    await suite.until(lambda: (right.peer_id, right.peer_id, b"good") in ear.heard)
    assert (left.peer_id, left.peer_id, b"good") not in ear.heard


async def test_a_peer_that_stops_is_no_neighbour(start: Start, nursery: trio.Nursery) -> None:
    (one,) = await start(1)
    other = Libp2pTransport(seed=b"x" * 32, listen=LOOPBACK, topics=())
    life = trio.CancelScope()

    async def live() -> None:
        with life:
            await other.run()

    async def stop() -> None:
        life.cancel()
        await trio.lowlevel.checkpoint()

    nursery.start_soon(live)
    await suite.until(lambda: other._running)
    await suite.a_peer_that_stops_is_no_neighbour(one, other, stop)


async def test_an_address_in_use_is_a_fault_of_the_owner() -> None:
    transport = Libp2pTransport(seed=b"y" * 32, listen=("/ip4/192.0.2.1/tcp/4001",), topics=())
    with pytest.raises(LocalFault):
        await transport.run()


async def test_stopping_leaves_no_descriptor_and_no_task(start: Start) -> None:
    (hub,) = await start(1)
    await come_and_go(hub, 1)  # what is opened once for the whole process
    await suite.until(lambda: hub.neighbours() == ())
    before = descriptors()
    await come_and_go(hub, 10)
    await come_and_go(hub, 10)
    await suite.until(lambda: hub.neighbours() == () and descriptors() == before)


def test_the_peer_id_holds_the_public_key_of_the_seed() -> None:
    seed = bytes(range(32))
    key = bytes(SigningKey(seed).verify_key)
    transport = Libp2pTransport(seed=seed, listen=(), topics=())
    assert transport.peer_id == bytes.fromhex("002408011220") + key


async def test_plain_text_is_refused(start: Start) -> None:
    (one,) = await start(1)
    stream = await trio.open_tcp_stream("127.0.0.1", int(one.addresses()[0].rpartition("/")[2]))
    async with stream:
        await stream.send_all(b"\x13/multistream/1.0.0\n\x11/plaintext/2.0.0\n")
        with trio.fail_after(suite.PATIENCE_S):
            answer = await stream.receive_some()
            while not answer.endswith(b"\x03na\n"):
                part = await stream.receive_some()
                assert part, answer
                answer += part


async def test_a_fault_of_a_peer_is_no_bug_of_ours(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(_remote: PeerId, stream: trio.abc.Stream) -> None:
        await stream.receive_some()
        raise PeerFault("offer.shape")

    async def stumble(_remote: PeerId, stream: trio.abc.Stream) -> None:
        await stream.receive_some()
        raise KeyError("bug")

    one, other = await start(2)
    other.serve("/refuse/1", refuse)
    other.serve("/stumble/1", stumble)
    await suite.link(one, other)
    for protocol, failures in (("/refuse/1", 0), ("/stumble/1", 1)):
        async with await one.open_stream(other.peer_id, protocol) as stream:
            await stream.send_all(b"please")
            with pytest.raises(trio.BrokenResourceError):
                await suite.receive_all(stream)
        assert other.statistics().handlers_failed == failures
    errors = [r.getMessage() for r in caplog.records if r.name.startswith("p2pnode")]
    assert errors == ["stream handler failed"]


async def test_a_run_that_is_cancelled_at_once_ends() -> None:
    transport = Libp2pTransport(seed=b"z" * 32, listen=LOOPBACK, topics=())
    for delay_s in (0, 0.001, 0.01):
        with trio.fail_after(suite.PATIENCE_S), trio.move_on_after(delay_s):
            await transport.run()


@pytest.mark.slow
async def test_a_slow_reader_is_waited_for(start: Start) -> None:
    one, other = await start(2)
    is_reading = trio.Event()
    received: list[int] = []

    async def read_late(_remote: PeerId, stream: trio.abc.Stream) -> None:
        await is_reading.wait()
        received.append(len(await suite.receive_all(stream)))

    other.serve(suite.ECHO, read_late)
    await suite.link(one, other)
    stream = await one.open_stream(other.peer_id, suite.ECHO)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.send_all, bytes(1_000_000))
        await trio.sleep(6)  # the library gives up after five seconds
        is_reading.set()
    await stream.aclose()
    await suite.until(lambda: received == [1_000_000])


async def come_and_go(hub: Libp2pTransport, count: int) -> None:
    async with trio.open_nursery() as nursery:
        for number in range(count):
            visitor = Libp2pTransport(
                seed=bytes([100 + number]) * 32,
                listen=LOOPBACK,
                topics=(suite.TOPIC,),
            )
            await nursery.start(visitor.run)
            await visitor.connect(hub.peer_id, hub.addresses())
        assert len(hub.neighbours()) == count
        nursery.cancel_scope.cancel()


def descriptors() -> int:
    return len(os.listdir(Path("/proc/self/fd")))  # noqa: PTH208 - counting, not walking


def score(judge: Libp2pTransport, peer: Libp2pTransport) -> float:
    """What the gossip router of the one thinks of the other; below nought is bad."""
    scores: dict[str, float] = judge._host.router.scorer.get_all_peer_scores([suite.TOPIC])
    return next(
        value
        for key, value in scores.items()
        if key == str(judge._connections(peer.peer_id)[0].muxed_conn.peer_id)
    )


async def test_a_wildcard_is_told_as_addresses_that_can_be_dialled(nursery: trio.Nursery) -> None:
    one, other = (
        Libp2pTransport(seed=bytes([n]) * 32, listen=(listen,), topics=(suite.TOPIC,))
        for n, listen in ((91, "/ip4/0.0.0.0/tcp/0"), (92, LOOPBACK[0]))
    )
    await nursery.start(one.run)
    await nursery.start(other.run)
    assert one.addresses()
    assert all("0.0.0.0" not in address for address in one.addresses())
    await other.connect(one.peer_id, one.addresses())
    assert other.neighbours() == (one.peer_id,)
    nursery.cancel_scope.cancel()


async def test_what_passes_a_host_is_counted(start: Start) -> None:
    one, other = await start(2)
    assert one.bytes_moved() == 0
    await suite.a_mebibyte_survives_the_way_there_and_back(one, other)
    for host in (one, other):
        # Four mebibytes pass each end; encryption and framing add a little.
        assert 4 * 2**20 < host.bytes_moved() < 5 * 2**20


async def test_the_end_of_a_connection_is_read_once() -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    await theirs.aclose()
    ended = TrioTCPStream(ours)
    ended.read = Mock(wraps=ended.read)
    with pytest.raises(IncompleteReadError):
        await read_exactly(CountedConnection(ended, Damage()), 1)
    assert ended.read.call_count == 1


@pytest.mark.parametrize(
    ("host", "source"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_a_source_is_an_ipv4_address_or_64_bits_of_another(host: str, source: str) -> None:
    assert source_of(host) == source


async def test_a_dial_that_begins_as_the_host_ends_is_no_fault(start: Start) -> None:
    (other,) = await start(1)
    one = Libp2pTransport(seed=b"e" * 32, listen=(), topics=())
    async with trio.open_nursery() as life:
        await life.start(one.run)
        with trio.CancelScope() as hurry:
            hurry.cancel()
            await one.connect(other.peer_id, other.addresses())
        one._running = None  # as `run` has it once it ends, before the dial has had its turn
        life.cancel_scope.cancel()
    assert hurry.cancelled_caught
