"""Closes what two peers owe each other for a lease: both halves of the account, and the receipt.

The owner writes a half now and then while the job runs, and one when it has ended; the renter
checks each against what it has co-signed, and answers with its own.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import trio
from msgspec import UNSET

from ledger.bodies import Genesis as FeedGenesis
from ledger.bodies import Statement, consent_bytes, read_body
from ledger.entry import read_entry
from ledger.fold import Half, Lease
from ledger.ledger import Ledger
from ledger.receipt import Receipt, check_receipt
from ledger.statements import stated_of
from p2pnode.bills import Answers, halves_of, is_confirmation
from p2pnode.cabinet import Cabinet
from p2pnode.clock import WallClock
from p2pnode.kept import note_end, saved_ms
from p2pnode.network.exchange import Refused
from protocol.certificate import Certificate
from protocol.codec import Wire, decode, encode
from protocol.errors import PeerFault, Unavailable
from protocol.genesis import Genesis
from protocol.lease_stream import CosignAsk, Cosigned, LeaseName, Settle
from protocol.limits import FRAME_BYTES_MAX, SEAL_BYTES, TICK_BYTES_MAX
from protocol.signing import Signer
from protocol.tick import COSIGN_DOMAIN, Outcome, Tick, check_tick
from protocol.units import Digest, Micros, Millis, MillisSpan, PeerId, PublicKey, Signature
from protocol.wire import Envelope, Sealed, unpack

HALF_POLL_S: Final = 0.2
COSIGNED_BYTES_MAX: Final = 4_096


class CosignedTick(Wire, frozen=True, kw_only=True):
    """The last tick of a lease that we have co-signed; durable before the signature leaves."""

    tick: bytes
    by: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How the other side is reached. All raise Unavailable or PeerFault."""

    ask: Callable[[PeerId, str, bytes], Awaitable[bytes]]
    fetch: Callable[[PeerId, PublicKey], Awaitable[None]]
    """Bring our copy of this feed up to what the peer has."""
    tell: Callable[[PeerId], None]
    """Our own feed has grown."""
    who_is: Callable[[PeerId], Certificate]


