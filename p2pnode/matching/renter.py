"""Drives one reverse auction: shortlist, ask for quotes, score, take the best bid that holds.

SPEC.md sections 9 and 12. What was seen, bid and chosen is kept, so that anybody can check it.
"""

import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import trio
from msgspec import UNSET
from msgspec.structs import replace

from ledger.entry import read_entry
from ledger.witness_bodies import Cosigned
from p2pnode.clock import WallClock
from p2pnode.matching.asking import beyond, request_for, rfq_for, withholds
from p2pnode.matching.book import Offer
from p2pnode.matching.hearing import Hearing
from p2pnode.matching.hidden_bids import COMMIT_S, Opening
from p2pnode.matching.judging import judged
from p2pnode.matching.market import Market
from p2pnode.matching.order import Order
from p2pnode.matching.preferences import unmet_ppm
from p2pnode.matching.search import Wish, search
from p2pnode.network.exchange import Refused
from protocol.advert import Region
from protocol.answers import check_bid
from protocol.auction import Bid, Reply, Rfq, Take
from protocol.codec import decode, encode
from protocol.errors import P2PError, PeerFault, Unavailable
from protocol.genesis import Genesis, net_of
from protocol.lease import LeaseRequest
from protocol.limits import FRAME_BYTES_MAX
from protocol.scoring import AuctionRecord
from protocol.signing import Signer
from protocol.units import Digest, PeerId, PublicKey
from protocol.wire import Sealed, pack, unpack

log = logging.getLogger(__name__)

QUOTE_S: Final = 1.2
"""Owners that have not answered by then are left out of this auction."""
TAKE_S: Final = 1.5
"""An owner that has been asked to grant is waited for this long, within the request's life."""
ROUNDS_MAX: Final = 6
PINGS: Final = 2
MISSED_MAX: Final = 256
"""Jobs without a match whose last auction is remembered."""

