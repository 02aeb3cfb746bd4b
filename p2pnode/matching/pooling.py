"""Several leases for one job, all or none: exclusive bids first, requests once all are held.

SPEC.md sections 9.6 and 12.3. What was seen, asked and chosen is kept, for anybody to check.
"""

import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

import trio
from msgspec import UNSET
from msgspec.structs import replace as with_fields

from ledger.bodies import Grant, read_body
from ledger.entry import read_entry
from p2pnode.clock import WallClock
from p2pnode.matching.asking import beyond, request_for, rfq_for, withholds
from p2pnode.matching.book import Offer
from p2pnode.matching.let_go import letting_go
from p2pnode.matching.market import Market
from p2pnode.matching.order import Order
from p2pnode.matching.pool_failures import Failures
from p2pnode.matching.pool_plan import Place, Room, asks_of, room_in, shortlist, too_dear
from p2pnode.matching.renter import Ask, Taking
from p2pnode.matching.search import converted, search
from p2pnode.network.exchange import Refused
from protocol.advert import Region, price_for
from protocol.answers import check_bid, check_refusal
from protocol.auction import Bid, BidDrop, Refusal, Reply, Rfq, Take
from protocol.codec import decode, encode
from protocol.errors import P2PError, PeerFault, Unavailable
from protocol.genesis import Genesis, net_of
from protocol.limits import FRAME_BYTES_MAX, POOL_TRIES_MAX
from protocol.pool import Asked, Candidates, PoolRecord
from protocol.scoring import Weights, deal_of, expected_cost
from protocol.signing import Signer
from protocol.units import Digest, Micros, PeerId, PublicKey
from protocol.wire import Sealed, pack, unpack

log = logging.getLogger(__name__)

HOLD_S: Final = 0.8
"""An owner that has not answered by then is left out; a hold lives 5 s, and all must be in it."""
HOLDING_S: Final = 3.5
"""All owners together; the requests need the rest."""
TAKE_S: Final = 1.5
JITTER_S: Final = (0.2, 2.0)

JobFor = Callable[[int, Offer], tuple[Digest, bytes | None]]
"""job_for(rank, offer): digest of that node's job, and the job sealed to the offer's owner.

Raises PeerFault for a key to which nothing can be sealed.
"""


class NoPool(P2PError):
    """There is no pool now, and why; with what the owners were asked, if any were."""

    def __init__(self, why: str, record: PoolRecord | None = None) -> None:
        super().__init__(why)
        self.record: Final = record


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """All nodes are held."""

    takings: tuple[Taking, ...]
    """Requests, by rank, to be made durable before they are sent."""
    record: PoolRecord


@dataclass(frozen=True, slots=True)
class _Held:
    """One exclusive bid of ours."""

    offer: Offer
    rfq: Rfq
    bid: Sealed[Bid]
    ask_micro: int
    """Its price per GPU-hour, in the renter's money."""


@dataclass(slots=True)
class _Hearing:
    """Grows while owners are asked; becomes the pool's record."""

    order: Final[Order]
    weights: Final[Weights]
    nodes: Final[int]
    seen: Final[int]
    """Adverts in the book."""
    places: Final[dict[bytes, Place]]
    """By group key: what is chosen among."""
    left: Candidates
    failures: Final[Failures]
    tries: list[list[Asked]] = field(default_factory=list)

    def plan(self) -> list[Place]:
        """The places to ask for now; none if there are too few."""
        return [self.places[place.key] for place in self.left.plan()]

    def record(self, held: list[_Held]) -> PoolRecord:
        """What is kept of it; `held`: the bids that are taken."""
        return PoolRecord(
            nodes=self.nodes,
            gpus=self.order.need.gpus,
            span_ms=self.order.span_ms,
            money=self.order.money,
            weights=self.weights,
            offers_seen=self.seen,
            offers=tuple(place.seen for place in self.places.values()),
            tries=tuple(tuple(asked) for asked in self.tries),
            chosen=tuple(each.bid.digest for each in held),
        )

    def score(self, held: _Held) -> Micros:
        """What this bid is expected to cost."""
        judged = self.places[held.offer.head[0]].seen.judged
        deal = deal_of(held.rfq, held.bid.body, self.weights)
        return expected_cost(deal, judged, self.weights).score


