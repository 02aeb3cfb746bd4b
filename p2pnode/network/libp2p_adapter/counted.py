"""Counts the bytes of a host's connections: what a light client costs its owner is told.

And says once that one has ended: the library's `read_exactly` asks a hundred times more, a system
call each, which makes the end of a connection the dearest part of it.
"""

from libp2p.io.abc import ReadWriteCloser
from libp2p.io.exceptions import IncompleteReadError

from p2pnode.network.libp2p_adapter.damage import Damage


class CountedConnection(ReadWriteCloser):
    """A connection that adds what passes it to the host's totals; all else is as it was."""

    def __init__(self, inner: ReadWriteCloser, damage: Damage) -> None:
        self._inner = inner
        self._damage = damage

    async def write(self, data: bytes) -> None:
        await self._inner.write(data)
        self._damage.bytes_sent += len(data)

    async def read(self, n: int | None = None) -> bytes:
        data: bytes = await self._inner.read(n)
        if not data and n:
            raise IncompleteReadError("the connection has ended", expected_bytes=n)
        self._damage.bytes_received += len(data)
        return data

    async def close(self) -> None:
        await self._inner.close()

    def get_remote_address(self) -> tuple[str, int] | None:
        remote: tuple[str, int] | None = self._inner.get_remote_address()
        return remote

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)
