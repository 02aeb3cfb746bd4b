"""Owners that hold units as they are told to, and pools among them, by the renter's own code."""

import dataclasses
import random
from dataclasses import dataclass, field
from functools import cache

import trio
from msgspec import UNSET

from p2pnode.matching.book import Follower, Offer
from p2pnode.matching.judging import HAZARD_PPM_PER_HOUR
from p2pnode.matching.market import Market
from p2pnode.matching.order import Order
from p2pnode.matching.pool_failures import Failures
from p2pnode.matching.pooling import NoPool, Pool, Pooling
from protocol.advert import Surcharge, TierAsk
from protocol.auction import Refusal, Reply, Rfq
from protocol.certificate import read_certificate, sign_certificate
from protocol.codec import encode
from protocol.errors import Unavailable
from protocol.offers import group_key
from protocol.signing import peer_id_of
from protocol.units import Digest, Micros, Millis, MillisSpan, PeerId, PublicKey
from protocol.wire import pack, unpack
from tests import make
from tests.make_desk import HOUR, Clock, order

GPUS = 2
"""Of each node, as `make.need` has it."""


@cache
def certificate_of(number: int, root: int) -> bytes:
    """Peer `number`, for which the account `root` answers."""
    key, account = make.signer(number), make.signer(root)
    body = make.certificate(root=account.public, feed=key.public, peer_id=peer_id_of(key.public))
    return sign_certificate(body, root=account, feed=key, peer=key)


@cache
def sealed_offer(
    number: int, root: int, ask: int, free: int, money: str, surcharges: tuple[Surcharge, ...]
) -> Offer:
    key, raw = make.signer(number), certificate_of(number, root)
    advert = make.advert(
        certificate=raw,
        units=free,
        free=free,
        money=money,
        region="DE",
        tiers=(TierAsk(tier="silver", micro_per_gpu_hour=Micros(ask)),),
        surcharges=surcharges or UNSET,
    )
    return Offer(
        raw=pack(advert, signer=key, net=make.NET),
        head=(group_key(key.public, advert.group), advert.incarnation, advert.seq, bytes(16)),
        signer=key.public,
        advert=advert,
        certificate=read_certificate(raw, make.NET),
        taken_ms=make.NOW,
    )


@dataclass(kw_only=True)
class Holder:
    """An owner, and what it does with questions for a hold."""

    number: int
    ask: int
    free: int = GPUS
    root: int | None = None
    """Number of its account; by default its own."""
    bids: int | None = None
    """What it bids; by default its ask."""
    does: str = "hold"
    """Or `refuse`, `be silent`, `not hold` (bid without keeping) or `lie` (to another renter)."""
    money: str = "TEST"
    takes_s: float = 0.0
    """Until it answers."""
    surcharge_ppm: int = 0
    """On its ask, for a node's GPUs together."""
    alone_ppm: int = 0
    """On its ask, for a single GPU."""
    heard: list[Rfq] = field(default_factory=list)
    dropped: int = 0

    @property
    def offer(self) -> Offer:
        root = self.number if self.root is None else self.root
        alone = Surcharge(units=1, ppm=self.alone_ppm)
        together = Surcharge(units=GPUS, ppm=self.surcharge_ppm)
        is_flat = self.alone_ppm == self.surcharge_ppm == 0
        surcharges = () if is_flat else (alone, together)
        return sealed_offer(self.number, root, self.ask, self.free, self.money, surcharges)

    @property
    def feed(self) -> PublicKey:
        return make.signer(self.number).public

    def answer(self, kind: str, body: bytes) -> bytes:
        if kind == "bid.drop":
            self.dropped += 1
            return b""
        rfq = unpack(body, make.NET, Rfq)
        self.heard.append(rfq.body)
        signer = make.signer(self.number)
        if self.does == "be silent":
            raise Unavailable("not there")
        if self.does == "refuse":
            no = Refusal(of=rfq.digest, renter=rfq.signer, reason="TAKEN", issued_ms=make.NOW)
            return encode(Reply(no=pack(no, signer=signer, net=make.NET)))
        bid = make.bid(
            rfq=rfq.digest,
            renter=make.STRANGER.public if self.does == "lie" else rfq.signer,
            start_ms=rfq.body.start_ms,
            end_ms=rfq.body.end_ms,
            money=rfq.body.money,
            micro_per_gpu_hour=Micros(self.ask if self.bids is None else self.bids),
            valid_until_ms=Millis(make.NOW + 5_000),
            exclusive=UNSET if self.does == "not hold" else "yes",
        )
        return encode(Reply(yes=pack(bid, signer=signer, net=make.NET)))


