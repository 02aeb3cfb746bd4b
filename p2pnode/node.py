"""Builds every part of a node, hands each what it needs of the others, and owns their nursery."""

import logging
import random
from dataclasses import dataclass
from typing import Final

import trio

from p2pnode.clock import WallClock
from p2pnode.config import Config
from p2pnode.execution.gpu import GpuProbe
from p2pnode.identity import Identity
from p2pnode.matching.book import Book, Outcome
from p2pnode.matching.offer_sync import OfferSync
from p2pnode.matching.provider import Posting, Provider, shelves_of
from p2pnode.memo import certificate_memo
from p2pnode.network.exchange import Exchange, Handler
from p2pnode.network.gossip import Feed
from p2pnode.network.peers import Peers
from p2pnode.network.transport import Transport
from protocol.advert import Advert
from protocol.certificate import Certificate
from protocol.genesis import Genesis, net_of
from protocol.gpu_class import GpuClass, topic_index
from protocol.hello import Hello, check_hello
from protocol.limits import FRAME_BYTES_MAX
from protocol.units import NetId, PeerId

log = logging.getLogger(__name__)

AGENT: Final = "p2pnode"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Everything through which a node touches the world outside it."""

    transport: Transport
    probe: GpuProbe
    clock: WallClock
    rng: random.Random


def advert_topics(genesis: Genesis) -> tuple[str, ...]:
    """The names of the topics over which a network's adverts are spread. SPEC.md 6.2."""
    return tuple(_topic(net_of(genesis), index) for index in range(genesis.bounds.advert_topics))


def _topic(net: NetId, index: int) -> str:
    return f"p2pnode/{net.hex()[:32]}/advert/{index}"


class Node:
    """One peer."""

    def __init__(
        self,
        *,
        config: Config,
        genesis: Genesis,
        identity: Identity,
        bootstrap: dict[PeerId, tuple[str, ...]],
        incarnation: int,
        ports: Ports,
    ) -> None:
        self.config: Final = config
        self.genesis: Final = genesis
        self.identity: Final = identity
        self.net: Final = net_of(genesis)
        self.ports: Final = ports
        self._read = certificate_memo()
        self.book: Final = Book(genesis, read=self._read)
        self.feed: Final = Feed(self._take_gossiped)
        self.peers: Final = Peers(
            own=identity.certificate.peer_id,
            streams=ports.transport,
            bootstrap=bootstrap,
            rng=ports.rng,
        )
        self.offer_sync: Final = OfferSync(
            book=self.book,
            take=self._take_fetched,
            ask=self._ask,
            neighbours=ports.transport.neighbours,
            rng=ports.rng,
            clock=ports.clock,
        )
        handlers: dict[str, Handler] = {"ping": _pong, **self.offer_sync.handlers}
        self.exchange: Final = Exchange(
            streams=ports.transport,
            hello=lambda: self._hello(tuple(sorted(handlers))),
            check_hello=self._check_hello,
            handlers=handlers,
        )
        self.provider: Final = Provider(
            signer=identity.feed,
            certificate=identity.certificate_raw,
            genesis=genesis,
            incarnation=incarnation,
            posting=_posting(config, genesis),
            addresses=self._announced_addresses,
            announce=self._announce,
            clock=ports.clock,
        )

    @property
    def is_light(self) -> bool:
        """Whether the node stays out of the gossip meshes."""
        return self.config.network.gossip == "off" or (
            self.config.network.gossip == "auto" and self.config.roles == ("renter",)
        )

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Be a peer until cancelled; started once the node answers and has announced itself."""
        over = trio.Event()
        async with trio.open_nursery() as nursery:
            await nursery.start(self._keep_transport, over)
            try:
                await self._serve(task_status=task_status)
            finally:
                over.set()

    async def _keep_transport(
        self, over: trio.Event, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Outlive the services by the moment in which they say goodbye."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.ports.transport.run)
            nursery.cancel_scope.shield = True
            task_status.started()
            await over.wait()
            nursery.cancel_scope.cancel()

    async def _serve(self, *, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(self.exchange.run)
            if not self.is_light:
                for topic in advert_topics(self.genesis):
                    await self.ports.transport.subscribe(topic, self.feed.judge)
            await nursery.start(self.offer_sync.run)
            await nursery.start(self.peers.run, self.offer_sync.meet)
            if "owner" in self.config.roles:
                self.provider.stock(shelves_of(await self.ports.probe.read()))
                await nursery.start(self.provider.run)
            log.info("node up", extra={"peer": self.identity.certificate.peer_id.hex()})
            task_status.started()

    # What the parts need of each other.

    def _take_gossiped(self, publisher: PeerId, raw: bytes) -> bool:
        return self._take(raw, publisher)

    def _take_fetched(self, raw: bytes) -> bool:
        return self._take(raw, None)

    def _take(self, raw: bytes, publisher: PeerId | None) -> bool:
        """A sealed advert for our book, and with it where its owner can be reached."""
        outcome, offer = self.book.take(raw, now=self.ports.clock.now(), publisher=publisher)
        if outcome is not Outcome.NEW:
            return False
        assert offer is not None
        self.peers.learn(offer.certificate.peer_id, offer.advert.addresses)
        return True

    async def _announce(self, advert: Advert, sealed: bytes) -> None:
        self._take(sealed, None)
        topic = topic_index(
            GpuClass(advert.gpu_class),
            advert.region,
            topics=self.genesis.bounds.advert_topics,
        )
        await self.ports.transport.publish(_topic(self.net, topic), sealed)

    async def _ask(self, peer: PeerId, kind: str, body: bytes) -> bytes:
        await self.peers.reach(peer)
        return await self.exchange.ask(peer, kind, body)

    def _announced_addresses(self) -> tuple[str, ...]:
        return self.config.network.announce or self.ports.transport.addresses()

    def _hello(self, kinds: tuple[str, ...]) -> Hello:
        return Hello(
            net=self.net,
            roles=self.config.roles,
            kinds=kinds,
            certificate=self.identity.certificate_raw,
            frame_bytes_max=FRAME_BYTES_MAX,
            agent=AGENT,
        )

    def _check_hello(self, remote: PeerId, hello: Hello) -> Certificate:
        return check_hello(
            hello, remote=remote, net=self.net, now=self.ports.clock.now(), read=self._read
        )


async def _pong(_peer: PeerId, _body: bytes) -> bytes:
    await trio.lowlevel.checkpoint()
    return b""


def _posting(config: Config, genesis: Genesis) -> Posting:
    pricing = config.pricing
    return Posting(
        ask=None if pricing.ask is None else pricing.ask.micros,
        money=genesis.money if pricing.ask is None else pricing.ask.code,
        tiers=pricing.tiers,
        region=config.network.region,
        isolation="process",
        lease_ms_min=pricing.min_lease,
        lease_ms_max=pricing.max_lease,
        heartbeat_s=config.network.heartbeat / 1_000,
    )