class Accounts:
    """Both sides of our accounts."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        fits: Callable[[bytes], bool],
        signer: Signer,
        certificate: bytes,
        genesis: Genesis,
        cabinet: Cabinet,
        reach: Reach,
        clock: WallClock,
    ) -> None:
        self._ledger = ledger
        self._fits = fits
        self._signer = signer
        self._certificate = certificate
        self._skew = genesis.bounds.skew_ms
        self._cabinet = cabinet
        self._reach = reach
        self._clock = clock
        self._answers = Answers(ledger=ledger, signed=self._signed, clock=clock)

    # The renter's side.

    def owed(self, lease: Digest) -> Micros:
        """What we have co-signed for this lease so far."""
        last = self._signed(lease)
        return Micros(0) if last is None else last.amount_micro

    async def answer_tick(self, peer: PeerId, body: bytes) -> bytes:
        """The question `tick` of an owner: our signature. Raises PeerFault."""
        await trio.lowlevel.checkpoint()
        raw = decode(body, CosignAsk, size_max=FRAME_BYTES_MAX).tick
        lease = self._metered(self._tick(raw), self._reach.who_is(peer).feed)
        last = self._cosigned(lease.id)
        is_left = self._cabinet.get(f"left/{lease.id.hex()}") is not None
        if is_left and (last is None or last.tick != raw):
            by = None
        else:
            by = self._cosign(raw, lease.owner)
        if self._answers.answer_some(lease):
            self._reach.tell(peer)
        if by is None:
            raise PeerFault("tick.left", "the job went to another owner")
        return encode(Cosigned(by=by))

    def _cosign(self, raw: bytes, owner: PublicKey) -> Signature:
        sealed = self._tick(raw)
        lease = self._metered(sealed, owner)
        last = self._cosigned(lease.id)
        if last is not None and last.tick == raw:
            return Signature(last.by)
        before, now = self._signed(lease.id), self._clock.now()
        saved = saved_ms(self._cabinet, self._ledger.net, lease)
        check_tick(
            sealed.body, lease.request, before=before, now=now, skew=self._skew, saved_ms=saved
        )
        if not self._fits(raw):
            raise PeerFault("tick.time")
        envelope = decode(raw, Envelope, size_max=TICK_BYTES_MAX + SEAL_BYTES)
        by = self._signer.sign(COSIGN_DOMAIN, self._ledger.net, envelope.b)
        self._cabinet.put(f"ticks/{lease.id.hex()}", encode(CosignedTick(tick=raw, by=by)))
        return by

    def _metered(self, tick: Sealed[Tick], owner: PublicKey) -> Lease:
        """The lease of ours that this owner meters."""
        lease = self._ledger.lease(tick.body.lease)
        if lease is None or lease.renter != self._signer.public or not lease.is_accepted:
            raise PeerFault("tick.lease")
        if not tick.signer == owner == lease.owner:
            raise PeerFault("tick.signer")
        return lease

    async def settle(self, peer: PeerId, lease: Lease, outcome: bytes) -> bytes:
        """Close the account of an ended lease with its owner; the receipt, which holds.

        Raises Unavailable or PeerFault; may be repeated.
        """
        note_end(self._cabinet, lease.id, unpack(outcome, self._ledger.net, Outcome).body.cause)
        last = await self._agree(peer, lease)
        owners = await self._last_half_of_owner(peer, lease, self._tick(last.tick))
        renters = await self._answer(peer, owners, lease)
        self._reach.tell(peer)
        metered = (last.tick, Signature(last.by))
        receipt = self._receipt(lease, outcome, metered, (owners, renters))
        check_receipt(receipt, self._ledger.net)
        return receipt

    async def _agree(self, peer: PeerId, lease: Lease) -> CosignedTick:
        """The last tick, and our consent to let the units go, which the owner has on return.

        Once it has both it forgets the lease; then what we signed before we died is the last.
        """
        try:
            asked = encode(LeaseName(lease=lease.id))
            answer = await self._reach.ask(peer, "lease.tick", asked)
            tick = decode(answer, CosignAsk, size_max=FRAME_BYTES_MAX).tick
            await self._consent(peer, lease, self._cosign(tick, lease.owner))
        except Refused:
            if self._cosigned(lease.id) is None:
                raise
        last = self._cosigned(lease.id)
        assert last is not None
        return last

    async def _consent(self, peer: PeerId, lease: Lease, cosign: Signature) -> None:
        units = tuple((each.unit, each.ctr) for each in lease.request.units)
        at_ms = self._clock.now()
        consent = self._signer.sign(
            "release-consent", self._ledger.net, consent_bytes(lease.id, units, at_ms)
        )
        settle = Settle(lease=lease.id, at_ms=at_ms, consent=consent, cosign=cosign)
        await self._reach.ask(peer, "lease.settle", encode(settle))

    async def _last_half_of_owner(self, peer: PeerId, lease: Lease, tick: Sealed[Tick]) -> Half:
        """The one that states the lease up to its last tick."""
        while True:
            await self._reach.fetch(peer, lease.owner)
            half = self._half(lease.owner, lease, tick.digest)
            if half is not None:
                return half
            halves = [each.statement for each in self._halves(lease.owner, lease)]
            if stated_of(halves, lease.id)[0] > tick.body.used_ms:
                raise PeerFault("statement.amount", "more than was co-signed")
            await trio.sleep(HALF_POLL_S)

    async def _answer(self, peer: PeerId, owners: Half, lease: Lease) -> Half:
        """Our half that answers this one; those before it are answered first, each once.

        The numbers are cumulative, so that by each half we owe what the ones before it say too.
        """
        while (ours := self._answers.to(owners, lease)) is None:
            await trio.lowlevel.checkpoint()
            first = self._answers.next(lease)
            if first is None or first.statement.ctr > owners.statement.ctr:
                raise PeerFault("statement.order", "a half with a counter that was answered")
            tick = None if is_confirmation(first) else await self._agreed_tick(peer, first)
            if first == self._answers.next(lease):  # else another task was faster
                self._answers.answer(first, lease, tick)
        return ours

    async def _agreed_tick(self, peer: PeerId, half: Half) -> Tick:
        """The last tick of the lease that this half is about, co-signed by us."""
        lease = half.statement.lease
        assert lease is not UNSET
        last = self._cosigned(Digest(lease))
        if last is None or self._tick(last.tick).digest != half.statement.tick:
            try:
                answer = await self._reach.ask(peer, "lease.tick", encode(LeaseName(lease=lease)))
                tick = decode(answer, CosignAsk, size_max=FRAME_BYTES_MAX).tick
                self._cosign(tick, half.author)
                return self._tick(tick).body
            except Refused:
                if last is None:
                    raise
        return self._tick(last.tick).body

    def _receipt(
        self,
        lease: Lease,
        outcome: bytes,
        metered: tuple[bytes, Signature],
        halves: tuple[Half, Half],
    ) -> bytes:
        grant = self._ledger.entry(lease.id)
        if grant is None:
            raise Unavailable("the lease's GRANT was pruned")
        # Written when the lease began; this finds it.
        accept = self._ledger.accept(lease.id, self._clock.now())
        owners, renters = (self._ledger.entry(half.id) for half in halves)
        assert owners is not None
        assert renters is not None
        return encode(
            Receipt(
                grant=grant.raw,
                accept=accept.raw,
                tick=metered[0],
                cosign=metered[1],
                outcome=outcome,
                owner_half=owners.raw,
                renter_half=renters.raw,
                owner=self._certificate_of(lease.owner),
                renter=self._certificate,
            )
        )

    # The owner's side.

    def bill(self, lease: Lease, tick: Sealed[Tick]) -> None:
        """State a lease of ours up to this tick; once for each tick, however often it is called."""
        if self._half(lease.owner, lease, tick.digest) is not None:
            return
        before = [half.statement for half in self._halves(lease.owner, lease)]
        last = before[-1] if before else None
        used, amount = stated_of(before, lease.id)
        grown = (tick.body.used_ms - used, tick.body.amount_micro - amount)
        self._ledger.append(
            Statement(
                peer=lease.renter,
                ctr=1 if last is None else last.ctr + 1,
                used_ms=MillisSpan(grown[0] + (0 if last is None else last.used_ms)),
                amount_micro=Micros(grown[1] + (0 if last is None else last.amount_micro)),
                money=lease.request.money,
                lease=lease.id,
                tick=tick.digest,
                paid_micro=UNSET if last is None else last.paid_micro,
            ),
            self._clock.now(),
        )

    def billed_ms(self, lease: Lease) -> Millis | None:
        """When we last stated something of a lease of ours; None if we have not."""
        halves = reversed(self._halves(lease.owner, lease))
        return next((half.ts_ms for half in halves if half.statement.lease == lease.id), None)

    # Of both.

    def _half(self, author: PublicKey, lease: Lease, tick: Digest) -> Half | None:
        """What this side has stated of the lease up to this tick."""
        wanted = (lease.id, tick)
        halves = self._halves(author, lease)
        return next((h for h in halves if (h.statement.lease, h.statement.tick) == wanted), None)

    def _halves(self, author: PublicKey, lease: Lease) -> list[Half]:
        return halves_of(self._ledger.state, author, lease)

    def _tick(self, raw: bytes) -> Sealed[Tick]:
        return unpack(raw, self._ledger.net, Tick)

    def _cosigned(self, lease: Digest) -> CosignedTick | None:
        return cosigned(self._cabinet, lease)

    def _signed(self, lease: Digest) -> Tick | None:
        last = self._cosigned(lease)
        return None if last is None else self._tick(last.tick).body

    def _certificate_of(self, feed: PublicKey) -> bytes:
        """Out of the first entry of the feed."""
        raw = certificate_in(self._ledger, feed)
        if raw is None:
            raise Unavailable("the owner's feed is not here")
        return raw


def cosigned(cabinet: Cabinet, lease: Digest) -> CosignedTick | None:
    """The last tick of this lease that we have co-signed."""
    raw = cabinet.get(f"ticks/{lease.hex()}")
    return None if raw is None else decode(raw, CosignedTick, size_max=COSIGNED_BYTES_MAX)


def certificate_in(ledger: Ledger, feed: PublicKey) -> bytes | None:
    """The signed certificate in the first entry of a feed that we hold."""
    for raw in ledger.entries(feed, 0, 1):
        body = read_body(read_entry(raw, ledger.net).draft)
        assert isinstance(body, FeedGenesis)
        return body.certificate
    return None