class Pooling:
    """Our side of auctions for several nodes."""

    def __init__(
        self,
        *,
        signer: Signer,
        genesis: Genesis,
        market: Market,
        ask: Ask,
        random_bytes: Callable[[int], bytes],
        rng: Random,
        clock: WallClock,
        measure: Callable[[Order], Awaitable[None]],
        region: Region | None = None,
    ) -> None:
        """`measure` makes known the round trips that the order asks about."""
        self._signer = signer
        self._genesis = genesis
        self._net = net_of(genesis)
        self._market = market
        self._ask = ask
        self._measure = measure
        self._region = region
        self._random_bytes = random_bytes
        self._rng = rng
        self._clock = clock

    async def hold(self, order: Order, nodes: int, job_for: JobFor, failures: Failures) -> Pool:
        """Requests for `nodes` leases whose units are held for us, to be sent at once.

        Nothing is leased yet: they are to be made durable first. Owners in `failures` are left
        out where others will do; it hears who fails. Raises NoPool.
        """
        await self._measure(order)
        hearing, short = self._look(order, nodes, job_for, failures)
        if short is not None:
            raise NoPool(short)
        why = ""
        for turn in range(POOL_TRIES_MAX):
            if turn:
                await trio.sleep(self._rng.uniform(*JITTER_S))
            chosen = hearing.plan()
            if not chosen:
                break
            dear = too_dear(asks_of(chosen, order), order)
            if dear is not None:
                raise NoPool(dear, hearing.record([]))
            held, why = await self._hold_all(hearing, chosen)
            if len(held) == nodes:
                scores = [(each.offer.head[0], hearing.score(each)) for each in held]
                hearing.left = hearing.left.held(scores)
                dear = too_dear([each.ask_micro for each in held], order)
                if hearing.left.is_settled(scores) and dear is None:
                    takings = (
                        self._taking(order, each, rank, job_for) for rank, each in enumerate(held)
                    )
                    return Pool(takings=tuple(takings), record=hearing.record(held))
                why = dear or "owners bid more than they had advertised"
            await self._drop(held)
            if dear is not None:
                break
        raise NoPool(why, hearing.record([]))

    async def take(self, takings: list[Taking], failures: Failures) -> list[bytes]:
        """The GRANT for each request, in their order; may be repeated after a crash.

        Raises NoPool if one was not granted: the others are let go then, and `failures` has it.
        """
        grants: dict[int, bytes] = {}
        async with trio.open_nursery() as nursery:
            for rank, taking in enumerate(takings):
                nursery.start_soon(self._take, rank, taking, grants)
        if len(grants) == len(takings):
            return [grants[rank] for rank in range(len(takings))]
        for rank, taking in enumerate(takings):
            if rank not in grants:
                failures.note(taking.owner, self._clock.now())
        async with trio.open_nursery() as nursery:
            for rank, grant in grants.items():
                nursery.start_soon(self._let_go, takings[rank], grant)
        raise NoPool(f"{len(grants)} of {len(takings)} nodes were granted, and are let go")

    def _look(
        self, order: Order, nodes: int, job_for: JobFor, failures: Failures
    ) -> tuple[_Hearing, str | None]:
        """What is chosen among, and why that is too little."""

        def is_sealable(offer: Offer) -> bool:
            try:
                job_for(0, offer)
            except PeerFault as fault:
                log.info("no job sealed", extra={"owner": offer.signer.hex(), "rule": fault.rule})
                return False
            return True

        order = replace(order, weights=with_fields(order.weights, rates=order.choice.rates))
        seen, whole = self._room(order)
        for out in failures.left_out(self._clock.now()):
            room = whole.without(out)
            places = shortlist(room, nodes, is_sealable)
            by_rule = {place.by_rule.key: place.by_rule for place in places}
            hearing = _Hearing(
                order=order,
                weights=order.weights,
                nodes=nodes,
                seen=seen,
                places={place.by_rule.key: place for place in places},
                left=Candidates(nodes=nodes, offers=by_rule),
                failures=failures,
            )
            short, chosen = room.why_not(nodes, order.need.gpus), hearing.plan()
            if short is None and not chosen:
                short = "to too many owners no job can be sealed"
            is_fine = short is None and too_dear(asks_of(chosen, order), order) is None
            if is_fine or not out:
                return hearing, short
        raise AssertionError("in the end nobody is left out")

    def _room(self, order: Order) -> tuple[int, Room]:
        """How many offers there are, and the room in those that fit."""
        now, offers = self._clock.now(), self._market.offers()
        # How many GPUs are free together, and what they cost together, is the plan's to judge.
        wish = replace(order.wish(now), gpus=1, ask_max=None, total_max=None)
        open_to_us = [
            self._market.as_leased(offer, now)
            for offer in search(offers, wish, self._market.known_of).fits
            if self._market.shut_out(offer, order) is None
        ]
        return len(offers), room_in(
            open_to_us, order, now=now, known_of=self._market.known_of, rtt_of=self._market.rtt_of
        )

    async def _hold_all(self, hearing: _Hearing, chosen: list[Place]) -> tuple[list[_Held], str]:
        """Exclusive bids, asked for one after the other in ascending order of the owners."""
        held: list[_Held] = []
        asked: list[Asked] = []
        hearing.tries.append(asked)
        why = ""
        with trio.move_on_after(HOLDING_S) as scope:
            for place in chosen:
                try:
                    held.append(await self._hold_one(hearing.order, place.offer, asked))
                except (Unavailable, PeerFault, NoPool) as error:
                    log.info("not held", extra={"owner": place.offer.signer.hex()})
                    self._note_silence(place.offer.signer, error)
                    why = f"an owner does not hold its GPUs: {error}"
                    break
        if len(held) < len(chosen):
            # Also one at which our time ran out: it did not answer at once.
            failed = chosen[len(held)].offer
            hearing.left = hearing.left.without(failed.head[0])
            hearing.failures.note(failed.signer, self._clock.now())
        return held, "the owners answer too slowly" if scope.cancelled_caught else why

    async def _hold_one(self, order: Order, offer: Offer, asked: list[Asked]) -> _Held:
        """Raises NoPool for a no, Unavailable or PeerFault. Writes down what was said."""
        question = rfq_for(
            order,
            offer,
            now=self._clock.now(),
            nonce=self._random_bytes(16),
            hold=True,
            region=self._region,
        )
        raw = pack(question, signer=self._signer, net=self._net)
        rfq = unpack(raw, self._net, Rfq)
        asked.append(Asked(rfq=raw))
        body = b""
        with trio.move_on_after(HOLD_S) as scope:
            began = trio.current_time()
            body = await self._ask(offer.certificate.peer_id, "rfq", raw)
            self._market.note_rtt(offer.signer, math.ceil((trio.current_time() - began) * 1_000))
        if scope.cancelled_caught:
            raise NoPool("it is slow")
        reply = decode(body, Reply, size_max=FRAME_BYTES_MAX)
        if reply.yes is UNSET:
            refusal = self._refusal(reply, rfq.digest, offer)
            asked[-1] = Asked(rfq=raw, refusal=reply.no)
            raise NoPool(refusal)
        bid = unpack(reply.yes, self._net, Bid)
        check_bid(bid, rfq, genesis=self._genesis, now=self._clock.now())
        if bid.body.exclusive is UNSET:
            raise NoPool("it does not hold units")
        if beyond(bid.body, order) is not None:
            raise NoPool("it asks more than the limit")
        if withholds(bid.body, offer):
            raise NoPool("it names less of a remedy than its advert")
        asks = price_for(offer.advert, question.tier, order.need.gpus)
        if asks is None or bid.body.micro_per_gpu_hour > asks:
            raise NoPool("it bids more than its advert")
        asked[-1] = Asked(rfq=raw, bid=reply.yes)
        return _Held(offer, question, bid, _price_of(bid.body, order))

    def _note_silence(self, owner: PublicKey, error: Exception) -> None:
        """Who answers late, or with an error, is there."""
        if isinstance(error, Unavailable) and not isinstance(error, Refused):
            self._market.note_silent(owner)

    def _refusal(self, reply: Reply, of: Digest, offer: Offer) -> str:
        assert reply.no is not UNSET
        refusal = unpack(reply.no, self._net, Refusal)
        check_refusal(refusal, of=of, owner=offer.signer, renter=self._signer.public)
        detail = "" if refusal.body.detail is UNSET else f" ({refusal.body.detail})"
        return f"{refusal.body.reason}{detail}"

    def _taking(self, order: Order, held: _Held, rank: int, job_for: JobFor) -> Taking:
        digest, job = job_for(rank, held.offer)
        request = request_for(
            replace(order, job=digest),
            held.bid,
            now=self._clock.now(),
            nonce=self._random_bytes(16),
        )
        return Taking(
            peer=held.offer.certificate.peer_id,
            owner=held.offer.signer,
            request=pack(request, signer=self._signer, net=self._net),
            job=job,
        )

    async def _take(self, rank: int, taking: Taking, grants: dict[int, bytes]) -> None:
        job = UNSET if taking.job is None else taking.job
        try:
            with trio.fail_after(TAKE_S):
                take = encode(Take(request=taking.request, job=job))
                body = await self._ask(taking.peer, "lease.take", take)
            reply = decode(body, Reply, size_max=FRAME_BYTES_MAX)
            if reply.yes is not UNSET:
                self._check_grant(reply.yes, taking)
                grants[rank] = reply.yes
        except (Unavailable, PeerFault, trio.TooSlowError) as error:
            self._note_silence(taking.owner, error)
            log.info("not granted", extra={"owner": taking.owner.hex(), "why": str(error)})

    def _check_grant(self, raw: bytes, taking: Taking) -> Grant:
        entry = read_entry(raw, self._net)
        grant = read_body(entry.draft)
        if not isinstance(grant, Grant):
            raise PeerFault("grant.kind")
        if entry.feed != taking.owner:
            raise PeerFault("grant.owner")
        if grant.request != taking.request:
            raise PeerFault("grant.lease", "for another request")
        return grant

    async def _drop(self, held: list[_Held]) -> None:
        async with trio.open_nursery() as nursery:
            for each in held:
                body = encode(BidDrop(bid=each.bid.digest))
                nursery.start_soon(
                    self._tell, each.offer.certificate.peer_id, "bid.drop", body, "hold not dropped"
                )

    async def _let_go(self, taking: Taking, raw: bytes) -> None:
        entry = read_entry(raw, self._net)
        grant = self._check_grant(raw, taking)
        body = letting_go(entry, grant, signer=self._signer, net=self._net, now=self._clock.now())
        await self._tell(taking.peer, "lease.settle", body, "lease not let go")

    async def _tell(self, peer: PeerId, kind: str, body: bytes, failed: str) -> None:
        """An owner that does not hear it lets the units go by itself, a little later."""
        try:
            with trio.fail_after(HOLD_S):
                await self._ask(peer, kind, body)
        except (Unavailable, PeerFault, trio.TooSlowError) as error:
            log.info(failed, extra={"why": str(error)})


def _price_of(bid: Bid, order: Order) -> Micros:
    price = converted(bid.micro_per_gpu_hour, bid.money, order.wish())
    assert price is not None  # as `beyond` has found
    return price
