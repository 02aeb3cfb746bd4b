"""A peer whose process is stopped is noticed, and holds up nothing."""

import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio

from p2pnode.network.libp2p_adapter.libp2p_transport import Libp2pTransport
from protocol.errors import Unavailable
from protocol.units import PeerId
from tests import transport_suite as suite

pytestmark = [pytest.mark.live, pytest.mark.slow]

Start = Callable[[int], Awaitable[list[Libp2pTransport]]]

NOTICED_S = 20

PEER = """
import sys, trio
from p2pnode.network.libp2p_adapter.libp2p_transport import Libp2pTransport
from tests import transport_suite as suite

async def keep(_remote, _stream):
    await trio.sleep_forever()

async def main():
    async with trio.open_nursery() as nursery:
        peer = Libp2pTransport(seed=b"p" * 32, listen=("/ip4/127.0.0.1/tcp/0",), topics=())
        peer.serve("/keep/1", keep)
        await nursery.start(peer.run)
        print(peer.addresses()[0], flush=True)

trio.run(main)
"""


async def start_peer(nursery: trio.Nursery) -> tuple[trio.Process, str]:
    """A peer in a process of its own, and its address; killed when the nursery is cancelled."""
    run = partial(trio.run_process, [sys.executable, "-c", PEER], stdout=subprocess.PIPE)
    process = await nursery.start(run)
    line = b""
    while not line.endswith(b"\n"):
        line += await process.stdout.receive_some()
    return process, line.decode().strip()


async def test_a_hung_peer_is_noticed(start: Start, nursery: trio.Nursery) -> None:
    (one,) = await start(1)
    process, address = await start_peer(nursery)
    peer = Libp2pTransport(seed=b"p" * 32, listen=(), topics=()).peer_id
    await one.connect(peer, (address,))
    os.kill(process.pid, signal.SIGSTOP)
    try:
        with trio.fail_after(NOTICED_S):
            await suite.until(lambda: one.neighbours() == ())
        with pytest.raises(Unavailable):
            await one.open_stream(peer, "/keep/1")
    finally:
        os.kill(process.pid, signal.SIGCONT)


async def test_a_hung_peer_does_not_hold_up_the_end(nursery: trio.Nursery) -> None:
    one = Libp2pTransport(seed=b"o" * 32, listen=(), topics=())
    process, address = await start_peer(nursery)
    peer = Libp2pTransport(seed=b"p" * 32, listen=(), topics=()).peer_id
    async with trio.open_nursery() as life:
        await life.start(one.run)
        await one.connect(peer, (address,))
        streams = [await one.open_stream(peer, "/keep/1") for _ in range(40)]
        os.kill(process.pid, signal.SIGSTOP)
        for stream in streams:  # enough to fill the buffers of the socket
            life.start_soon(stream.send_all, bytes(256 * 1024))
        await suite.until(lambda: muxer(one, peer)._write_lock.statistics().tasks_waiting)
        await trio.sleep(1)
        began = trio.current_time()
        life.cancel_scope.cancel()
    os.kill(process.pid, signal.SIGCONT)
    assert trio.current_time() - began < 5


def muxer(one: Libp2pTransport, peer: PeerId) -> Any:
    return one._connections(peer)[0].muxed_conn
