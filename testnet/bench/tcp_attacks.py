"""What anybody who reaches the victim's TCP port can do; none of it needs an identity."""

import random
from functools import partial
from typing import Final

import trio

from testnet.bench.hostile import (
    Attack,
    Target,
    again_and_again,
    in_parallel,
    make_insider,
    transport_of,
)

MULTISTREAM: Final = b"\x13/multistream/1.0.0\n"
NOISE: Final = b"\x07/noise\n"
OTHER_SECURITY: Final = (b"/plaintext/2.0.0\n", b"/tls/1.0.0\n", b"/secio/1.0.0\n", b"/none\n")
PARALLEL: Final = 8
HELD: Final = 200
"""Connections held open by one attack; more than the 250 that once deafened a host come in all."""
AT_ONCE: Final = 380
READ_S: Final = 0.2
SOURCE: Final = "127.0.0.66"
"""All from one address, which is not the one of the honest."""


async def random_bytes(target: Target, rng: random.Random) -> None:
    """Noise of the plain kind, up to 64 KiB in a connection."""
    await in_parallel(
        target, PARALLEL, lambda: _say(target, rng.randbytes(rng.randrange(1, 65_536)))
    )


async def half_open(target: Target, _rng: random.Random) -> None:
    """Connections that say nothing, and such that agree to Noise and then say nothing."""
    async with trio.open_nursery() as nursery:
        for number in range(HELD):
            said = b"" if number % 2 else MULTISTREAM + NOISE
            nursery.start_soon(again_and_again, target, partial(_hold, target, said, 1e9))


async def a_byte_a_second(target: Target, _rng: random.Random) -> None:
    """A handshake so slow that it never ends."""
    async with trio.open_nursery() as nursery:
        for _ in range(HELD // 2):
            nursery.start_soon(again_and_again, target, partial(_dribble, target))


async def churn(target: Target, _rng: random.Random) -> None:
    """Connections that come and go."""
    await in_parallel(target, PARALLEL, lambda: _hold(target, MULTISTREAM, 0))


async def many_at_once(target: Target, _rng: random.Random) -> None:
    """More connections than are let in, all at once, then all again."""
    await in_parallel(target, AT_ONCE, lambda: _hold(target, MULTISTREAM + NOISE, 2))


async def other_security(target: Target, rng: random.Random) -> None:
    """Offers of plain text and whatever else is not Noise, then data as if agreed."""

    async def once() -> None:
        name = rng.choice(OTHER_SECURITY)
        offer = MULTISTREAM + bytes([len(name)]) + name
        await _say(target, offer + b"\x00\x00\x01\x00" + rng.randbytes(256))

    await in_parallel(target, PARALLEL, once)


async def multistream_garbage(target: Target, rng: random.Random) -> None:
    """Names that are no text, lengths without end, and a list of ten thousand offers."""

    async def once() -> None:
        rest = rng.choice(
            (
                b"\x05\xff\xfe\xfd\xfc\n",
                b"\xff" * 64,
                b"\xff\xff\xff\xff\x7f" + rng.randbytes(1_024),
                b"\x03na\n" * 10_000,
                b"\x04/a/\n" * 2_000,
                b"\x00" * 4_096,
            )
        )
        await _say(target, MULTISTREAM + rest)

    await in_parallel(target, PARALLEL, once)


async def noise_garbage(target: Target, rng: random.Random) -> None:
    """Agreement on Noise, then frames of it that are none."""

    async def once() -> None:
        size = rng.choice((0, 1, 32, 96, 65_535))
        frame = size.to_bytes(2, "big") + rng.randbytes(size)
        await _say(target, MULTISTREAM + NOISE + frame * 4)

    await in_parallel(target, PARALLEL, once)


async def new_identities(target: Target, rng: random.Random) -> None:
    """Whole handshakes, each by somebody who has never been seen before."""

    async def once() -> None:
        transport = transport_of(target, make_insider(target, rng))
        async with trio.open_nursery() as nursery:
            await nursery.start(transport.run)
            await transport.connect(target.peer, (target.address,))
            target.sent += 1
            await trio.sleep(0.1)
            nursery.cancel_scope.cancel()

    await in_parallel(target, 4, once)


async def _say(target: Target, data: bytes) -> None:
    """Connect, send, listen for a moment, leave."""
    stream = await trio.open_tcp_stream(target.host, target.port, local_address=SOURCE)
    async with stream:
        target.sent += 1
        with trio.move_on_after(READ_S):
            await stream.send_all(data)
            while await stream.receive_some(65_536):
                pass


async def _hold(target: Target, said: bytes, hold_s: float) -> None:
    stream = await trio.open_tcp_stream(target.host, target.port, local_address=SOURCE)
    async with stream:
        target.sent += 1
        await stream.send_all(said)
        with trio.move_on_after(hold_s):
            while await stream.receive_some(65_536):
                pass


async def _dribble(target: Target) -> None:
    stream = await trio.open_tcp_stream(target.host, target.port, local_address=SOURCE)
    async with stream:
        target.sent += 1
        for byte in MULTISTREAM + NOISE + bytes(1_000):
            await stream.send_all(bytes([byte]))
            await trio.sleep(1)


ATTACKS: Final[tuple[Attack, ...]] = (
    random_bytes,
    half_open,
    a_byte_a_second,
    churn,
    many_at_once,
    other_security,
    multistream_garbage,
    noise_garbage,
    new_identities,
)