@dataclass
class _Stand:
    holders: list[Holder]

    def follow(self, follower: Follower) -> None:
        for holder in self.holders:
            follower.put(holder.offer)

    def open_offers(self, _now: Millis) -> list[Offer]:
        return [holder.offer for holder in self.holders]


@dataclass
class Thinks:
    """See market.Thinks: everybody is sure, but for whom it is said."""

    reliability: dict[PublicKey, int]

    def reliability_ppm(self, owner: PublicKey) -> int:
        return self.reliability.get(owner, 1_000_000)

    def hazard_ppm_per_hour(self, _owner: PublicKey) -> int:
        return HAZARD_PPM_PER_HOUR

    def is_clean(self, _owner: PublicKey) -> bool:
        return True

    def is_newcomer(self, _owner: PublicKey) -> bool:
        return False

    def bars(self, _peer: PublicKey) -> str | None:
        return None


def pooling(
    holders: list[Holder],
    *,
    reliability: dict[PublicKey, int] | None = None,
    rtts: dict[PublicKey, int] | None = None,
    seem_us: dict[PublicKey, int] | None = None,
) -> Pooling:
    """A renter among these owners; its dice give a different number each time."""
    by_peer = {peer_id_of(holder.feed): holder for holder in holders}
    thrown, clock = iter(range(1, 10**6)), Clock()
    market = Market(
        _Stand(holders),
        own=make.RENTER.public,
        thinks=Thinks(reliability or {}),
        lease=lambda _lease: None,
        clock=clock,
        estimate_us=lambda offer: (seem_us or {}).get(offer.signer),
    )
    for owner, rtt_ms in (rtts or {}).items():
        market.note_rtt(owner, rtt_ms)

    async def ask(peer: PeerId, kind: str, body: bytes) -> bytes:
        await trio.sleep(by_peer[peer].takes_s)
        return by_peer[peer].answer(kind, body)

    async def measure(_order: Order) -> None:
        """All is known."""

    return Pooling(
        signer=make.RENTER,
        genesis=make.GENESIS,
        market=market,
        ask=ask,
        random_bytes=lambda count: next(thrown).to_bytes(count, "big"),
        rng=random.Random(1),
        clock=clock,
        measure=measure,
    )


def wanted(**changes: object) -> Order:
    """What one node of a pool needs."""
    return order(**{"span_ms": MillisSpan(HOUR), **changes})


async def pooled(
    by: Pooling, nodes: int, of: Order | None = None, failures: Failures | None = None
) -> Pool | NoPool:
    """What comes of it; `failures`: of the attempts before."""
    known = Failures() if failures is None else failures
    try:
        return await by.hold(
            of or wanted(), nodes, lambda _rank, _offer: (Digest(bytes(32)), None), known
        )
    except NoPool as none:
        return none


def random_holders(dice: random.Random, *, does: tuple[str, ...] = ("hold",)) -> list[Holder]:
    """A market in which some accounts have several peers, and some peers room for several nodes."""
    return [
        Holder(
            number=number,
            root=10 + dice.randrange(4) if dice.random() < 0.7 else None,
            ask=dice.choice((300_000, 310_000, 320_000, 340_000, 400_000)),
            free=GPUS * dice.choice((1, 1, 2, 3)) + dice.choice((0, 1)),
            does=dice.choice(does),
        )
        for number in range(10, 10 + dice.randint(3, 9))
    ]


def dearer(holder: Holder, ppm: int) -> Holder:
    """The same, whose bid is so much above its ask."""
    return dataclasses.replace(holder, bids=holder.ask * (1_000_000 + ppm) // 1_000_000)
