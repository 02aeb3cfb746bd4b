"""The directory in memory keeps what the port promises, by the suite that the real one passes."""

import pytest
import trio

from p2pnode.network.memory_directory import RECORD_LIFE_S, MemoryDirectory, MemoryRegistry
from p2pnode.network.memory_transport import MemoryHub, MemoryTransport
from protocol.signing import peer_id_of
from protocol.units import PeerId
from tests import directory_suite as suite
from tests.make import signer


class MemoryPeer(MemoryTransport):
    """Both ports in one, as the real transport has them."""

    def __init__(self, hub: MemoryHub, registry: MemoryRegistry, number: int) -> None:
        super().__init__(hub, peer_id_of(signer(number).public), f"/memory/{number}")
        self._directory = MemoryDirectory(registry, self, self.peer_id)

    async def announce(self, key: bytes) -> None:
        await self._directory.announce(key)

    async def find(self, key: bytes) -> dict[PeerId, tuple[str, ...]]:
        return await self._directory.find(key)


async def start(nursery: trio.Nursery, registry: MemoryRegistry) -> list[MemoryPeer]:
    hub = MemoryHub()
    peers = [MemoryPeer(hub, registry, number) for number in (1, 2, 3)]
    for peer in peers:
        await nursery.start(peer.run)
    return peers


@pytest.mark.parametrize("check", suite.CHECKS, ids=lambda check: check.__name__)
async def test_three_conform(
    nursery: trio.Nursery, autojump_clock: trio.abc.Clock, check: suite.Check
) -> None:
    one, other, third = await start(nursery, MemoryRegistry())
    await check(one, other, third)


async def test_what_nobody_renews_is_forgotten(
    nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    one, other, third = await start(nursery, MemoryRegistry())
    await suite.gather_around(one, other, third)
    await other.announce(suite.KEY)
    await trio.sleep(RECORD_LIFE_S - 1)
    assert list(await third.find(suite.KEY)) == [other.peer_id]
    await trio.sleep(1)
    assert await third.find(suite.KEY) == {}


async def test_the_dice_may_lose_an_announcement(
    nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    lost: list[PeerId] = []
    one, other, third = await start(nursery, MemoryRegistry(lambda peer, _key: peer not in lost))
    await suite.gather_around(one, other, third)
    lost.append(other.peer_id)
    await one.announce(suite.KEY)
    await other.announce(suite.KEY)
    assert list(await third.find(suite.KEY)) == [one.peer_id]
