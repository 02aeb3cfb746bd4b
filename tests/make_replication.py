"""Replicas over a hub in memory, and streams that are slow and break, for tests of replication."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import trio

from ledger.entry import Entry
from ledger.ledger import Ledger
from ledger.store import Store
from p2pnode.network.memory_transport import MemoryHub, MemoryTransport
from p2pnode.network.transport import StreamHandler
from p2pnode.replication.replication import PROTOCOL, Replication, Wants
from protocol.errors import Unavailable
from protocol.signing import peer_id_of
from protocol.units import Digest, PeerId, PublicKey
from tests.make_ledger import at, genesis, ledger, signer, statement

Script = Callable[[trio.abc.Stream], Awaitable[None]]
"""What a bad peer does with a stream."""


def peer(name: int) -> PeerId:
    return peer_id_of(signer(name).public)


@dataclass
class Weather:
    """How streams fare: each write takes `delay_s`, and one in `odds` of them breaks the stream."""

    rng: random.Random
    delay_s: float = 0.0
    odds: int = 0
    broken: int = 0

    async def pass_over(self, stream: trio.abc.Stream) -> None:
        await trio.sleep(self.delay_s)
        if self.odds and self.rng.randrange(self.odds) == 0:
            self.broken += 1
            await trio.aclose_forcefully(stream)
            raise trio.BrokenResourceError


class WeatheredStream(trio.abc.Stream):
    """See trio.abc.Stream."""

    def __init__(self, stream: trio.abc.Stream, weather: Weather) -> None:
        self._stream = stream
        self._weather = weather

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._weather.pass_over(self._stream)
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self._stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        await self._stream.aclose()


class WeatheredStreams:
    """See Streams."""

    def __init__(self, transport: MemoryTransport, weather: Weather) -> None:
        self._transport = transport
        self._weather = weather

    async def connect(self, peer: PeerId, addresses: tuple[str, ...]) -> None:
        await self._transport.connect(peer, addresses)

    async def open_stream(self, peer: PeerId, protocol: str) -> trio.abc.Stream:
        stream = await self._transport.open_stream(peer, protocol)
        return WeatheredStream(stream, self._weather)

    def serve(self, protocol: str, handler: StreamHandler) -> None:
        self._transport.serve(protocol, handler)

    def neighbours(self) -> tuple[PeerId, ...]:
        return self._transport.neighbours()

    def addresses(self) -> tuple[str, ...]:
        return self._transport.addresses()


@dataclass
class Member:
    """One replica in a network."""

    name: int
    transport: MemoryTransport
    replication: Replication
    seen: list[Entry] = field(default_factory=list)
    news: list[int] = field(default_factory=list)
    """How many were seen each time that there was news."""

    @property
    def peer(self) -> PeerId:
        return self.transport.peer_id

    @property
    def feed(self) -> PublicKey:
        return self.ledger.feed

    @property
    def ledger(self) -> Ledger:
        return self.replication.ledger

    def write(self, count: int = 1) -> None:
        """Grow our own feed."""
        for _ in range(count):
            head = self.ledger.head(self.feed)
            seq = 0 if head is None else head.seq
            self.ledger.append(statement(signer(199), ctr=seq, used=seq), at(0))

    def ids(self) -> list[Digest]:
        return sorted(entry.id for entry in self.ledger._records.all_entries())

    def feeds(self) -> list[PublicKey]:
        return [head.feed for head in self.ledger.heads()]


class Town:
    """A network in memory that grows member by member."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.hub = MemoryHub()
        self.weather = Weather(random.Random(1))
        self.members: list[Member] = []
        self._nursery = nursery

    async def add(self, *, wants: Wants | None = None, store: Store | None = None) -> Member:
        name = len(self.members) + 1
        transport = MemoryTransport(self.hub, peer(name), f"/memory/{name}")
        seen: list[Entry] = []
        news: list[int] = []
        own = ledger(signer(name), store=store)
        own.append(genesis(signer(name)), at(0))
        replication = Replication(
            ledger=own,
            streams=WeatheredStreams(transport, self.weather),
            reach=self._reach(transport),
            rng=random.Random(name),
            wants=wants,
            on_entry=seen.append,
            on_news=lambda: news.append(len(seen)),
        )
        member = Member(name, transport, replication, seen, news)
        self.members.append(member)
        await self._nursery.start(transport.run)
        await self._nursery.start(replication.run)
        return member

    def _reach(self, transport: MemoryTransport) -> Callable[[PeerId], Awaitable[None]]:
        async def reach(other: PeerId) -> None:
            if other in transport.neighbours():
                return
            known = [member.transport for member in self.members if member.peer == other]
            if not known:
                raise Unavailable("no address of the peer is known")
            await transport.connect(other, known[0].addresses())

        return reach

    async def join(self, one: Member, other: Member) -> None:
        """Make two members neighbours, as the address book does."""
        await one.transport.connect(other.peer, other.transport.addresses())
        one.replication.meet(other.peer)
        other.replication.meet(one.peer)

    async def outsider(self, name: int, script: Script | None) -> MemoryTransport:
        """A peer without a ledger that answers by this script and is everybody's neighbour."""
        transport = MemoryTransport(self.hub, peer(name), f"/memory/{name}")
        await self._nursery.start(transport.run)
        if script is not None:

            async def handle(_remote: PeerId, stream: trio.abc.Stream) -> None:
                await script(stream)

            transport.serve(PROTOCOL, handle)
        for member in self.members:
            await transport.connect(member.peer, member.transport.addresses())
        return transport
