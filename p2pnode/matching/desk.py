"""Where renters come to: answers requests for quote, turns a taken bid into a GRANT."""

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import msgspec
import trio

from ledger.entry import Entry
from ledger.fold import Lease
from p2pnode.clock import WallClock
from p2pnode.matching.breaking import Breaks
from p2pnode.matching.free_units import TurnOf
from p2pnode.matching.hidden_bids import HiddenBids
from p2pnode.matching.holds import Holds
from p2pnode.matching.journal import Journal
from p2pnode.matching.provider import Provider
from p2pnode.matching.quoting import No, Question, quote, renewable
from p2pnode.matching.room import to_break
from p2pnode.matching.work import Pulse
from p2pnode.network.exchange import Handler
from protocol.answers import check_takes
from protocol.auction import Bid, BidDrop, Refusal, Reply, RevealAsk, Rfq, Take, check_rfq
from protocol.certificate import Certificate
from protocol.codec import decode, encode
from protocol.errors import PeerFault, Unavailable
from protocol.genesis import Genesis, net_of
from protocol.lease import LeaseRequest, check_request
from protocol.limits import BIDS_OUTSTANDING_MAX, FRAME_BYTES_MAX, QUOTE_BYTES_MAX, SEAL_BYTES
from protocol.signing import Signer
from protocol.units import Digest, Millis, PeerId, PublicKey
from protocol.wire import Sealed, pack, unpack

log = logging.getLogger(__name__)

DROP_BYTES_MAX: Final = 64
RFQ_BYTES_MAX: Final = QUOTE_BYTES_MAX + SEAL_BYTES

WhoIs = Callable[[PeerId], Certificate]
"""The certificate of a peer that asks us; it has said HELLO."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """What the desk needs of the ledger."""

    turn_of: TurnOf
    grant: Callable[[bytes, Millis], Entry]
    """grant(sealed request, now): the GRANT, also of an earlier try.

    Raises Unavailable if the units are taken, PeerFault.
    """
    granted: Callable[[PublicKey, bytes], Entry | None]
    """granted(renter, nonce): the GRANT that answered this request before."""
    height: Callable[[], int]
    """Sequence number of our head."""
    lease: Callable[[Digest], Lease | None] = lambda _id: None
    bronze: Callable[[], list[Lease]] = list
    """Our open leases that better tiers go before."""
    check: Callable[[bytes, list[Lease], Millis], None] = lambda _request, _broken, _now: None
    """check(sealed request, bronze leases, now): raises what `grant` would once they are over."""
    take_back: Callable[[Lease, Millis, Millis], Millis | None] = lambda _lease, _at, _now: None
    """take_back(bronze lease, at, now): end it then. Raises LocalFault."""


AdmitJob = Callable[[LeaseRequest, bytes | None, Certificate], None]
"""admit(request, sealed job, renter): keep the job for the lease to come.

