"""How often one source may connect to a host, and one peer open streams. Decides, does nothing."""

import ipaddress
from typing import Final

import trio
from libp2p.peer.id import ID
from multiaddr import Multiaddr

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

    def may_connect(self, remote: Multiaddr | None) -> bool:
        """Whether somebody at this address may begin a handshake now."""
        return self._connects.is_within(source_of(remote), trio.current_time())

    def may_open_stream(self, peer: ID) -> bool:
        """Whether the peer may open one more stream now."""
        return self._streams.is_within(peer, trio.current_time())


def source_of(remote: Multiaddr | None) -> str:
    """What one party can be assumed to have: an IPv4 address, or 64 bits of an IPv6 one."""
    _, kind, host, *_ = f"{remote}//".split("/", 3)
    if kind == "ip6":
        return str(ipaddress.ip_network((host, 64), strict=False))
    return host
