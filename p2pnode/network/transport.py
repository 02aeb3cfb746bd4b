"""The ports through which the node reaches other peers.

Real ones are in `libp2p_adapter`, a whole network in one process in `memory_transport`; one suite
of tests holds for both. Streams are `trio.abc.Stream`: end of stream is an empty read, a reset or
a lost connection raises `trio.BrokenResourceError`.
"""

from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import Protocol

import trio

from protocol.units import PeerId


class Verdict(Enum):
    """What a topic's judge says of one message."""

    ACCEPT = "accept"  # forward it to the mesh
    IGNORE = "ignore"  # late or repeated: drop it, nobody is at fault
    REJECT = "reject"  # a rule is broken: drop it and hold it against the forwarder


Judge = Callable[[PeerId, PeerId, bytes], Verdict]
"""judge(forwarder, publisher, payload), synchronous, raises nothing.

The transport has verified that `publisher` signed the message in this topic. The judge takes what
it accepts into our state itself, so that there is no queue between the two to overflow.
"""

StreamHandler = Callable[[PeerId, trio.abc.Stream], Awaitable[None]]
"""handler(remote, stream); the stream is closed when it returns or raises."""


class Gossip(Protocol):
    """Best-effort announcement to everybody who subscribed; it may lose anything silently."""

    async def subscribe(self, topic: str, judge: Judge) -> None:
        """Join the topic's mesh; from then on `judge` sees each message of others once."""

    async def publish(self, topic: str, payload: bytes) -> None:
        """Announce to the topic, which need not be subscribed. Own messages are not judged."""

    def mesh(self, topic: str) -> tuple[PeerId, ...]:
        """The peers with whom we exchange the topic in full; sorted."""


class Streams(Protocol):
    """Reliable byte streams between two peers."""

    async def connect(self, peer: PeerId, addresses: tuple[str, ...]) -> None:
        """Be connected with the peer, trying the addresses in turn.

        Addresses are multiaddr texts without the peer id. Returns at once if connected.
        Raises Unavailable if none leads to this very peer.
        """

    async def open_stream(self, peer: PeerId, protocol: str) -> trio.abc.Stream:
        """Open a stream to a connected peer.

        Raises Unavailable if there is no connection or the peer does not speak the protocol.
        """

    def serve(self, protocol: str, handler: StreamHandler) -> None:
        """Let `handler` answer each inbound stream of the protocol, each in a task of its own."""

    def neighbours(self) -> tuple[PeerId, ...]:
        """The peers that we are connected with now; sorted."""

    def addresses(self) -> tuple[str, ...]:
        """The multiaddr texts at which others can dial us, without the peer id."""


class Transport(Gossip, Streams, Protocol):
    """Both ports over one identity, and the task that keeps them going."""

    @property
    def peer_id(self) -> PeerId:
        """Who we are."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Be up until cancelled; started once others can reach us."""


Found = Callable[[Mapping[PeerId, tuple[str, ...]]], None]
"""found(peers and their addresses): all that are in sight now, each time that this changes."""


class LocalDiscovery(Protocol):
    """Finds peers of our network on the wire that we are on, and lets them find us.

    Hearsay, as that of the directory.
    """

    async def run(self, addresses: Callable[[], tuple[str, ...]], found: Found) -> None:
        """Take part until cancelled; `addresses` are ours, as they are at the time of asking."""


class Directory(Protocol):
    """Finds peers that we have never heard of, by what they said they have.

    Best effort and hearsay: entries may be missing, stale by hours, or made up by anybody who
    likes to be asked, and there is no way to take an announcement back. So trust only what a peer
    that was found says itself, and announce again from time to time. Deadlines are the caller's.
    """

    async def announce(self, key: bytes) -> None:
        """Be found under the 32 bytes of the key from now on, for some hours.

        Raises Unavailable if nobody took the announcement.
        """

    async def find(self, key: bytes) -> dict[PeerId, tuple[str, ...]]:
        """Who is said to be found under the key, and at which addresses; we are left out.

        Raises Unavailable if nobody could be asked.
        """
