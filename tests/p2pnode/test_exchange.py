"""Questions between two peers over streams in memory, among them peers that misbehave."""

from collections.abc import Callable

import pytest
import trio

from p2pnode.network import exchange as exchange_module
from p2pnode.network.exchange import PROTOCOL, Exchange, Handler
from p2pnode.network.frames import FrameReader, write_frame
from p2pnode.network.memory_transport import MemoryHub, MemoryTransport
from protocol.certificate import Certificate
from protocol.codec import decode, encode
from protocol.errors import PeerFault, Unavailable
from protocol.hello import Answer, Hello, Question
from protocol.limits import FRAME_BYTES_MAX
from protocol.signing import Signer, peer_id_of
from protocol.units import Digest, Millis, NetId, PeerId

NET = NetId(Digest(bytes(32)))


def peer(number: int) -> PeerId:
    return peer_id_of(Signer(bytes([number]) * 32).public)


def make_hello() -> Hello:
    return Hello(net=NET, roles=("renter",), kinds=(), certificate=b"", frame_bytes_max=1)


def make_certificate(of: PeerId) -> Certificate:
    key = Signer(bytes(32)).public
    return Certificate(
        net=NET,
        root=key,
        feed=key,
        peer_id=of,
        x25519=key,
        not_before_ms=Millis(1),
        not_after_ms=Millis(2),
        n=0,
    )


def accept(remote: PeerId, _hello: Hello) -> Certificate:
    return make_certificate(remote)


async def shout(_remote: PeerId, body: bytes) -> bytes:
    await trio.lowlevel.checkpoint()
    return body.upper()


async def fault(_remote: PeerId, _body: bytes) -> bytes:
    await trio.lowlevel.checkpoint()
    raise PeerFault("advert.expired", "long ago")


async def hang(_remote: PeerId, _body: bytes) -> bytes:
    await trio.sleep_forever()
    raise AssertionError


class Pair:
    """Two connected transports; `ours` has an Exchange, `theirs` as the test wants."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.hub = MemoryHub()
        self.nursery = nursery
        self.ours = MemoryTransport(self.hub, peer(1), "/memory/1")
        self.theirs = MemoryTransport(self.hub, peer(2), "/memory/2")

    async def connect(self) -> None:
        await self.nursery.start(self.ours.run)
        await self.nursery.start(self.theirs.run)
        await self.ours.connect(peer(2), ("/memory/2",))

    async def hear_from(self, stranger: PeerId) -> None:
        """Both answer a stranger's HELLO, after which it goes away."""
        transport = MemoryTransport(self.hub, stranger, f"/memory/{stranger.hex()}")
        async with trio.open_nursery() as nursery:
            await nursery.start(transport.run)
            for number in (1, 2):
                await transport.connect(peer(number), (f"/memory/{number}",))
                async with await transport.open_stream(peer(number), PROTOCOL) as stream:
                    await write_frame(stream, encode(make_hello()))
                    await FrameReader(stream).next()
            nursery.cancel_scope.cancel()

    async def exchange(
        self,
        transport: MemoryTransport,
        handlers: dict[str, Handler] | None = None,
        check: Callable[[PeerId, Hello], Certificate] = accept,
    ) -> Exchange:
        exchange = Exchange(
            streams=transport, hello=make_hello, check_hello=check, handlers=handlers or {}
        )
        await self.nursery.start(exchange.run)
        return exchange


@pytest.fixture
async def pair(nursery: trio.Nursery) -> Pair:
    pair = Pair(nursery)
    await pair.connect()
    return pair


async def test_a_question_is_answered(pair: Pair) -> None:
    await pair.exchange(pair.theirs, {"shout": shout})
    ours = await pair.exchange(pair.ours)
    assert await ours.ask(peer(2), "shout", b"hey") == b"HEY"


async def test_many_questions_at_once_get_their_own_answers(pair: Pair) -> None:
    await pair.exchange(pair.theirs, {"shout": shout})
    ours = await pair.exchange(pair.ours)
    answers: dict[int, bytes] = {}

    async def ask(number: int) -> None:
        answers[number] = await ours.ask(peer(2), "shout", f"q{number}".encode())

    async with trio.open_nursery() as nursery:
        for number in range(200):
            nursery.start_soon(ask, number)
    assert answers == {number: f"Q{number}".encode() for number in range(200)}


