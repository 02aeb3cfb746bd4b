"""What a connected peer can do on streams: garbage, silence, numbers, and never reading."""

import random
from collections.abc import Callable
from functools import partial
from typing import Final

import trio

from p2pnode.network.frames import write_frame
from protocol.codec import encode
from protocol.hello import Question
from protocol.limits import FRAME_BYTES_MAX
from protocol.offers import HeadsAsk
from protocol.units import Digest, NetId
from testnet.bench.hostile import EXPECTED, Attack, Host, Target, with_hosts

ASK: Final = "/p2pnode/ask/1"
PROTOCOLS: Final = (ASK, "/p2pnode/sync/1", "/p2pnode/lease/1")
LIBRARY_PROTOCOLS: Final = ("/ipfs/kad/1.0.0", "/ipfs/ping/1.0.0", "/ipfs/id/push/1.0.0")
STREAMS_HELD: Final = 250
WINDOW: Final = 256 * 1024
REPLY_S: Final = 1.0
"""How long an attacker waits for what the victim makes of it."""


async def garbage_frames(target: Target, rng: random.Random) -> None:
    """Frames that hold nothing, are cut, or claim to be 4 GiB long, in each protocol."""

    async def act(host: Host) -> None:
        size = rng.choice((0, 1, 100, 4_096, 60_000))
        length = rng.choice((size, size + 1, FRAME_BYTES_MAX, FRAME_BYTES_MAX + 1, 2**32 - 1))
        frame = length.to_bytes(4, "big") + rng.randbytes(size)
        await _converse(target, host, rng.choice(PROTOCOLS), frame)

    await with_hosts(target, rng, 4, act)


async def library_garbage(target: Target, rng: random.Random) -> None:
    """The same at the protocols that the library answers."""

    async def act(host: Host) -> None:
        body = rng.randbytes(rng.choice((1, 32, 1_000, 60_000)))
        await _converse(target, host, rng.choice(LIBRARY_PROTOCOLS), body)

    await with_hosts(target, rng, 4, act)


async def foreign_hello(target: Target, rng: random.Random) -> None:
    """HELLOs of another network, and of somebody else in this one."""

    async def act(host: Host) -> None:
        hello = host.insider.hello(NetId(rng.randbytes(32)))
        await _converse(target, host, ASK, _frame(hello))

    await with_hosts(target, rng, 4, act)


async def silent_streams(target: Target, rng: random.Random) -> None:
    """Streams of each protocol that say nothing, or half a length, and are held."""

    async def act(host: Host) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(STREAMS_HELD):
                said = b"" if number % 2 else b"\x00\x00"
                protocol = PROTOCOLS[number % len(PROTOCOLS)]
                nursery.start_soon(_hold, target, host, protocol, said)

    await with_hosts(target, rng, 2, act)


async def many_questions(target: Target, rng: random.Random) -> None:
    """Valid HELLO, then questions as fast as they go, most of them nonsense."""

    async def act(host: Host) -> None:
        async with await host.transport.open_stream(target.peer, ASK) as stream:
            await stream.send_all(_frame(host.insider.hello(target.net)))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_drain, stream)
                await _ask_on(target, stream, lambda: _question(rng))
                nursery.cancel_scope.cancel()

    await with_hosts(target, rng, 2, act)


async def unread_answers(target: Target, rng: random.Random) -> None:
    """Questions with long answers that nobody reads, on as many streams as there may be."""

    async def act(host: Host) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(STREAMS_HELD):
                nursery.start_soon(_never_read, target, host)

    await with_hosts(target, rng, 2, act)


async def filled_windows(target: Target, rng: random.Random) -> None:
    """Data up to the last byte of the window, on streams whose other end is busy."""

    async def act(host: Host) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(STREAMS_HELD):
                protocol = (*PROTOCOLS, *LIBRARY_PROTOCOLS)[number % 6]
                nursery.start_soon(_fill, target, host, protocol, partial(rng.randbytes, 16_384))

    await with_hosts(target, rng, 2, act)


async def _converse(target: Target, host: Host, protocol: str, data: bytes) -> None:
    """Open a stream, send, and hear what comes until the victim has had enough."""
    with trio.move_on_after(REPLY_S):
        async with await host.transport.open_stream(target.peer, protocol) as stream:
            target.sent += 1
            await stream.send_all(data)
            await stream.send_eof()
            await _drain(stream)


async def _drain(stream: trio.abc.Stream) -> None:
    while await stream.receive_some(65_536):
        pass


async def _hold(target: Target, host: Host, protocol: str, said: bytes) -> None:
    """A stream until the victim gives it up; then there is one less."""
    try:
        async with await host.transport.open_stream(target.peer, protocol) as stream:
            target.sent += 1
            if said:
                await stream.send_all(said)
            await _drain(stream)
    except EXPECTED:
        target.refused += 1


async def _never_read(target: Target, host: Host) -> None:
    try:
        async with await host.transport.open_stream(target.peer, ASK) as stream:
            await stream.send_all(_frame(host.insider.hello(target.net)))
            ask = encode(
                Question(id=1, t="offers.heads", b=encode(HeadsAsk(root=Digest(bytes(32)))))
            )
            await _ask_on(target, stream, lambda: ask)
    except EXPECTED:
        target.refused += 1


async def _fill(target: Target, host: Host, protocol: str, piece: Callable[[], bytes]) -> None:
    try:
        async with await host.transport.open_stream(target.peer, protocol) as stream:
            target.sent += 1
            # A frame of nearly the largest size, so that nobody answers before it is whole.
            await stream.send_all((FRAME_BYTES_MAX - 1).to_bytes(4, "big"))
            for _ in range(WINDOW // 16_384 - 1):
                await stream.send_all(piece())
            await trio.sleep(5)
    except EXPECTED:
        target.refused += 1


async def _ask_on(target: Target, stream: trio.abc.Stream, ask: Callable[[], bytes]) -> None:
    while True:
        await write_frame(stream, ask())
        target.sent += 1


def _question(rng: random.Random) -> bytes:
    kind = rng.choice(("ping", "ping", "offers.heads", "offers.get", "quote", "no.such", "tick"))
    body = b"" if kind == "ping" else rng.randbytes(rng.randrange(64))
    return encode(Question(id=rng.randrange(2**31), t=kind, b=body))


def _frame(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


ATTACKS: Final[tuple[Attack, ...]] = (
    garbage_frames,
    library_garbage,
    foreign_hello,
    silent_streams,
    many_questions,
    unread_answers,
    filled_windows,
)
