"""Owners and renters on a hub in memory who know each other through the directory alone."""

import random
from dataclasses import dataclass

import trio

from p2pnode.matching.book import Book
from p2pnode.matching.discovery import Discovery
from p2pnode.network.exchange import Exchange, Handler
from p2pnode.network.memory_directory import MemoryDirectory, MemoryRegistry
from p2pnode.network.memory_transport import MemoryHub, MemoryTransport
from protocol.certificate import Certificate, read_certificate, sign_certificate
from protocol.gpu_class import CLASSES, REGION_GROUPS, gpu_class
from protocol.hello import Hello
from protocol.offers import group_key
from protocol.signing import Signer, peer_id_of
from protocol.units import Mebibytes, Millis, PeerId
from protocol.wire import pack
from tests import make

GROUPS_MAX = 64


class VirtualClock:
    """See WallClock; follows trio's clock, so a test steers both."""

    def now(self) -> Millis:
        return Millis(make.NOW + round(trio.current_time() * 1_000))


@dataclass
class Stand:
    """One peer: its transport, its book, and how it is discovered and discovers."""

    number: int
    transport: MemoryTransport
    directory: MemoryDirectory
    book: Book
    exchange: Exchange
    discovery: Discovery
    handlers: dict[str, Handler]

    @property
    def feed(self) -> Signer:
        return make.signer(self.number)

    def sealed(self, group: int = 0, *, vram: int = 24_564, **changes: object) -> bytes:
        """An advert of this peer, issued now."""
        now = VirtualClock().now()
        fields: dict[str, object] = {
            "certificate": certificate_of(self.number),
            "group": group.to_bytes(16, "big"),
            "issued_ms": now,
            "not_after_ms": Millis(now + 90_000),
            "vram_mib": vram,
            "gpu_class": gpu_class(Mebibytes(vram)),
            "region": "DE",
            "addresses": self.transport.addresses(),
            **changes,
        }
        return pack(make.advert(**fields), signer=self.feed, net=make.NET)

    def offer(self, group: int = 0, *, vram: int = 24_564, **changes: object) -> None:
        """Put an advert of its own into its book."""
        self.book.take(self.sealed(group, vram=vram, **changes), now=VirtualClock().now())

    def sees(self) -> set[PeerId]:
        """Whose open offers are in its book."""
        offers = self.book.open_offers(VirtualClock().now())
        return {offer.certificate.peer_id for offer in offers}


def certificate_of(number: int) -> bytes:
    key = make.signer(number)
    return sign_certificate(
        make.certificate(root=key.public, feed=key.public, peer_id=peer_id_of(key.public)),
        root=key,
        feed=key,
        peer=key,
    )


PLACES = len(CLASSES) * len(REGION_GROUPS)


class Market:
    """A hub and a directory, and the stands on them; the first is everybody's neighbour."""

    def __init__(self, nursery: trio.Nursery, *, shards: int = 1) -> None:
        self.hub = MemoryHub()
        self.registry = MemoryRegistry()
        self.shards = shards
        self._nursery = nursery
        self._first: MemoryTransport | None = None
        self._count = 0

    async def add(self) -> Stand:
        self._count += 1
        stand = self._build(self._count)
        await self._nursery.start(stand.transport.run)
        await self._nursery.start(stand.exchange.run)
        if self._first is None:
            self._first = stand.transport
        else:
            await stand.transport.connect(self._first.peer_id, self._first.addresses())
        return stand

    def _build(self, number: int) -> Stand:
        peer = peer_id_of(make.signer(number).public)
        transport = MemoryTransport(self.hub, peer, f"/memory/{number}")
        directory = MemoryDirectory(self.registry, transport, peer)
        book = Book(make.GENESIS, read=read_certificate)
        handlers: dict[str, Handler] = {}
        exchange = Exchange(
            streams=transport,
            hello=lambda: make.hello(certificate=certificate_of(number)),
            check_hello=_accept,
            handlers=handlers,
        )
        groups = [group.to_bytes(16, "big") for group in range(GROUPS_MAX)]
        discovery = Discovery(
            directory=directory,
            streams=transport,
            ask=exchange.ask,
            take=lambda publisher, raw: (
                book.take(raw, now=VirtualClock().now(), publisher=publisher)[1] is not None
            ),
            book=book,
            own_groups=lambda: tuple(group_key(make.signer(number).public, g) for g in groups),
            net=make.NET,
            places=PLACES,
            shards=self.shards,
            rng=random.Random(number),
            clock=VirtualClock(),
        )
        handlers.update(discovery.handlers)
        return Stand(
            number=number,
            transport=transport,
            directory=directory,
            book=book,
            exchange=exchange,
            discovery=discovery,
            handlers=handlers,
        )


def _accept(_remote: PeerId, hello: Hello) -> Certificate:
    return read_certificate(hello.certificate, make.NET)
