"""Owners with real histories, and a renter that knows them by its ledger and asks them for leases.

Each history is signed and folded by real ledgers. The renter is the product's, and so are the
adverts, the book, the owners' bids and their GRANTs; only the wires between them are missing, and
time is virtual. Leases last a minute, so that all owners are free again for the next auction.
"""

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import trio
from msgspec import UNSET
from msgspec.structs import replace

from ledger.bodies import Statement
from ledger.guard import MemoryGuard
from ledger.ledger import Ledger, open_ledger
from ledger.store import MemoryStore
from ledger.trust import lower_bound_ppm
from p2pnode.cabinet import MemoryCabinet
from p2pnode.matching.book import Book
from p2pnode.matching.breaking import Breaks
from p2pnode.matching.desk import Books, Desk
from p2pnode.matching.holds import Holds
from p2pnode.matching.journal import Journal
from p2pnode.matching.market import Market
from p2pnode.matching.order import Order
from p2pnode.matching.provider import Posting, Provider, Shelf
from p2pnode.matching.renter import Renter, Taking, Won
from p2pnode.standing import Standing
from protocol.advert import Advert
from protocol.auction import Need
from protocol.certificate import Certificate, read_certificate
from protocol.genesis import Bounds, Genesis, net_of
from protocol.rules import BUNDLE
from protocol.signing import Signer, digest
from protocol.units import Mebibytes, Micros, MillisSpan, PeerId, PublicKey
from testnet.made_up import genesis_of
from testnet.world_host import EPOCH, VirtualClock

MONEY: Final = "USD"
GENESIS: Final = Genesis(name="reputed", kind="main", nonce=bytes(16), bounds=Bounds(), money=MONEY)
NET: Final = net_of(GENESIS)
ASK: Final = Micros(400_000)
VRAM: Final = Mebibytes(24_564)
LEASE_MS: Final = MillisSpan(60_000)
PAUSE_S: Final = 65
HEARTBEAT_S: Final = 60.0
FRIENDS: Final = 3
"""Other renters that the renter has dealt with, and therefore believes."""
SETTLED: Final = BUNDLE.settled_micro_max
PERIODS_MAX: Final = BUNDLE.voice_micro_max // BUNDLE.period_micro
"""Of one reporter, as far as it is believed."""
ORDER: Final = Order(
    need=Need(gpus=1, vram_mib_min=VRAM),
    tier="silver",
    span_ms=LEASE_MS,
    notice_ms=MillisSpan(0),
    money=MONEY,
    ask_max=None,
    total_max=None,
    job=None,
)
"""What the renter wants in each auction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What is known of an owner when the auctions begin."""

    good: int = 0
    """Periods for which friends of the renter have signed."""
    failed: int = 0
    """Times that it failed before the renter's own eyes."""


NONE: Final = History()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """One owner with a GPU: what it has behind it, and what it asks."""

    history: History
    ask: Micros = ASK


def history_of(ppm: int, *, failed: int = 0) -> History:
    """The shortest history by which an owner is thought to be at least so reliable."""
    good, unit = 0, BUNDLE.period_micro
    while lower_bound_ppm(good * unit, failed * unit, BUNDLE) < ppm:
        good += 1
    return History(good=good, failed=failed)


def _signer(*name: object) -> Signer:
    return Signer(digest("made-up reputed", repr(name).encode()))


@dataclass(frozen=True, slots=True)
class Peer:
    """A feed, and the certificate in its entry 0."""

    signer: Signer
    ledger: Ledger
    certificate: bytes

    @property
    def read(self) -> Certificate:
        return read_certificate(self.certificate, NET)


def _peer(*name: object) -> Peer:
    by = _signer(*name)
    ledger = open_ledger(
        store=MemoryStore(), guard=MemoryGuard(), signer=by, net=NET, uuid=bytes(16)
    )
    opening = genesis_of(by, NET, EPOCH)
    ledger.append(opening, EPOCH)
    return Peer(by, ledger, opening.certificate)


