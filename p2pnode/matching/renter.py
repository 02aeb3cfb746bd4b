"""Drives one reverse auction: shortlist, ask for quotes, score, take the best bid that holds.

SPEC.md sections 9 and 12. What was seen, bid and chosen is kept, so that anybody can check it.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import trio
from msgspec import UNSET

from ledger.witness_bodies import Cosigned
from p2pnode.clock import WallClock
from p2pnode.matching.asking import is_dear, request_for, rfq_for
from p2pnode.matching.book import Offer
from p2pnode.matching.hidden_bids import COMMIT_S, Opening
from p2pnode.matching.order import Order
from p2pnode.matching.search import search
from protocol.advert import Tier, ask_for
from protocol.answers import check_bid, check_refusal
from protocol.auction import Bid, Refusal, Reply, Rfq, Take
from protocol.codec import decode, encode
from protocol.errors import P2PError, PeerFault, Unavailable
from protocol.genesis import Genesis, net_of
from protocol.lease import LeaseRequest
from protocol.limits import FRAME_BYTES_MAX
from protocol.scoring import AuctionRecord, Heard, expected_cost, ranking
from protocol.signing import Signer
from protocol.units import Digest, PeerId, PublicKey
from protocol.wire import Sealed, pack, unpack

log = logging.getLogger(__name__)

QUOTE_S: Final = 1.2
"""Owners that have not answered by then are left out of this auction."""
TAKE_S: Final = 1.5
"""An owner that has been asked to grant is waited for this long, within the request's life."""
SHORTLIST_MAX: Final = 8
PER_ACCOUNT_MAX: Final = 2
"""So that one account with many peers cannot fill a shortlist."""
ROUNDS_MAX: Final = 3

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


@dataclass(slots=True)
class _Answers:
    """What the owners asked so far have said."""

    bids: dict[Digest, tuple[Offer, Heard, Sealed[Bid]]] = field(default_factory=dict)
    refusals: list[bytes] = field(default_factory=list)
    why: dict[str, int] = field(default_factory=dict)
    chosen: list[Digest] = field(default_factory=list)
    round: int = 0

    def count(self, reason: str) -> None:
        self.why[reason] = self.why.get(reason, 0) + 1