Raises Unavailable to refuse.
"""


class Desk:
    """Our side of every auction."""

    def __init__(
        self,
        *,
        signer: Signer,
        genesis: Genesis,
        provider: Provider,
        books: Books,
        holds: Holds,
        breaks: Breaks,
        who_is: WhoIs,
        bars: Callable[[PublicKey], str | None],
        screens: Callable[[Certificate, Rfq | None], str | None],
        admit_job: AdmitJob,
        on_grant: Callable[[Entry], None],
        journal: Journal,
        on_rfq: Callable[[Rfq], None],
        clock: WallClock,
    ) -> None:
        """`bars` says why nobody should deal with a renter, `screens` why its owner does not.

        The latter knows a request for quote or, when a bid is taken, none.
        """
        self._signer = signer
        self._genesis = genesis
        self._net = net_of(genesis)
        self._provider = provider
        self._books = books
        self._holds = holds
        self._breaks = breaks
        self._who_is = who_is
        self._bars = bars
        self._screens = screens
        self._admit_job = admit_job
        self._on_grant = on_grant
        self.journal: Final = journal
        self.pulse: Final = Pulse()
        self._on_rfq = on_rfq
        self._clock = clock
        self._bids: OrderedDict[Digest, Sealed[Bid]] = OrderedDict()
        self._hidden = HiddenBids(signer, self._net)
        self.quoted = 0
        self.granted = 0
        self.refused: dict[str, int] = {}

    @property
    def handlers(self) -> dict[str, Handler]:
        """The questions that this part answers."""
        return {
            "rfq": self._answer_rfq,
            "rfq.commit": self._answer_commit,
            "rfq.reveal": self._answer_reveal,
            "bid.drop": self._answer_drop,
            "lease.take": self._answer_take,
        }

    def watch(self, handlers: dict[str, Handler]) -> dict[str, Handler]:
        """The handlers, of which we note whether requests for quote are evaluated at all."""
        watched = ("rfq", "rfq.commit")
        return {**handlers, **{kind: partial(self._watched, handlers[kind]) for kind in watched}}

    async def _watched(self, handler: Handler, peer: PeerId, body: bytes) -> bytes:
        self.pulse.came(self._clock.now())
        try:
            answer = await handler(peer, body)
        except PeerFault:
            # It was looked at, and found to be no question: that stalls nobody.
            self.pulse.evaluated(self._clock.now())
            raise
        self.pulse.evaluated(self._clock.now())
        return answer

    async def _answer_rfq(self, peer: PeerId, body: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        return encode(self._answer(peer, body)[1])

    async def _answer_commit(self, peer: PeerId, body: bytes) -> bytes:
        """As `rfq`, but the bid stays hidden until it is asked for."""
        await trio.lowlevel.checkpoint()
        sealed, reply = self._answer(peer, body)
        if reply.yes is msgspec.UNSET:
            return encode(reply)
        return encode(Reply(yes=self._hidden.commit(sealed, reply.yes, self._clock.now())))

    async def _answer_reveal(self, peer: PeerId, body: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        asked = decode(body, RevealAsk, size_max=DROP_BYTES_MAX)
        return self._hidden.reveal(asked.commit, self._who_is(peer).feed)

    def _answer(self, peer: PeerId, body: bytes) -> tuple[Sealed[Rfq], Reply]:
        if len(body) > RFQ_BYTES_MAX:
            raise PeerFault("codec.size")
        sealed = unpack(body, self._net, Rfq)
        self._check_speaker(peer, sealed.signer)
        now = self._clock.now()
        try:
            check_rfq(sealed.body, owner=self._signer.public, genesis=self._genesis, now=now)
        except PeerFault as fault:
            if fault.rule not in {"rfq.stale", "rfq.future"}:
                raise
            return sealed, self._no_quote(sealed, No("STALE", f"our clock says {now} ms"), now)
        return sealed, self._quote(sealed, self._who_is(peer), now)

    def _quote(self, sealed: Sealed[Rfq], renter: Certificate, now: Millis) -> Reply:
        rfq = sealed.body
        self._on_rfq(rfq)
        if why := self._bars(sealed.signer) or self._screens(renter, rfq):
            return self._no_quote(sealed, No("POLICY", why), now)
        if rfq.hold is not msgspec.UNSET and (
            why := self._holds.why_not(sealed.signer, rfq.need.gpus, now)
        ):
            return self._no_quote(sealed, No("BUSY", why), now)
        shelf = next((s for s in self._provider.shelves if s.group == rfq.group), None)
        if rfq.renews is not msgspec.UNSET and shelf is not None:
            renewed = renewable(self._books.lease(rfq.renews), rfq, sealed.signer, now)
            if isinstance(renewed, No):
                return self._no_quote(sealed, renewed, now)
            shelf = replace(shelf, units=renewed)
        may_break = rfq.tier != "bronze" and rfq.start_by_ms is not msgspec.UNSET
        why_kept = self._breaks.why_not(sealed.signer, now) if may_break else None
        bronze = self._books.bronze()
        answer = quote(
            Question(rfq=rfq, digest=sealed.digest, renter=sealed.signer),
            shelf=shelf,
            posting=self._provider.posting,
            turn_of=self._books.turn_of,
            bronze=() if why_kept else bronze,
            now=now,
            held=self._holds.units(now),
            told=self._provider.told(rfq),
        )
        if isinstance(answer, No):
            if answer.reason == "TAKEN" and bronze and why_kept:
                answer = No("POLICY", why_kept)
            return self._no_quote(sealed, answer, now)
        until = min(answer.valid_until_ms, now + self._genesis.bounds.bid_life_ms)
        bid = msgspec.structs.replace(
            answer, head_seq=self._books.height(), valid_until_ms=Millis(until)
        )
        raw = pack(bid, signer=self._signer, net=self._net)
        made = unpack(raw, self._net, Bid)
        if rfq.hold is not msgspec.UNSET:
            self._holds.keep(made)
        self._remember(made, now)
        self.quoted += 1
        self.journal.bid(rfq, sealed.signer, now, (made.digest, made.body))
        return Reply(yes=raw)

    def _no_quote(self, sealed: Sealed[Rfq], no: No, now: Millis) -> Reply:
        self.journal.refused(sealed.body, sealed.signer, now, (no.reason, no.detail))
        return self._no(sealed, no)

    def _remember(self, bid: Sealed[Bid], now: Millis) -> None:
        self._bids[bid.digest] = bid
        while self._bids:
            oldest = next(iter(self._bids.values()))
            is_firm = oldest.body.valid_until_ms >= now
            if is_firm and len(self._bids) <= BIDS_OUTSTANDING_MAX:
                return
            del self._bids[oldest.digest]

    async def _answer_drop(self, peer: PeerId, body: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        dropped = decode(body, BidDrop, size_max=DROP_BYTES_MAX)
        if self._holds.drop(dropped.bid, self._who_is(peer).feed, self._clock.now()):
            self._bids.pop(dropped.bid, None)
        return b""

    async def _answer_take(self, peer: PeerId, body: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        take = decode(body, Take, size_max=FRAME_BYTES_MAX)
        sealed = unpack(take.request, self._net, LeaseRequest)
        self._check_speaker(peer, sealed.signer)
        known = self._books.granted(sealed.signer, sealed.body.nonce)
        if known is not None:
            return encode(Reply(yes=known.raw))
        now = self._clock.now()
        skew = self._genesis.bounds.skew_ms
        try:
            check_request(
                sealed.body,
                owner=self._signer.public,
                renter=sealed.signer,
                now=now,
                skew=skew,
            )
        except PeerFault as fault:
            if fault.rule not in {"request.stale", "request.future"}:
                raise
            return encode(self._no(sealed, No("STALE", f"our clock says {now} ms")))
        bid = self._bids.get(sealed.body.bid)
        if bid is None or bid.body.valid_until_ms < now or sealed.body.start_ms < now:
            return encode(self._no_lease(sealed, No("STALE", "the bid is over"), now))
        check_takes(sealed, bid)
        if self._holds.is_kept_from(bid, now):
            no = No("TAKEN", "kept for another renter for a moment")
            return encode(self._no_lease(sealed, no, now))
        if why := self._bars(sealed.signer) or self._screens(self._who_is(peer), None):
            return encode(self._no_lease(sealed, No("POLICY", why), now))
        job = None if take.job is msgspec.UNSET else take.job
        if sealed.body.renews is not msgspec.UNSET:
            before = self._books.lease(sealed.body.renews)
            if before is None or before.request.job != sealed.body.job:
                no = No("POLICY", "another job than that of the lease before")
                return encode(self._no_lease(sealed, no, now))
        try:
            self._admit_job(sealed.body, job, self._who_is(peer))
        except Unavailable as refusal:
            return encode(self._no_lease(sealed, No("POLICY", str(refusal)), now))
        try:
            broken = to_break(
                sealed.body, turn_of=self._books.turn_of, bronze=self._books.bronze(), now=now
            )
            if broken and (why := self._breaks.why_not(sealed.signer, now)):
                return encode(self._no_lease(sealed, No("POLICY", why), now))
            entry = self._grant(take.request, broken, now)
        except Unavailable as taken:
            return encode(self._no_lease(sealed, No("TAKEN", str(taken)), now))
        # First of all, since what is only noted may fail with our disk.
        self._on_grant(entry)
        if broken:
            self._breaks.note(entry.id, sealed.signer, now)
        self.granted += 1
        self.journal.taken(sealed.body.bid, now, is_granted=True)
        self._holds.granted(sealed.body.bid, now)
        self._bids.pop(sealed.body.bid, None)
        log.info("lease granted", extra={"lease": entry.id.hex(), "renter": sealed.signer.hex()})
        return encode(Reply(yes=entry.raw))

    def _no_lease(self, sealed: Sealed[LeaseRequest], no: No, now: Millis) -> Reply:
        bid = self._bids.get(sealed.body.bid)
        if bid is not None and bid.body.renter == sealed.signer:
            self.journal.taken(bid.digest, now, is_granted=False)
        return self._no(sealed, no)

    def _grant(self, request: bytes, broken: list[Lease], now: Millis) -> Entry:
        """The GRANT, before which these bronze leases get their notice.

        Nobody gets notice for a request that would then be refused. Raises as `Books.grant`.
        """
        if broken:
            start_ms = Millis(unpack(request, self._net, LeaseRequest).body.start_ms)
            self._books.check(request, broken, now)
            for lease in broken:
                self._books.take_back(lease, start_ms, now)
        return self._books.grant(request, now)

    def _check_speaker(self, peer: PeerId, signer: PublicKey) -> None:
        if self._who_is(peer).feed != signer:
            raise PeerFault("seal.speaker", "signed by another peer than the one that asks")

    def _no(self, sealed: Sealed[Rfq] | Sealed[LeaseRequest], no: No) -> Reply:
        self.refused[no.reason] = self.refused.get(no.reason, 0) + 1
        newest = None
        if no.reason == "PRICE_MOVED" and isinstance(sealed.body, Rfq):
            newest = self._provider.newest(sealed.body.group)
        refusal = Refusal(
            of=sealed.digest,
            renter=sealed.signer,
            reason=no.reason,
            detail=no.detail[:200] if no.detail else msgspec.UNSET,
            advert=msgspec.UNSET if newest is None else newest,
            issued_ms=self._clock.now(),
        )
        return Reply(no=pack(refusal, signer=self._signer, net=self._net))
