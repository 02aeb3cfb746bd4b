"""Builds every part of a node, hands each what it needs of the others, and owns their nursery."""

import logging
from functools import partial
from typing import Final

import trio

from p2pnode.bookkeeping import build_bookkeeping
from p2pnode.checkpointing import keep_summed_up
from p2pnode.config import Config
from p2pnode.execution.lease_door import PROTOCOL as LEASE_PROTOCOL
from p2pnode.execution.workplace import Workplace
from p2pnode.greeting import Greeting
from p2pnode.identity import Identity
from p2pnode.image_stock import ImageStock
from p2pnode.latency import Latency
from p2pnode.letting import build_shop
from p2pnode.links import Links
from p2pnode.lookout import Lookout
from p2pnode.matching.book import Book, Offer, Outcome
from p2pnode.matching.desk import Books, Desk
from p2pnode.matching.devices import Devices
from p2pnode.matching.holds import Holds
from p2pnode.matching.journal import Journal
from p2pnode.matching.market import Market
from p2pnode.matching.offer_sync import OfferSync
from p2pnode.matching.provider import Provider, shelves_of
from p2pnode.matching.rivals import rivals_in
from p2pnode.matching.search import Wish
from p2pnode.matching.surcharge import surcharges
from p2pnode.memo import certificate_memo
from p2pnode.network.exchange import Exchange, Handler, answer_ping
from p2pnode.network.gossip import Feed
from p2pnode.network.peers import Peers
from p2pnode.own_feed import begin_own_feed
from p2pnode.own_terms import OwnTerms
from p2pnode.own_time import latest_signed
from p2pnode.own_use import OwnUse
from p2pnode.policy import Policy
from p2pnode.ports import Ports, advert_topics, is_light, posting_of, topic_name
from p2pnode.rejoin import Rejoin
from p2pnode.renting import build_renting
from p2pnode.replication.replication import Replication
from p2pnode.replication.spread import SPREAD_TO, SPREAD_TO_LIGHT, Spreader
from p2pnode.traffic import Traffic
from protocol.advert import Advert, Surcharge
from protocol.genesis import Genesis, net_of
from protocol.gpu_class import GpuClass, topic_index
from protocol.units import PeerId, PublicKey

SURCHARGE_PPM_MAX: Final = 1_000_000
"""A job pays twice at most for what it leaves."""