async def test_a_greeting_tells_who_the_peer_is_to_both(pair: Pair) -> None:
    theirs = await pair.exchange(pair.theirs, {"ping": shout})
    ours = await pair.exchange(pair.ours)
    met = await ours.greet(peer(2))
    assert met.certificate.peer_id == peer(2)
    known = theirs.acquaintance(peer(1))
    assert known is not None
    assert known.certificate.peer_id == peer(1)


async def test_a_peer_is_known_as_long_as_its_stream_is_open_whoever_says_hello_since(
    pair: Pair,
) -> None:
    async def name(remote: PeerId, _body: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        known = theirs.acquaintance(remote)
        assert known is not None
        return known.certificate.peer_id

    theirs = await pair.exchange(pair.theirs, {"ping": shout, "name": name})
    ours = await pair.exchange(pair.ours)
    await ours.greet(peer(2))
    for number in range(exchange_module.PEERS_MAX):
        await pair.hear_from(PeerId(b"%d" % number))
    assert (await ours.greet(peer(2))).certificate.peer_id == peer(2)
    assert ours.acquaintance(peer(2)) is not None
    assert await ours.ask(peer(2), "name", b"") == peer(1)


async def test_a_question_of_an_unknown_kind_is_refused_by_name(pair: Pair) -> None:
    await pair.exchange(pair.theirs)
    ours = await pair.exchange(pair.ours)
    with pytest.raises(Unavailable, match=r"question\.kind"):
        await ours.ask(peer(2), "shout", b"")


async def test_a_broken_rule_comes_back_by_name_and_is_counted(pair: Pair) -> None:
    theirs = await pair.exchange(pair.theirs, {"fault": fault})
    ours = await pair.exchange(pair.ours)
    with pytest.raises(Unavailable, match=r"advert\.expired"):
        await ours.ask(peer(2), "fault", b"")
    assert theirs.refused == {"advert.expired": 1}


async def test_a_peer_that_breaks_rules_without_end_is_shunned(
    pair: Pair, autojump_clock: trio.abc.Clock
) -> None:
    theirs = await pair.exchange(pair.theirs, {"fault": fault, "shout": shout})
    ours = await pair.exchange(pair.ours)
    for _ in range(exchange_module.FAULTS_BURST + 1):
        with pytest.raises(Unavailable):
            await ours.ask(peer(2), "fault", b"")
    with pytest.raises(Unavailable):
        await ours.ask(peer(2), "shout", b"")
    assert sum(theirs.refused.values()) == exchange_module.FAULTS_BURST
    await trio.sleep(1 / exchange_module.FAULTS_PER_S)
    assert await ours.ask(peer(2), "shout", b"sorry") == b"SORRY"


async def test_who_asks_too_fast_is_slowed_down(pair: Pair, autojump_clock: trio.abc.Clock) -> None:
    await pair.exchange(pair.theirs, {"shout": shout})
    ours = await pair.exchange(pair.ours)
    began = trio.current_time()
    for _ in range(exchange_module.QUESTIONS_BURST + exchange_module.QUESTIONS_PER_S):
        await ours.ask(peer(2), "shout", b"")
    assert trio.current_time() - began == pytest.approx(1, abs=0.1)


async def test_without_a_connection_there_is_no_answer(nursery: trio.Nursery) -> None:
    pair = Pair(nursery)
    await nursery.start(pair.ours.run)
    ours = await pair.exchange(pair.ours)
    with pytest.raises(Unavailable, match="not connected"):
        await ours.ask(peer(2), "shout", b"")


async def test_a_peer_that_says_nothing_is_given_up(
    pair: Pair, autojump_clock: trio.abc.Clock
) -> None:
    async def silent(_remote: PeerId, _stream: trio.abc.Stream) -> None:
        await trio.sleep_forever()

    pair.theirs.serve(PROTOCOL, silent)
    ours = await pair.exchange(pair.ours)
    with pytest.raises(Unavailable, match="HELLO"):
        await ours.ask(peer(2), "shout", b"")
    assert trio.current_time() <= exchange_module.HELLO_S


async def test_an_asker_who_gives_up_disturbs_nobody(
    pair: Pair, autojump_clock: trio.abc.Clock
) -> None:
    async def slow(_remote: PeerId, body: bytes) -> bytes:
        await trio.sleep(2)
        return body

    await pair.exchange(pair.theirs, {"slow": slow})
    ours = await pair.exchange(pair.ours)
    with trio.move_on_after(1):
        await ours.ask(peer(2), "slow", b"first")
    assert await ours.ask(peer(2), "slow", b"second") == b"second"


async def test_when_the_peer_goes_all_who_wait_are_told(pair: Pair) -> None:
    async def leave(_remote: PeerId, stream: trio.abc.Stream) -> None:
        reader = FrameReader(stream)
        await reader.next()
        await write_frame(stream, encode(make_hello()))
        await reader.next()

    pair.theirs.serve(PROTOCOL, leave)
    ours = await pair.exchange(pair.ours)
    with pytest.raises(Unavailable, match="closed"):
        await ours.ask(peer(2), "shout", b"")
    assert not ours._lines


async def test_a_peer_of_another_network_gets_no_answer(pair: Pair) -> None:
    def refuse(_remote: PeerId, _hello: Hello) -> Certificate:
        raise PeerFault("hello.net")

    theirs = await pair.exchange(pair.theirs, {"shout": shout}, refuse)
    ours = await pair.exchange(pair.ours)
    with pytest.raises(Unavailable):
        await ours.ask(peer(2), "shout", b"")
    assert theirs.refused == {"hello.net": 1}


@pytest.mark.parametrize(
    ("frames", "rule"),
    [
        ([b"garbage"], "codec.form"),
        ([b"x" * 5_000], "frame.size"),
        ([encode(make_hello()), b"garbage"], "codec.form"),
        ([encode(make_hello()), encode(make_hello())], "codec.shape"),
    ],
)
async def test_garbage_ends_the_stream_and_nothing_else(
    pair: Pair, frames: list[bytes], rule: str
) -> None:
    theirs = await pair.exchange(pair.theirs, {"shout": shout})
    stream = await pair.ours.open_stream(peer(2), PROTOCOL)
    with trio.fail_after(5):
        for frame in frames:
            await write_frame(stream, frame)
        reader = FrameReader(stream)
        while await reader.next() is not None:
            pass
    assert theirs.refused == {rule: 1}
    ours = await pair.exchange(pair.ours)
    assert await ours.ask(peer(2), "shout", b"still there") == b"STILL THERE"


async def test_answers_nobody_asked_for_are_dropped(pair: Pair) -> None:
    async def babble(_remote: PeerId, stream: trio.abc.Stream) -> None:
        reader = FrameReader(stream)
        await reader.next()
        await write_frame(stream, encode(make_hello()))
        for number in (7, 8, 9):
            await write_frame(stream, encode(Answer(id=number, b=b"noise")))
        frame = await reader.next()
        assert frame is not None
        question = decode(frame, Question, size_max=FRAME_BYTES_MAX)
        await write_frame(stream, encode(Answer(id=question.id, b=b"signal")))

    pair.theirs.serve(PROTOCOL, babble)
    ours = await pair.exchange(pair.ours)
    assert await ours.ask(peer(2), "shout", b"") == b"signal"


async def test_a_handler_that_hangs_does_not_stop_other_peers(
    pair: Pair, nursery: trio.Nursery
) -> None:
    hub = MemoryHub()
    server = MemoryTransport(hub, peer(3), "/memory/3")
    clients = [MemoryTransport(hub, peer(n), f"/memory/{n}") for n in (4, 5)]
    for transport in (server, *clients):
        await nursery.start(transport.run)
    await pair.exchange(server, {"hang": hang, "shout": shout})
    for client in clients:
        await client.connect(peer(3), ("/memory/3",))
    stuck, free = [await pair.exchange(client) for client in clients]
    nursery.start_soon(stuck.ask, peer(3), "hang", b"")
    with trio.fail_after(5):
        assert await free.ask(peer(3), "shout", b"hey") == b"HEY"
    nursery.cancel_scope.cancel()
