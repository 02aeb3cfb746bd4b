"""Starts libp2p transports on loopback; what a test started is stopped when it ends."""

from collections.abc import Awaitable, Callable

import pytest
import trio

from p2pnode.network.libp2p_adapter.libp2p_transport import Libp2pTransport
from tests.live.libp2p_victim import make

Start = Callable[[int], Awaitable[list[Libp2pTransport]]]


@pytest.fixture
def start(nursery: trio.Nursery) -> Start:
    """Start so many transports with the seeds 1, 2, 3."""

    async def start_some(count: int) -> list[Libp2pTransport]:
        transports = [make(number) for number in range(1, count + 1)]
        for transport in transports:
            await nursery.start(transport.run)
        return transports

    return start_some
