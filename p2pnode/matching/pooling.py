"""Several leases for one job, all or none: exclusive bids first, requests once all are held.

SPEC.md section 9.6.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from random import Random
from typing import Final

import trio
from msgspec import UNSET

from ledger.bodies import Grant, read_body
from ledger.entry import read_entry
from p2pnode.clock import WallClock
from p2pnode.matching.asking import beyond, request_for, rfq_for, total_of
from p2pnode.matching.book import Offer
from p2pnode.matching.let_go import letting_go
from p2pnode.matching.order import Order
from p2pnode.matching.pool_plan import Place, chosen_places, room_in
from p2pnode.matching.renter import Ask, Taking
from p2pnode.matching.search import KnownOf, converted, search
from p2pnode.quantities import format_money
from protocol.advert import Region
from protocol.answers import check_bid, check_refusal
from protocol.auction import Bid, BidDrop, Refusal, Reply, Rfq, Take
from protocol.codec import decode, encode
from protocol.errors import P2PError, PeerFault, Unavailable
from protocol.genesis import Genesis, net_of
from protocol.limits import FRAME_BYTES_MAX
from protocol.signing import Signer
from protocol.units import Digest, Micros, PeerId, PublicKey
from protocol.wire import Sealed, pack, unpack

log = logging.getLogger(__name__)

HOLD_S: Final = 0.8
"""An owner that has not answered by then is left out; a hold lives 5 s, and all must be in it."""
HOLDING_S: Final = 3.5
"""All owners together; the requests need the rest."""
TAKE_S: Final = 1.5
POOLS_MAX: Final = 3
"""How often it is tried anew with other owners before the job waits."""
JITTER_S: Final = (0.2, 2.0)

JobFor = Callable[[int, Offer], tuple[Digest, bytes | None]]
"""job_for(rank, offer): digest of that node's job, and the job sealed to the offer's owner."""


class NoPool(P2PError):
    """There is no pool now, and why."""


@dataclass(frozen=True, slots=True)
class _Held:
    """One exclusive bid of ours."""

    offer: Offer
    bid: Sealed[Bid]
    ask_micro: int
    """Its price per GPU-hour, in the renter's money."""