class Renter:
    """Our side of our auctions."""

    def __init__(
        self,
        *,
        signer: Signer,
        genesis: Genesis,
        offers: Callable[[], Iterable[Offer]],
        ask: Ask,
        reliability_ppm: Callable[[PublicKey], int],
        bars: Callable[[PublicKey], str | None],
        witness: Witness,
        accuse: Callable[[bytes], object],
        random_bytes: Callable[[int], bytes],
        clock: WallClock,
    ) -> None:
        self._signer = signer
        self._genesis = genesis
        self._net = net_of(genesis)
        self._offers = offers
        self._ask = ask
        self._reliability_ppm = reliability_ppm
        self._bars = bars
        self._witness = witness
        self._opening = Opening(ask=ask, accuse=accuse, net=self._net)
        self._random_bytes = random_bytes
        self._clock = clock

    async def rent(self, order: Order, *, seal_job: SealJob, remember: Remember) -> Won:
        """The first bid, best first, that its owner grants. Raises NoMatch."""
        seed = self._random_bytes(16)
        answers = _Answers()
        offers = list(self._offers())
        found = search(offers, order.wish())
        answers.why.update(found.misfits)
        left = self._open_to(order, list(found.fits), answers)
        for _ in range(ROUNDS_MAX):
            shortlist, left = _shortlist(left, order.tier)
            if not shortlist:
                break
            answers.round += 1
            await self._gather(order, shortlist, answers)
            won = await self._take_best(order, answers, seed, (seal_job, remember))
            if won is not None:
                taking, grant, cosigned, bid = won
                record = _record(answers, seed, len(offers))
                return Won(taking=taking, grant=grant, cosigned=cosigned, bid=bid, record=record)
        raise NoMatch(len(offers), answers.why, _record(answers, seed, len(offers)))

    def _open_to(self, order: Order, offers: list[Offer], answers: _Answers) -> list[Offer]:
        """The offers of those that have not failed this order, nor proved to be cheats."""
        left: list[Offer] = []
        for offer in offers:
            if self._bars(offer.signer) is not None:
                answers.count("offender")
            elif offer.signer in order.witnesses:
                answers.count("witness")
            elif offer.signer not in order.avoid:
                left.append(offer)
        return left

    async def _gather(self, order: Order, shortlist: list[Offer], answers: _Answers) -> None:
        """Ask all of the shortlist at once; who is silent by QUOTE_S is left out."""
        with trio.move_on_after(QUOTE_S):
            async with trio.open_nursery() as nursery:
                for offer in shortlist:
                    nursery.start_soon(self._ask_for_quote, order, offer, answers)

    async def _ask_for_quote(self, order: Order, offer: Offer, answers: _Answers) -> None:
        raw = pack(
            rfq_for(order, offer, now=self._clock.now(), nonce=self._random_bytes(16)),
            signer=self._signer,
            net=self._net,
        )
        rfq = unpack(raw, self._net, Rfq)
        try:
            reply = await self._quote_of(offer, rfq, raw)
            if reply.yes is UNSET:
                self._note_refusal(reply, rfq.digest, offer, answers)
                return
            bid = unpack(reply.yes, self._net, Bid)
            check_bid(bid, rfq, genesis=self._genesis, now=self._clock.now())
        except Unavailable:
            answers.count("unreachable")
        except PeerFault as fault:
            log.info("bid refused", extra={"owner": offer.signer.hex(), "rule": fault.rule})
            answers.count("invalid")
        else:
            if is_dear(bid.body, order):
                answers.count("price")
                return
            heard = Heard(
                rfq=raw,
                bid=reply.yes,
                reliability_ppm=self._reliability_ppm(offer.signer),
                round=answers.round,
            )
            answers.bids[bid.digest] = (offer, heard, bid)

    async def _quote_of(self, offer: Offer, rfq: Sealed[Rfq], raw: bytes) -> Reply:
        peer = offer.certificate.peer_id
        if rfq.body.tier == "gold":
            open_s = trio.current_time() + COMMIT_S
            return await self._opening.quote(peer, rfq, raw, open_s=open_s)
        body = await self._ask(peer, "rfq", raw)
        return decode(body, Reply, size_max=FRAME_BYTES_MAX)

    def _note_refusal(self, reply: Reply, of: Digest, offer: Offer, answers: _Answers) -> None:
        assert reply.no is not UNSET
        refusal = unpack(reply.no, self._net, Refusal)
        check_refusal(refusal, of=of, owner=offer.signer, renter=self._signer.public)
        answers.count(refusal.body.reason.lower())
        answers.refusals.append(reply.no)

    async def _take_best(
        self, order: Order, answers: _Answers, seed: bytes, keep: tuple[SealJob, Remember]
    ) -> tuple[Taking, bytes, Cosigned | None, Bid] | None:
        seal_job, remember = keep
        scored = [
            (digest, expected_cost(bid.body, reliability_ppm=heard.reliability_ppm))
            for digest, (_, heard, bid) in answers.bids.items()
            if heard.round == answers.round
        ]
        for digest in ranking(scored, seed):
            offer, _, bid = answers.bids[digest]
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
                return taking, *taken, bid.body
        return None

    async def _take(
        self, taking: Taking, offer: Offer, answers: _Answers
    ) -> tuple[bytes, Cosigned | None] | None:
        digest = unpack(taking.request, self._net, LeaseRequest).digest
        try:
            with trio.fail_after(TAKE_S):
                reply = await self.ask_again(taking)
            if reply.yes is not UNSET:
                return await self._witnessed(taking, reply.yes, answers)
            self._note_refusal(reply, digest, offer, answers)
        except (Unavailable, trio.TooSlowError):
            answers.count("unreachable")
        except PeerFault as fault:
            log.info("grant refused", extra={"owner": taking.owner.hex(), "rule": fault.rule})
            answers.count("invalid")
        return None

    async def _witnessed(
        self, taking: Taking, grant: bytes, answers: _Answers
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


def _shortlist(offers: list[Offer], tier: Tier) -> tuple[list[Offer], list[Offer]]:
    """The next offers to ask, cheapest first, and the rest."""
    chosen: list[Offer] = []
    rest: list[Offer] = []
    per_account: dict[PublicKey, int] = {}
    for offer in sorted(offers, key=lambda each: (ask_for(each.advert, tier) or 0, each.head)):
        account = offer.certificate.root
        if len(chosen) < SHORTLIST_MAX and per_account.get(account, 0) < PER_ACCOUNT_MAX:
            per_account[account] = per_account.get(account, 0) + 1
            chosen.append(offer)
        else:
            rest.append(offer)
    return chosen, rest


def _record(answers: _Answers, seed: bytes, seen: int) -> AuctionRecord:
    return AuctionRecord(
        seed=seed,
        offers_seen=seen,
        bids=tuple(heard for _, heard, _ in answers.bids.values()),
        refusals=tuple(answers.refusals),
        chosen=tuple(answers.chosen),
    )
