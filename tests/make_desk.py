"""Owners' desks and a renter that asks them, all on one clock in memory."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import UNSET

from ledger.entry import Entry
from ledger.intervals import Interval
from ledger.units_chain import Turn
from p2pnode.cabinet import MemoryCabinet
from p2pnode.matching.book import Follower, Offer
from p2pnode.matching.breaking import Breaks
from p2pnode.matching.desk import Books, Desk
from p2pnode.matching.holds import Holds
from p2pnode.matching.journal import Journal
from p2pnode.matching.judging import HAZARD_PPM_PER_HOUR
from p2pnode.matching.market import Market
from p2pnode.matching.order import Order
from p2pnode.matching.provider import Posting, Provider, Shelf
from p2pnode.matching.quoting import No, Question, quote
from p2pnode.matching.renter import Renter, Witness
from protocol.advert import Advert
from protocol.auction import Bid, Reply, Rfq, Take
from protocol.certificate import Certificate, read_certificate
from protocol.codec import decode, encode
from protocol.errors import Unavailable
from protocol.genesis import Genesis
from protocol.lease import LeaseRequest
from protocol.limits import FRAME_BYTES_MAX
from protocol.offers import OfferHead, group_key
from protocol.signing import Signer, digest, peer_id_of
from protocol.units import Digest, Mebibytes, Micros, Millis, MillisSpan, PeerId, PublicKey
from protocol.wire import pack, unpack
from tests import make
from tests.make_ledger import Feed, grant
from tests.make_market import certificate_of

HOUR = 3_600_000
NOBODY: Mapping[PublicKey, str] = {}
MET_NONE: Mapping[PublicKey, int] = {}


def shelf(**changes: Any) -> Shelf:
    fields: dict[str, Any] = {
        "group": make.GROUP,
        "model": "NVIDIA GeForce RTX 4090",
        "vram": Mebibytes(24_564),
        "source": "nvml",
        "units": make.UNITS,
        "driver": "570.86.15",
        "compute": (8, 9),
        **changes,
    }
    return Shelf(**fields)


def posting(**changes: Any) -> Posting:
    fields: dict[str, Any] = {
        "ask": Micros(390_000),
        "money": "TEST",
        "tiers": ("silver", "bronze"),
        "region": "DE",
        "isolation": "container",
        "lease_ms_min": MillisSpan(60_000),
        "lease_ms_max": MillisSpan(24 * HOUR),
        "period_ms": MillisSpan(60_000),
        "cpus": 16,
        "memory_mib": 64_000,
        "disk_mib": 100_000,
        "heartbeat_s": 30.0,
        **changes,
    }
    return Posting(**fields)


def turn(*spans: tuple[int, int], ctr: int = 4) -> Turn:
    """The newest entry of a unit with these leases, in milliseconds from NOW."""
    held = tuple(
        Interval(Millis(make.NOW + start), Millis(make.NOW + end), ctr) for start, end in spans
    )
    return Turn(ctr=ctr, seq=9, id=Digest(bytes(32)), open=held)


def quoted(
    rfq: Rfq,
    *,
    of: Shelf | None = None,
    by: Posting | None = None,
    turns: dict[bytes, Turn] | None = None,
    now: Millis = make.NOW,
    told: Micros | None = None,
) -> Bid | No:
    question = Question(rfq=rfq, digest=digest("rfq", encode(rfq)), renter=make.RENTER.public)
    return quote(
        question,
        shelf=of or shelf(),
        posting=by or posting(),
        turn_of=(turns or {}).get,
        now=now,
        told=told,
    )


@dataclass
class Clock:
    """See WallClock; stands still until it is set."""

    at: Millis = make.NOW

    def now(self) -> Millis:
        return self.at


async def _nothing(_advert: Advert, _raw: bytes) -> None:
    raise AssertionError("these owners do not announce")


@dataclass
class Owner:
    """One desk; what its ledger would do is scripted."""

    number: int
    clock: Clock
    genesis: Genesis = make.GENESIS
    by: Posting = field(default_factory=posting)
    taken: bool = False
    unwanted: str = ""
    jobs: list[tuple[LeaseRequest, bytes | None]] = field(default_factory=list)
    grants: dict[tuple[PublicKey, bytes], Entry] = field(default_factory=dict)
    granted: list[Entry] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    heard: list[Rfq] = field(default_factory=list)
    barred: dict[PublicKey, str] = field(default_factory=dict)
    journal: Journal = field(default_factory=lambda: Journal(MemoryCabinet()))
    screened: dict[PublicKey, str] = field(default_factory=dict)
    lie: Reply | None = None
    """Said to every question, if it is there."""

    def __post_init__(self) -> None:
        provider = Provider(
            signer=self.key,
            certificate=certificate_of(self.number),
            genesis=self.genesis,
            incarnation=1,
            posting=self.by,
            addresses=tuple,
            free_of=len,
            announce=_nothing,
            rng=random.Random(1),
            clock=self.clock,
        )
        provider.stock((shelf(),))
        self.desk = Desk(
            signer=self.key,
            genesis=self.genesis,
            provider=provider,
            books=Books(
                turn_of=lambda _unit: None,
                grant=self._grant,
                granted=lambda renter, nonce: self.grants.get((renter, nonce)),
                height=lambda: 12,
            ),
            breaks=Breaks(MemoryCabinet(), lambda _lease: None),
            holds=Holds(MemoryCabinet()),
            who_is=who_is,
            bars=self.barred.get,
            screens=lambda renter, _rfq: self.screened.get(renter.feed),
            admit_job=self._admit,
            on_grant=self.granted.append,
            journal=self.journal,
            on_rfq=self.heard.append,
            clock=self.clock,
        )

    @property
    def key(self) -> Signer:
        return make.signer(self.number)

    @property
    def peer(self) -> PeerId:
        return peer_id_of(self.key.public)

    def _grant(self, raw: bytes, _now: Millis) -> Entry:
        if self.taken:
            raise Unavailable("a lease came first")
        sealed = unpack(raw, make.NET, LeaseRequest)
        feed = Feed(self.key)
        feed.open()
        entry = feed.add(grant())
        self.grants[sealed.signer, sealed.body.nonce] = entry
        return entry

    def _admit(self, request: LeaseRequest, job: bytes | None, _renter: Certificate) -> None:
        if self.unwanted:
            raise Unavailable(self.unwanted)
        self.jobs.append((request, job))

    async def ask(self, kind: str, body: bytes, *, peer: PeerId | None = None) -> Reply:
        """The answer to this question, of the renter unless another peer asks."""
        self.asked.append(kind)
        if self.lie is not None:
            return self.lie
        asker = peer_id_of(make.RENTER.public) if peer is None else peer
        answer = await self.desk.handlers[kind](asker, body)
        return decode(answer, Reply, size_max=FRAME_BYTES_MAX)

    def rfq(self, **changes: Any) -> bytes:
        return pack(
            make.rfq(**{"owner": self.key.public, **changes}), signer=make.RENTER, net=make.NET
        )

    def take(self, request: LeaseRequest, *, job: bytes | None = None) -> bytes:
        raw = pack(request, signer=make.RENTER, net=make.NET)
        return encode(Take(request=raw, job=UNSET if job is None else job))

    def offer(self) -> Offer:
        """This owner's advert, as a renter has it in its book."""
        advert = make.advert(certificate=certificate_of(self.number), region="DE", free=2)
        key = group_key(self.key.public, advert.group)
        head: OfferHead = (key, advert.incarnation, advert.seq, bytes(16))
        return Offer(
            raw=pack(advert, signer=self.key, net=make.NET),
            head=head,
            signer=self.key.public,
            advert=advert,
            certificate=read_certificate(certificate_of(self.number), make.NET),
            taken_ms=make.NOW,
        )