log = logging.getLogger(__name__)


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
        self.is_light: Final = is_light(config)
        self._read = certificate_memo()
        self._handlers: Final[dict[str, Handler]] = {}
        self.traffic: Final = Traffic()
        self._device_of: Final[dict[bytes, str]] = {}
        self._build_network(bootstrap)
        self._build_books(incarnation)
        self._build_offers(incarnation)
        self._build_owner()
        self.use = OwnUse(
            self.provider, self.config.gpu, ports,
            leases=self.books.open_leases, take_back=self.workplace.preempt,
        )  # fmt: skip
        self._build_renter()
        self._handlers.update(
            {
                "ping": answer_ping,
                "tick": self.accounts.answer_tick,
                **self.settling.handlers,
                **self.offer_sync.handlers,
                **self.lookout.discovery.handlers,
                **self.desk.watch(self.rejoin.gated(self.desk.handlers)),
                **self.rejoin.gated({**self.workplace.handlers, **self.witness.handlers}),
            }
        )

    def _build_network(self, bootstrap: dict[PeerId, tuple[str, ...]]) -> None:
        ports = self.ports
        self.book = Book(self.genesis, read=self._read)
        self.devices = Devices(ports.clock)
        self.book.follow(self.devices)
        self.feed = Feed(self._take)
        self.peers = Peers(
            own=self.identity.certificate.peer_id,
            streams=ports.transport,
            bootstrap=bootstrap,
            local=ports.local,
            rng=ports.rng,
        )
        self.greeting = Greeting(
            identity=self.identity,
            net=self.net,
            roles=self.config.roles,
            handlers=self._handlers,
            read=self._read,
            clock=ports.clock,
        )
        self.exchange = Exchange(
            streams=ports.transport,
            hello=self.greeting.hello,
            check_hello=self.greeting.check,
            handlers=self._handlers,
        )
        self.replication = Replication(
            ledger=ports.ledger,
            streams=ports.transport,
            reach=self.peers.reach,
            wants=self._wants_feed if self.is_light else None,
            # They are not built yet.
            on_entry=lambda entry: self.watch.look_at_entry(entry),  # noqa: PLW0108
            on_news=lambda: self.spreader.note(),  # noqa: PLW0108
            on_proof=lambda: self.spreader.warn(),  # noqa: PLW0108
            rng=ports.rng,
        )
        self.spreader = Spreader(
            meet=self.replication.meet,
            neighbours=ports.transport.neighbours,
            spread_to=SPREAD_TO_LIGHT if self.is_light else SPREAD_TO,
            rng=ports.rng,
        )
        self.links = Links(
            exchange=self.exchange,
            peers=self.peers,
            streams=ports.transport,
            replication=self.replication,
            book=self.book,
            clock=ports.clock,
        )
        self.offer_sync = OfferSync(
            book=self.book,
            take=partial(self._take, None),
            ask=self.links.ask,
            neighbours=ports.transport.neighbours,
            rng=ports.rng,
            clock=ports.clock,
        )

    def _build_books(self, incarnation: int) -> None:
        ports = self.ports
        self.rejoin = Rejoin(
            ledger=ports.ledger,
            cabinet=ports.cabinet,
            neighbours=ports.transport.neighbours,
            compare=self.replication.compare_own,
            begin_feed=partial(
                begin_own_feed, ports.ledger, self.identity, incarnation=incarnation
            ),
            recovered=lambda: ports.catch_up(latest_signed(ports.ledger, ports.cabinet)),
            clock=ports.clock,
        )
        keeping = self.keeping = build_bookkeeping(
            config=self.config,
            genesis=self.genesis,
            identity=self.identity,
            ports=ports,
            links=self.links,
            tell=self._tell,
            grown=self.spreader.note,
            changed=lambda: self.provider.refresh(),  # noqa: PLW0108 - it is not built yet
            failures=lambda: self.jobs.failures,
        )
        self.standing, self.accounts = keeping.standing, keeping.accounts
        self.books, self.settling = keeping.books, keeping.settling
        self.credit_line, self.watch = keeping.credit_line, keeping.watch
        self.witness, self.witnesses = keeping.witness, keeping.witnesses

    def _build_offers(self, incarnation: int) -> None:
        ports = self.ports
        self.provider = Provider(
            signer=self.identity.feed,
            certificate=self.identity.certificate_raw,
            genesis=self.genesis,
            incarnation=incarnation,
            posting=posting_of(self.config, self.genesis, ports),
            addresses=lambda: self.config.network.announce or ports.transport.addresses(),
            free_of=self.books.free_of,
            announce=self._announce,
            rng=ports.rng,
            clock=ports.clock,
            images=lambda: self.images.filter,
            surcharges=self._surcharges,
            place=lambda: self.latency.coordinate(),  # noqa: PLW0108 - it is not built yet
        )
        self.images = ImageStock(ports.engine, changed=self.provider.refresh)
        self.terms = OwnTerms(self.provider, self.book, self.identity, self.config, ports=ports)
        self.lookout = Lookout(
            directory=ports.directory,
            streams=ports.transport,
            ask=self.links.ask,
            take=self._take,
            book=self.book,
            shelves=lambda: self.provider.shelves,
            feed=self.identity.feed.public,
            region=self.config.network.region,
            genesis=self.genesis,
            rng=ports.rng,
            clock=ports.clock,
        )

    def _build_owner(self) -> None:
        ports, ledger = self.ports, self.ports.ledger
        self.market = Market(
            self.book, own=self.identity.feed.public, thinks=self.standing,
            lease=ports.ledger.lease, clock=ports.clock,
            estimate_us=lambda offer: self.latency.estimate_us(offer),  # noqa: PLW0108 - see below
        )  # fmt: skip
        self.latency = Latency(
            ask=self.links.ask, offers=self._offers_of_neighbours,
            note=self.market.note_rtt, rng=ports.rng,
        )  # fmt: skip
        self.workplace = Workplace(
            shop=build_shop(
                identity=self.identity, net=self.net, ports=ports, links=self.links,
                provider=self.provider, keeping=self.keeping,
                device_of=lambda unit: self._device_of.get(unit, ""),
            ),
            who_is=self.links.who_is,
            x25519=(self.identity.certificate.x25519, self.identity.x25519_secret),
            refuses=Policy(
                own=self.identity.feed.public, genesis=self.genesis, host=ports.host,
                isolation=ports.engine.isolation, credit=self.credit_line.refusal,
                screens=self.terms.rules.bars_job,
            ).refusal,
            leases=self.books.leases,
        )  # fmt: skip
        self.desk = Desk(
            signer=self.identity.feed,
            genesis=self.genesis,
            provider=self.provider,
            books=Books(
                turn_of=lambda unit: ledger.state.turn(ledger.feed, unit),
                grant=ledger.grant,
                granted=ledger.grant_for,
                height=self.books.height,
                lease=ledger.lease,
                bronze=self.books.bronze,
                take_back=self.workplace.preempt,
            ),
            holds=Holds(ports.cabinet),
            who_is=self.links.who_is,
            bars=self.standing.bars,
            screens=self.terms.screen,
            admit_job=self.workplace.admit,
            on_grant=lambda entry: self.workplace.begin(self.books.granted(entry)),
            journal=Journal(ports.cabinet, rivals=rivals_in(self.market.offers)),
            on_rfq=lambda rfq: self.market.note_request(rfq.need),
            clock=ports.clock,
        )

    def _build_renter(self) -> None:
        renting = build_renting(
            config=self.config,
            genesis=self.genesis,
            identity=self.identity,
            ports=self.ports,
            links=self.links,
            keeping=self.keeping,
            market=self.market,
            look_around=self.look_around,
        )
        self.renter, self.jobs, self.pools = renting.renter, renting.jobs, renting.pools

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Be a peer until cancelled; started once the node answers and has announced itself."""
        over = trio.Event()
        async with trio.open_nursery() as nursery:
            await nursery.start(self._keep_transport, over)
            try:
                self.rejoin.begin()
                await self._serve(task_status=task_status)
            finally:
                over.set()
                self.rejoin.end()

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
            for service in self.ports.services:
                await nursery.start(service)
            await nursery.start(self.exchange.run)
            await nursery.start(self.replication.run)
            await nursery.start(self.peers.run, self._meet)
            if not self.is_light:
                for topic in advert_topics(self.genesis):
                    await self.ports.transport.subscribe(topic, self.feed.judge)
                await nursery.start(self.offer_sync.run)
            nursery.start_soon(self.spreader.run)
            nursery.start_soon(self.rejoin.run)
            if self.rejoin.why_held is None:
                await self._open_shop(nursery)
            else:
                nursery.start_soon(self._open_shop, nursery)
            await nursery.start(self.jobs.run, self.rejoin.wait)
            await nursery.start(self.pools.run, self.rejoin.wait)
            await nursery.start(self.latency.run)
            nursery.start_soon(self.traffic.run, self.ports.bytes_moved)
            nursery.start_soon(keep_summed_up, self.ports.ledger, self.ports.clock)
            log.info("node up", extra={"peer": self.identity.certificate.peer_id.hex()})
            task_status.started()

    async def _open_shop(self, nursery: trio.Nursery) -> None:
        """Offer what we have, and go on with the leases of before, once we may sign."""
        await self.rejoin.wait()
        if "owner" not in self.config.roles:
            return
        self.ports.transport.serve(LEASE_PROTOCOL, self.workplace.answer_stream)
        gpus = await self.ports.probe.read()
        self._device_of.update((gpu.unit, gpu.device) for gpu in gpus)
        self.books.declare(gpus)
        shelves = shelves_of(gpus)
        self.provider.stock(shelves)
        await nursery.start(self.workplace.run)
        await nursery.start(self.images.run)
        await nursery.start(self.terms.run)
        await nursery.start(self.use.run)
        await nursery.start(self.provider.run)
        if self.provider.posting.ask is not None:
            self.lookout.stock(shelves)
            await nursery.start(self.lookout.listing.run)

    async def look_around(self, wish: Wish) -> None:
        """Fill the book of a light client with what may fit; others hear it by gossip anyway."""
        if self.is_light:
            await self.lookout.look_around(wish)

    def _surcharges(self, group: bytes, free: int) -> tuple[Surcharge, ...]:
        usual = self.desk.journal.usual(group) if self.config.pricing.surcharge else ()
        return surcharges(free, usual, most_ppm=SURCHARGE_PPM_MAX)

    def _offers_of_neighbours(self) -> list[Offer]:
        near = set(self.ports.transport.neighbours())
        return [each for each in self.market.offers() if each.certificate.peer_id in near]

    def _meet(self, peer: PeerId) -> None:
        if not self.is_light:
            self.offer_sync.meet(peer)
        self.replication.meet(peer)
        self.lookout.listing.meet(self.peers.lost_since(peer))

    def _take(self, publisher: PeerId | None, raw: bytes) -> bool:
        """A sealed advert for our book, and with it where its owner can be reached."""
        outcome, offer = self.book.take(raw, now=self.ports.clock.now(), publisher=publisher)
        if outcome is not Outcome.NEW or offer is None:
            return False
        self.peers.learn(offer.certificate.peer_id, offer.advert.addresses)
        return True

    async def _announce(self, advert: Advert, sealed: bytes) -> None:
        self._take(None, sealed)
        topics = self.genesis.bounds.advert_topics
        index = topic_index(GpuClass(advert.gpu_class), advert.region, topics=topics)
        await self.ports.transport.publish(topic_name(self.net, index), sealed)

    def _tell(self, peer: PeerId) -> None:
        """Our feed has grown: the counterparty gets it at once, everybody else soon."""
        self.replication.tell(peer)
        self.spreader.note()

    def _wants_feed(self, feed: PublicKey) -> bool:
        """A light client keeps the feeds of those it deals with."""
        leases = self.ports.ledger.state.leases()
        return any(feed in {lease.owner, lease.renter} for lease in leases)