class Pooling:
    """Our side of auctions for several nodes."""

    def __init__(
        self,
        *,
        signer: Signer,
        genesis: Genesis,
        offers: Callable[[], Iterable[Offer]],
        ask: Ask,
        bars: Callable[[PublicKey], str | None],
        known_of: KnownOf,
        random_bytes: Callable[[int], bytes],
        rng: Random,
        clock: WallClock,
        region: Region | None = None,
    ) -> None:
        self._signer = signer
        self._genesis = genesis
        self._net = net_of(genesis)
        self._offers = offers
        self._ask = ask
        self._bars = bars
        self._known_of = known_of
        self._region = region
        self._random_bytes = random_bytes
        self._rng = rng
        self._clock = clock

    async def hold(self, order: Order, nodes: int, job_for: JobFor) -> list[Taking]:
        """Requests for `nodes` leases whose units are held for us, to be sent at once.

        Nothing is leased yet: they are to be made durable first. Raises NoPool.
        """
        why = "nothing is offered"
        left_out: set[bytes] = set()
        for turn in range(POOLS_MAX):
            if turn:
                await trio.sleep(self._rng.uniform(*JITTER_S))
            places, short = self._room(order, nodes, left_out)
            if short is not None:
                # What was refused a moment ago says more than the adverts.
                raise NoPool(why if turn else short)
            chosen = chosen_places(places, nodes)
            dear = _too_dear([place.ask_micro for place in chosen], order)
            if dear is not None:
                raise NoPool(dear)
            held, why = await self._hold_all(order, chosen, left_out)
            dear = _too_dear([each.ask_micro for each in held], order)
            if len(held) == nodes and dear is None:
                takings: list[Taking] = []
                for rank, each in enumerate(held):
                    try:
                        takings.append(self._taking(order, each, rank, job_for))
                    except PeerFault as fault:
                        # A key to which nothing can be sealed.
                        left_out.add(each.offer.head[0])
                        why = f"no job can be sealed to an owner: {fault.rule}"
                if len(takings) == nodes:
                    return takings
            await self._drop(held)
            if dear is not None:
                raise NoPool(dear)
        raise NoPool(why)

    async def take(self, takings: list[Taking]) -> list[bytes]:
        """The GRANT for each request, in their order; may be repeated after a crash.

        Raises NoPool if one was not granted: the others are let go then.
        """
        grants: dict[int, bytes] = {}
        async with trio.open_nursery() as nursery:
            for rank, taking in enumerate(takings):
                nursery.start_soon(self._take, rank, taking, grants)
        if len(grants) == len(takings):
            return [grants[rank] for rank in range(len(takings))]
        async with trio.open_nursery() as nursery:
            for rank, grant in grants.items():
                nursery.start_soon(self._let_go, takings[rank], grant)
        raise NoPool(f"{len(grants)} of {len(takings)} nodes were granted, and are let go")

    def _room(
        self, order: Order, nodes: int, left_out: set[bytes]
    ) -> tuple[tuple[Place, ...], str | None]:
        """All places, cheapest first, and why they are too few."""
        # How many GPUs are free together is the plan's to judge.
        wish = replace(order.wish(), gpus=1, or_tiers=(), rates=())
        found = search(self._offers(), wish, self._known_of)
        open_to_us = [
            offer
            for offer in found.fits
            if self._bars(offer.signer) is None
            and offer.signer not in order.avoid
            and offer.head[0] not in left_out
        ]
        room = room_in(open_to_us, order)
        return room.places, room.why_not(nodes, order.need.gpus)

    async def _hold_all(
        self, order: Order, chosen: list[Place], left_out: set[bytes]
    ) -> tuple[list[_Held], str]:
        """Exclusive bids, asked for one after the other in ascending order of the owners."""
        held: list[_Held] = []
        why = ""
        with trio.move_on_after(HOLDING_S) as scope:
            for place in chosen:
                try:
                    bid = await self._hold_one(order, place.offer)
                except (Unavailable, PeerFault, NoPool) as error:
                    log.info("not held", extra={"owner": place.offer.signer.hex()})
                    left_out.add(place.offer.head[0])
                    why = f"an owner does not hold its GPUs: {error}"
                    break
                held.append(_Held(place.offer, bid, _price_of(bid.body, order)))
        return held, "the owners answer too slowly" if scope.cancelled_caught else why

    async def _hold_one(self, order: Order, offer: Offer) -> Sealed[Bid]:
        """Raises NoPool for a no, Unavailable or PeerFault."""
        asked = rfq_for(
            order,
            offer,
            now=self._clock.now(),
            nonce=self._random_bytes(16),
            hold=True,
            region=self._region,
        )
        raw = pack(asked, signer=self._signer, net=self._net)
        rfq = unpack(raw, self._net, Rfq)
        body = b""
        with trio.move_on_after(HOLD_S) as scope:
            body = await self._ask(offer.certificate.peer_id, "rfq", raw)
        if scope.cancelled_caught:
            raise Unavailable("the owner is slow")
        reply = decode(body, Reply, size_max=FRAME_BYTES_MAX)
        if reply.yes is UNSET:
            raise NoPool(self._refusal(reply, rfq.digest, offer))
        bid = unpack(reply.yes, self._net, Bid)
        check_bid(bid, rfq, genesis=self._genesis, now=self._clock.now())
        if bid.body.exclusive is UNSET:
            raise NoPool("it does not hold units")
        if beyond(bid.body, order) is not None:
            raise NoPool("it asks more than the limit")
        return bid

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


def _too_dear(asks: list[int], order: Order) -> str | None:
    """Why nodes at these prices per GPU-hour are together above what the renter pays, or None."""
    cost = sum(total_of(Micros(ask), order) for ask in asks)
    if order.total_max is None or cost <= order.total_max:
        return None
    return f"{len(asks)} nodes cost up to {format_money(Micros(cost), order.money)}, over the limit"