def who_is(peer: PeerId) -> Certificate:
    """Every peer of these tests has one key for all; its number is found by it."""
    numbers = {peer_id_of(make.signer(number).public): number for number in range(1, 80)}
    return read_certificate(certificate_of(numbers[peer]), make.NET)


def order(**changes: Any) -> Order:
    fields: dict[str, Any] = {
        "need": make.need(),
        "tier": "silver",
        "span_ms": MillisSpan(HOUR),
        "notice_ms": MillisSpan(0),
        "money": "TEST",
        "ask_max": None,
        "total_max": None,
        "job": None,
        **changes,
    }
    return Order(**fields)


async def _unwitnessed(_peer: PeerId, _grant: bytes, _request: bytes) -> None:
    raise AssertionError("no order of these tests wants witnesses")


@dataclass
class _Stand:
    """A book with an advert of each owner, that nobody changes."""

    owners: list[Owner]

    def follow(self, follower: Follower) -> None:
        for offer in self.open_offers(make.NOW):
            follower.put(offer)

    def open_offers(self, _now: Millis) -> list[Offer]:
        return [owner.offer() for owner in self.owners]


@dataclass
class _Thinks:
    barred: Mapping[PublicKey, str]
    hazards: Mapping[PublicKey, int]

    def reliability_ppm(self, _owner: PublicKey) -> int:
        return 950_000

    def hazard_ppm_per_hour(self, owner: PublicKey) -> int:
        return self.hazards.get(owner, HAZARD_PPM_PER_HOUR)

    def is_clean(self, _owner: PublicKey) -> bool:
        return True

    def is_newcomer(self, _owner: PublicKey) -> bool:
        return False

    def bars(self, peer: PublicKey) -> str | None:
        return self.barred.get(peer)


def renter(
    owners: list[Owner],
    clock: Clock,
    *,
    genesis: Genesis = make.GENESIS,
    barred: Mapping[PublicKey, str] = NOBODY,
    hazards: Mapping[PublicKey, int] = MET_NONE,
    witness: Witness = _unwitnessed,
) -> Renter:
    """A renter that reaches these owners; its dice give a different number each time."""
    by_peer = {owner.peer: owner for owner in owners}
    thrown = iter(range(1, 10_000))

    async def ask(peer: PeerId, kind: str, body: bytes) -> bytes:
        return encode(await by_peer[peer].ask(kind, body))

    return Renter(
        signer=make.RENTER,
        genesis=genesis,
        market=Market(
            _Stand(owners),
            own=make.RENTER.public,
            thinks=_Thinks(barred, hazards),
            lease=lambda _lease: None,
            clock=clock,
        ),
        ask=ask,
        reliability_ppm=lambda _owner: 950_000,
        witness=witness,
        accuse=lambda _evidence: None,
        random_bytes=lambda count: next(thrown).to_bytes(count, "big"),
        clock=clock,
    )