class Town:
    """The renter, its friends, and owners with their histories. One life of each."""

    def __init__(self, stalls: Sequence[Stall], *, seed: int) -> None:
        self._dice = random.Random(seed)  # noqa: S311  dice are only dice
        self.clock = VirtualClock()
        self.renter = _peer("renter")
        self.friends = [_peer("friend", number) for number in range(FRIENDS)]
        self.owners = [_peer("owner", seed, number) for number in range(len(stalls))]
        for friend in self.friends:
            _settle(friend, self.renter, SETTLED, used_ms=MillisSpan(0))
        for owner, stall in zip(self.owners, stalls, strict=True):
            _serve(owner, self.friends, stall.history.good)
        for peer in (*self.friends, *self.owners):
            _share(peer.ledger, self.renter.ledger)
        self._failures = {
            owner.signer.public: stall.history.failed
            for owner, stall in zip(self.owners, stalls, strict=True)
            if stall.history.failed
        }
        self.standing = Standing(
            ledger=self.renter.ledger,
            money=MONEY,
            failures=lambda: self._failures,
            clock=self.clock,
        )
        self.book = Book(GENESIS, read=read_certificate)
        self.market = Market(
            self.book,
            own=self.renter.signer.public,
            thinks=self.standing,
            lease=lambda _lease: None,
            clock=self.clock,
        )
        self.order: Final = ORDER
        self._number = {owner.signer.public: n for n, owner in enumerate(self.owners)}
        self._renter = Renter(
            signer=self.renter.signer,
            genesis=GENESIS,
            market=self.market,
            ask=self._ask,
            reliability_ppm=self.standing.reliability_ppm,
            witness=_unwitnessed,
            accuse=lambda _evidence: None,
            random_bytes=self._dice.randbytes,
            clock=self.clock,
        )
        self._providers = [
            self._provider(owner, stall.ask)
            for owner, stall in zip(self.owners, stalls, strict=True)
        ]
        self._desks = {
            owner.read.peer_id: self._desk(owner, provider)
            for owner, provider in zip(self.owners, self._providers, strict=True)
        }

    def reliability_ppm(self, owner: int) -> int:
        """As the renter's ledger gives it."""
        return self.standing.reliability_ppm(self.owners[owner].signer.public)

    def number_of(self, owner: PublicKey) -> int:
        """Its place among the stalls."""
        return self._number[owner]

    def fail(self, owner: int) -> None:
        """It takes a lease of the renter, and does not serve."""
        feed = self.owners[owner].signer.public
        self._failures[feed] = self._failures.get(feed, 0) + 1

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Owners announce themselves and go on doing so."""
        async with trio.open_nursery() as nursery:
            for provider in self._providers:
                await nursery.start(provider.run)
            yield
            nursery.cancel_scope.cancel()

    async def auction(self) -> tuple[int, Won]:
        """Who wins the next, by number, and its record; all are free again afterwards."""
        won = await self._renter.rent(
            self.order, seal_job=lambda _offer: None, remember=_remembered
        )
        await trio.sleep(PAUSE_S)
        self.book.expire(self.clock.now())
        return self.number_of(won.taking.owner), won

    async def _ask(self, peer: PeerId, kind: str, body: bytes) -> bytes:
        return await self._desks[peer].handlers[kind](self.renter.read.peer_id, body)

    def _provider(self, owner: Peer, ask: Micros) -> Provider:
        async def announce(_advert: Advert, raw: bytes) -> None:
            await trio.lowlevel.checkpoint()
            self.book.take(raw, now=self.clock.now())

        provider = Provider(
            signer=owner.signer,
            certificate=owner.certificate,
            genesis=GENESIS,
            incarnation=1,
            posting=_posting(ask),
            addresses=tuple,
            free_of=len,
            announce=announce,
            rng=self._dice,
            clock=self.clock,
        )
        unit = digest("made-up unit", owner.signer.public)[:16]
        shelf = Shelf(
            group=unit, model="NVIDIA GeForce RTX 4090", vram=VRAM, source="nvml", units=(unit,)
        )
        provider.stock((shelf,))
        return provider

    def _desk(self, owner: Peer, provider: Provider) -> Desk:
        ledger, cabinet = owner.ledger, MemoryCabinet()
        renter = self.renter.read
        return Desk(
            signer=owner.signer,
            genesis=GENESIS,
            provider=provider,
            books=Books(
                turn_of=lambda unit: ledger.state.turn(ledger.feed, unit),
                grant=ledger.grant,
                granted=ledger.grant_for,
                height=lambda: 0,
                lease=ledger.lease,
            ),
            holds=Holds(cabinet),
            breaks=Breaks(cabinet, ledger.lease),
            who_is=lambda _peer: renter,
            bars=lambda _renter: None,
            screens=lambda _renter, _rfq: None,
            admit_job=lambda _request, _job, _renter: None,
            on_grant=lambda _entry: None,
            journal=Journal(cabinet),
            on_rfq=lambda _rfq: None,
            clock=self.clock,
        )


def _posting(ask: Micros) -> Posting:
    return Posting(
        ask=ask,
        money=MONEY,
        tiers=("silver",),
        region="DE",
        isolation="container",
        lease_ms_min=MillisSpan(1_000),
        lease_ms_max=MillisSpan(3_600_000),
        period_ms=BUNDLE.period_ms,
        cpus=16,
        memory_mib=64_000,
        disk_mib=100_000,
        heartbeat_s=HEARTBEAT_S,
    )


def _serve(owner: Peer, friends: Sequence[Peer], periods: int) -> None:
    """So many periods for friends; each is believed for as many as one reporter may be."""
    for friend in friends:
        part = min(periods, PERIODS_MAX)
        periods -= part
        if part:
            used = MillisSpan(part * BUNDLE.period_ms)
            _settle(owner, friend, Micros(part * BUNDLE.period_micro), used_ms=used)
    assert not periods, "too long a history for so few friends"


def _settle(owner: Peer, renter: Peer, amount: Micros, *, used_ms: MillisSpan) -> None:
    """The owner's account, and the renter's answer to it."""
    body = Statement(
        peer=renter.signer.public,
        ctr=1,
        used_ms=used_ms,
        amount_micro=amount,
        money=MONEY,
        half=UNSET,
        paid_micro=amount,
    )
    half = owner.ledger.append(body, EPOCH)
    _share(owner.ledger, renter.ledger)
    answer = replace(body, peer=owner.signer.public, half=half.id)
    renter.ledger.append(answer, EPOCH)


def _share(source: Ledger, target: Ledger) -> None:
    head = source.head(source.feed)
    assert head is not None
    known = target.head(source.feed)
    for raw in source.entries(source.feed, 0 if known is None else known.seq + 1, head.seq + 1):
        target.ingest(raw)


async def _unwitnessed(_peer: PeerId, _grant: bytes, _request: bytes) -> None:
    await trio.lowlevel.checkpoint()


async def _remembered(_taking: Taking) -> None:
    await trio.lowlevel.checkpoint()