Ask = Callable[[PeerId, str, bytes], Awaitable[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Taking:
    """A lease request that is on its way: enough to ask for its answer again after a crash."""

    peer: PeerId
    owner: PublicKey
    request: bytes
    job: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Won:
    """A bid that was granted."""

    taking: Taking
    grant: bytes
    """The GRANT entry as the owner sent it, not judged yet."""
    cosigned: Cosigned | None
    """What the witnesses of it have signed; None where none were wanted."""
    bid: Bid
    record: AuctionRecord


class NoMatch(P2PError):
    """Nobody grants this order; `why` counts the reasons, of adverts and of answers."""

    def __init__(self, seen: int, why: dict[str, int], record: AuctionRecord) -> None:
        counts = ", ".join(f"{count} {reason}" for reason, count in sorted(why.items()))
        super().__init__(f"0 of {seen} offers: {counts or 'nothing is offered'}")
        self.seen: Final = seen
        self.why: Final = why
        self.record: Final = record


SealJob = Callable[[Offer], bytes | None]
"""seal(offer): the job description for this owner alone; the digest is the same for all."""
Witness = Callable[[PeerId, bytes, bytes], Awaitable[Cosigned | None]]
"""witness(peer, GRANT, request): what the quorum of its witnesses has signed, if any are wanted.

Raises Unavailable if too few have, PeerFault if the GRANT must not be taken.
"""
Remember = Callable[[Taking], Awaitable[None]]
"""Durable before it returns."""


class Renter:
    """Our side of our auctions."""

    def __init__(
        self,
        *,
        signer: Signer,
        genesis: Genesis,
        market: Market,
        ask: Ask,
        reliability_ppm: Callable[[PublicKey], int],
        witness: Witness,
        accuse: Callable[[bytes], object],
        random_bytes: Callable[[int], bytes],
        clock: WallClock,
        region: Region | None = None,
    ) -> None:
        """`region`: ours, told to owners; None where it is not known."""
        self._signer = signer
        self._genesis = genesis
        self._net = net_of(genesis)
        self._market = market
        self._ask = ask
        self._reliability_ppm = reliability_ppm
        self._witness = witness
        self._opening = Opening(ask=ask, accuse=accuse, net=self._net)
        self._random_bytes = random_bytes
        self._clock = clock
        self._region = region
        self.missed: Final[dict[Digest | None, dict[str, int]]] = {}
        """Job -> what each offer failed for in its last auction; gone once one is won."""

    async def rent(self, order: Order, *, seal_job: SealJob, remember: Remember) -> Won:
        """The first bid, best first, that its owner grants. Raises NoMatch."""
        weights = replace(order.weights, rates=order.choice.rates)
        answers = Hearing(seed=self._random_bytes(16), weights=weights)
        self._market.note_request(order.need)
        await self.measure(order.wish(self._clock.now()), likes_near=order.choice.likes_near)
        asked: set[bytes] = set()
        for _ in range(ROUNDS_MAX):
            answers.round += 1
            seed = answers.seed + bytes([answers.round])
            shortlist = self._market.shortlist(order, seed=seed, but=asked)
            if not shortlist:
                break
            if answers.round == 1:
                shortlist = self._with_newcomer(order, shortlist, answers)
            asked.update(offer.head[0] for offer in shortlist)
            await self._gather(order, shortlist, answers)
            won = await self._take_best(order, answers, seal_job, remember)
            if won is not None:
                taking, grant, cosigned, bid = won
                record = answers.record(len(self._market))
                self.missed.pop(order.job, None)
                return Won(taking=taking, grant=grant, cosigned=cosigned, bid=bid, record=record)
        offers = self._market.offers()
        self._count_misfits(order, offers, answers)
        self._miss(order, answers.why)
        raise NoMatch(len(offers), answers.why, answers.record(len(offers)))

    def _with_newcomer(self, order: Order, shortlist: list[Offer], answers: Hearing) -> list[Offer]:
        """In some auctions a newcomer is judged as the best of the others. SPEC.md 12.1."""
        new = self._market.newcomer(order, seed=answers.seed)
        if new is None:
            return shortlist
        best = max(self._reliability_ppm(offer.signer) for offer in shortlist)
        answers.presumed_ppm[new.head[0]] = best
        is_asked = any(offer.head[0] == new.head[0] for offer in shortlist)
        return shortlist if is_asked else [*shortlist, new]

    def _note_silence(self, offer: Offer, error: Exception) -> None:
        """Who answers late, or that it may not sign now, is there."""
        if isinstance(error, Unavailable) and not isinstance(error, Refused):
            self._market.note_silent(offer.signer)

    async def measure(self, wish: Wish, *, likes_near: bool = False) -> None:
        """Know the round trips to owners that fit, where they are limited or liked short."""
        offers = self._market.unmeasured(wish, likes_near=likes_near)
        if not offers:
            return
        with trio.move_on_after(QUOTE_S):
            async with trio.open_nursery() as nursery:
                for offer in offers:
                    nursery.start_soon(self._ping, offer)
        self._market.rank_anew(offers)

    async def _ping(self, offer: Offer) -> None:
        for _ in range(PINGS):  # the first may have to dial
            began = trio.current_time()
            try:
                await self._ask(offer.certificate.peer_id, "ping", b"")
            except (Unavailable, PeerFault):
                return
            took_s = trio.current_time() - began
            self._market.note_rtt(offer.signer, math.ceil(took_s * 1_000))

    def _miss(self, order: Order, why: dict[str, int]) -> None:
        self.missed[order.job] = why
        while len(self.missed) > MISSED_MAX:
            del self.missed[next(iter(self.missed))]

    def _count_misfits(self, order: Order, offers: list[Offer], answers: Hearing) -> None:
        """Why nobody else was asked: the first thing that is against each of the others."""
        found = search(offers, order.wish(self._clock.now()), self._market.known_of)
        for reason, number in found.misfits.items():
            answers.why[reason] = answers.why.get(reason, 0) + number
        for offer in found.fits:
            if (why := self._market.shut_out(offer, order)) is not None:
                answers.count(why)

    async def _gather(self, order: Order, shortlist: list[Offer], answers: Hearing) -> None:
        """Ask all of the shortlist at once; who is silent by QUOTE_S is left out."""
        with trio.move_on_after(QUOTE_S):
            async with trio.open_nursery() as nursery:
                for offer in shortlist:
                    nursery.start_soon(self._ask_for_quote, order, offer, answers)

    async def _ask_for_quote(self, order: Order, offer: Offer, answers: Hearing) -> None:
        asked = rfq_for(
            order,
            offer,
            now=self._clock.now(),
            nonce=self._random_bytes(16),
            region=self._region,
        )
        raw = pack(asked, signer=self._signer, net=self._net)
        rfq = unpack(raw, self._net, Rfq)
        try:
            reply, rtt_ms = await self._quote_of(offer, rfq, raw)
            self._market.note_rtt(offer.signer, rtt_ms)
            if reply.yes is UNSET:
                self._note_refusal(reply, rfq.digest, offer, answers)
                return
            bid = unpack(reply.yes, self._net, Bid)
            check_bid(bid, rfq, genesis=self._genesis, now=self._clock.now())
        except Unavailable as error:
            self._note_silence(offer, error)
            answers.count("unreachable")
        except PeerFault as fault:
            log.info("bid refused", extra={"owner": offer.signer.hex(), "rule": fault.rule})
            answers.count("invalid")
        else:
            if (limit := beyond(bid.body, order)) is not None:
                answers.count(limit)
                return
            if withholds(bid.body, offer):
                answers.count("remedy")
                return
            known = self._market.known_of(offer)
            presumed_ppm = answers.presumed_ppm.get(offer.head[0], 0)
            thought = judged(
                offer,
                reliability_ppm=max(self._reliability_ppm(offer.signer), presumed_ppm),
                bytes_to_move=order.bytes_to_move,
                rtt_ms=rtt_ms,
                hazard_ppm_per_hour=known.hazard_ppm_per_hour,
                unmet_ppm=unmet_ppm(offer, order.choice.preferences(), known),
            )
            answers.hear(offer, (raw, rfq.body), (reply.yes, bid), thought)

    async def _quote_of(self, offer: Offer, rfq: Sealed[Rfq], raw: bytes) -> tuple[Reply, int]:
        """The owner's answer, and how many ms its first word took."""
        peer, began = offer.certificate.peer_id, trio.current_time()
        is_hidden = rfq.body.tier == "gold"
        body = await self._ask(peer, "rfq.commit" if is_hidden else "rfq", raw)
        rtt_ms = round((trio.current_time() - began) * 1_000)
        reply = decode(body, Reply, size_max=FRAME_BYTES_MAX)
        if is_hidden and reply.yes is not UNSET:
            await trio.sleep_until(began + COMMIT_S)
            reply = await self._opening.reveal(peer, rfq, reply.yes)
        return reply, rtt_ms

    def _note_refusal(self, reply: Reply, of: Digest, offer: Offer, answers: Hearing) -> None:
        answers.note_refusal(
            reply, of=of, owner=offer.signer, renter=self._signer.public, net=self._net
        )

    async def _take_best(
        self, order: Order, answers: Hearing, seal_job: SealJob, remember: Remember
    ) -> tuple[Taking, bytes, Cosigned | None, Bid] | None:
        for digest in answers.order():
            offer, bid = answers.bids[digest].offer, answers.bids[digest].bid
            answers.chosen.append(digest)
            try:
                job = seal_job(offer)
            except PeerFault as fault:
                log.info("no job sealed", extra={"owner": offer.signer.hex(), "rule": fault.rule})
                answers.count("invalid")
                continue
            raw = pack(
                request_for(order, bid, now=self._clock.now(), nonce=self._random_bytes(16)),
                signer=self._signer,
                net=self._net,
            )
            taking = Taking(
                peer=offer.certificate.peer_id, owner=offer.signer, request=raw, job=job
            )
            await remember(taking)
            taken = await self._take(taking, offer, answers)
            if taken is not None:
                self._note_lease(offer, taken[0], len(bid.body.units))
                if offer.head[0] in answers.presumed_ppm:
                    self._market.note_tried(offer.signer)
                return taking, *taken, bid.body
        return None

    def _note_lease(self, offer: Offer, grant: bytes, gpus: int) -> None:
        try:
            self._market.note_lease(offer, read_entry(grant, self._net).id, gpus)
        except PeerFault:
            log.info("grant unread", extra={"owner": offer.signer.hex()})

    async def _take(
        self, taking: Taking, offer: Offer, answers: Hearing
    ) -> tuple[bytes, Cosigned | None] | None:
        digest = unpack(taking.request, self._net, LeaseRequest).digest
        try:
            with trio.fail_after(TAKE_S):
                reply = await self.ask_again(taking)
            if reply.yes is not UNSET:
                return await self._witnessed(taking, reply.yes, answers)
            self._note_refusal(reply, digest, offer, answers)
        except (Unavailable, trio.TooSlowError) as error:
            self._note_silence(offer, error)
            answers.count("unreachable")
        except PeerFault as fault:
            log.info("grant refused", extra={"owner": taking.owner.hex(), "rule": fault.rule})
            answers.count("invalid")
        return None

    async def _witnessed(
        self, taking: Taking, grant: bytes, answers: Hearing
    ) -> tuple[bytes, Cosigned | None] | None:
        """The GRANT with what its witnesses signed; None if too few did, so that it is left."""
        try:
            return grant, await self.witness(taking, grant)
        except Unavailable as error:
            log.info("grant left", extra={"owner": taking.owner.hex(), "why": str(error)})
            answers.count("unwitnessed")
            return None

    async def witness(self, taking: Taking, grant: bytes) -> Cosigned | None:
        """What the quorum of the witnesses has signed for it; None where none are wanted.

        May be repeated. Raises Unavailable if too few have; PeerFault.
        """
        if unpack(taking.request, self._net, LeaseRequest).body.witnesses is UNSET:
            return None
        return await self._witness(taking.peer, grant, taking.request)

    async def ask_again(self, taking: Taking) -> Reply:
        """The owner's answer to a request, however often it is asked. Raises Unavailable."""
        job = UNSET if taking.job is None else taking.job
        take = Take(request=taking.request, job=job)
        body = await self._ask(taking.peer, "lease.take", encode(take))
        return decode(body, Reply, size_max=FRAME_BYTES_MAX)
