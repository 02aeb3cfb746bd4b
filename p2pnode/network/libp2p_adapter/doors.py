"""How often one source may connect to a host, and one peer open streams."""

import ipaddress
from collections.abc import Callable
from typing import Any, Final

import trio
from libp2p.peer.id import ID

from p2pnode.network.budget import Budget

CONNECTS_PER_S: Final = 8
CONNECTS_BURST: Final = 64
"""Twenty-four nodes of one host that start together connect at once, some of them twice."""
SOURCES_MAX: Final = 4_096

STREAMS_PER_S: Final = 30
STREAMS_BURST: Final = 256
"""Each question to the directory has its own, 200 at once from one peer; each job has three."""
PEERS_MAX: Final = 4_096


class Doors:
    """The budgets of one host."""

    def __init__(self) -> None:
        self._connects: Budget[str] = Budget(
            per_s=CONNECTS_PER_S, burst=CONNECTS_BURST, keys_max=SOURCES_MAX
        )
        self._streams: Budget[ID] = Budget(
            per_s=STREAMS_PER_S, burst=STREAMS_BURST, keys_max=PEERS_MAX
        )

    def may_connect(self, host: str) -> bool:
        """Whether somebody at this IP address may begin a handshake now."""
        return self._connects.is_within(source_of(host), trio.current_time())

    def may_open_stream(self, peer: ID) -> bool:
        """Whether the peer may open one more stream now."""
        return self._streams.is_within(peer, trio.current_time())


def guard(listener: trio.SocketListener, doors: Doors, refused: Callable[[], None]) -> None:
    """Close at once what comes too often; the connection that is awaited already goes in free.

    A handshake costs us milliseconds, and the one who knocks nothing; so does a task for him.
    """
    guarded: Any = _GuardedSocket(listener.socket, doors, refused)
    listener.socket = guarded


class _GuardedSocket:
    """A listening socket that hands on only those who may connect; all else is as it was."""

    def __init__(
        self, inner: trio.socket.SocketType, doors: Doors, refused: Callable[[], None]
    ) -> None:
        self._inner = inner
        self._doors = doors
        self._refused = refused

    async def accept(self) -> tuple[trio.socket.SocketType, Any]:
        while True:
            connection, address = await self._inner.accept()
            if self._doors.may_connect(address[0]):
                return connection, address
            self._refused()
            connection.close()

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


def source_of(host: str) -> str:
    """What one party can be assumed to have: an IPv4 address, or 64 bits of an IPv6 one."""
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))
