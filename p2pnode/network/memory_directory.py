"""A directory in one process, for the networks of `memory_transport`."""

from collections.abc import Callable
from typing import Final

import trio

from p2pnode.network.transport import Streams
from protocol.errors import Unavailable
from protocol.units import PeerId

RECORD_LIFE_S: Final = 3 * 3_600

Keeps = Callable[[PeerId, bytes], bool]
"""Whether one announcement of a peer under a key is kept: the dice of a world."""


def sound_memory(_peer: PeerId, _key: bytes) -> bool:
    """A directory that loses nothing."""
    return True


class MemoryRegistry:
    """What all directories of one world have been told."""

    def __init__(self, keeps: Keeps = sound_memory) -> None:
        self._keeps = keeps
        self._records: dict[bytes, dict[PeerId, tuple[tuple[str, ...], float]]] = {}

    def put(self, key: bytes, peer: PeerId, addresses: tuple[str, ...]) -> None:
        """Let the peer be found under the key, unless the dice lose it."""
        if self._keeps(peer, key):
            until_s = trio.current_time() + RECORD_LIFE_S
            self._records.setdefault(key, {})[peer] = (addresses, until_s)

    def get(self, key: bytes) -> dict[PeerId, tuple[str, ...]]:
        """Who is found under the key now, in order of the ids."""
        now_s = trio.current_time()
        there = self._records.get(key, {})
        return {
            peer: addresses
            for peer, (addresses, until_s) in sorted(there.items())
            if now_s < until_s
        }


class MemoryDirectory:
    """See Directory. Whoever has a neighbour reaches the whole registry."""

    def __init__(self, registry: MemoryRegistry, streams: Streams, peer_id: PeerId) -> None:
        self._registry = registry
        self._streams = streams
        self._peer_id = peer_id

    async def announce(self, key: bytes) -> None:
        await self._visit()
        self._registry.put(key, self._peer_id, self._streams.addresses())

    async def find(self, key: bytes) -> dict[PeerId, tuple[str, ...]]:
        await self._visit()
        found = self._registry.get(key)
        found.pop(self._peer_id, None)
        return found

    async def _visit(self) -> None:
        await trio.lowlevel.checkpoint()
        if not self._streams.neighbours():
            raise Unavailable("no neighbour knows of a directory")
