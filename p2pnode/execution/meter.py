"""Meters a lease of ours by ticks, each durable before anybody sees it, and states it."""

import logging
from typing import Final

import trio
from msgspec import UnsetType

from ledger.fold import Lease
from p2pnode.cabinet import Cabinet
from p2pnode.execution.shop import Shop
from p2pnode.execution.vram_peak import peak_of
from p2pnode.network.exchange import Refused
from protocol.codec import Span, Wire, decode, encode
from protocol.errors import LocalFault, PeerFault, Unavailable
from protocol.lease import charge
from protocol.lease_stream import CosignAsk, Cosigned
from protocol.limits import FRAME_BYTES_MAX, SEAL_BYTES, TICK_BYTES_MAX
from protocol.signing import is_signed
from protocol.tick import COSIGN_DOMAIN, Tick
from protocol.units import Digest, Mebibytes, Micros, Millis, MillisSpan, NetId, Signature
from protocol.wire import Envelope, Sealed, pack, unpack

log = logging.getLogger(__name__)

METERED_BYTES_MAX: Final = 4_096
COSIGN_S: Final = 10


class Metered(Wire, frozen=True, kw_only=True):
    """The tick, and the renter's signature if it has come."""

    tick: bytes
    cosign: bytes = b""
    before: bytes = b""
    """The last tick before this one under which the renter's signature came."""
    used_ms: Span = MillisSpan(0)
    """All that was used, also what the tick does not state because the renter lacks the work."""

    @property
    def agreed(self) -> bytes:
        """The last tick that both have signed; empty if there is none."""
        return self.tick if self.cosign else self.before


def is_over(cabinet: Cabinet, lease: Digest) -> bool:
    """Whether the lease's job has ended, so that nothing more will be metered."""
    return cabinet.get(f"leases/{lease.hex()}/outcome") is not None


def last_tick(cabinet: Cabinet, net: NetId, lease: Digest) -> Tick | None:
    """What was metered last of this lease; None if nothing was."""
    raw = cabinet.get(f"leases/{lease.hex()}/metered")
    if raw is None:
        return None
    return unpack(decode(raw, Metered, size_max=METERED_BYTES_MAX).tick, net, Tick).body


def last_used(cabinet: Cabinet, lease: Digest) -> MillisSpan:
    """What was used of this lease when it was metered last, whether or not it is owed yet."""
    raw = cabinet.get(f"leases/{lease.hex()}/metered")
    metered = None if raw is None else decode(raw, Metered, size_max=METERED_BYTES_MAX)
    return MillisSpan(0 if metered is None else metered.used_ms)


class Meter:
    """Owns the ticks of one lease."""

    def __init__(self, shop: Shop, lease: Lease) -> None:
        self._shop = shop
        self._lease = lease
        last = self.last
        self.is_met = last is not None and last.agreed != b""
        """Whether the renter has co-signed, as nobody does who has not accepted."""
        self.is_left = False
        """Whether the renter has said that its job went elsewhere."""

    @property
    def last(self) -> Metered | None:
        """The last tick; None if there is none."""
        raw = self._shop.cabinet.get(self._name("metered"))
        return None if raw is None else decode(raw, Metered, size_max=METERED_BYTES_MAX)

    @property
    def vram_peak(self) -> Mebibytes | UnsetType:
        """The most that the job was seen to hold of one GPU's memory."""
        return peak_of(self._shop.cabinet, self._lease.id)

    async def tick(self, ran: MillisSpan, *, until: Millis, kept: MillisSpan | None = None) -> None:
        """Write down what is owed so far, and ask the renter to co-sign it.

        `until` is when the lease ends; `kept` is up to where the renter has the job's work, if it
        owes no more than that yet. No tick says less than the one before: the renter may have
        signed that, though we do not know, and would sign no lower one. Only of a tick that came
        after the renter had left nothing stays.
        """
        before = self.last or Metered(tick=b"")
        last = self._read(before.tick)
        floor = self._read(before.agreed) if self.is_left else last
        request, now = self._lease.request, self._shop.clock.now()
        most = max(0, min(now, until) - request.start_ms)
        used = total = MillisSpan(min(ran, most) * len(request.units))
        if kept is not None:
            used = min(used, kept)
        if floor is not None:
            used = MillisSpan(max(used, floor.body.used_ms))
        tick = Tick(
            lease=self._lease.id,
            n=1 if last is None else last.body.n + 1,
            used_ms=used,
            amount_micro=charge(used, request.micro_per_gpu_hour),
            at_ms=now,
            head_seq=self._shop.height(),
        )
        raw = pack(tick, signer=self._shop.signer, net=self._shop.net)
        self._keep(Metered(tick=raw, before=before.agreed, used_ms=max(total, used)))
        await self.ask()

    async def ask(self) -> None:
        """Ask the renter to co-sign the last tick, and by that to answer what has been stated."""
        last = self.last
        if last is None:
            return
        with trio.move_on_after(COSIGN_S):
            await self._ask(last.tick)

    async def _ask(self, tick: bytes) -> None:
        renter, asked = self._lease.renter, encode(CosignAsk(tick=tick))
        try:
            body = await self._shop.ask_renter(renter, "tick", asked)
            by = decode(body, Cosigned, size_max=FRAME_BYTES_MAX).by
        except (Unavailable, PeerFault) as error:
            if isinstance(error, Refused) and error.rule == "tick.left":
                self.is_left = True
            log.info("tick not co-signed", extra={"lease": self._id, "why": str(error)})
        else:
            self.take(by)

    def take(self, by: Signature) -> None:
        """Keep the renter's signature under the last tick; another one is dropped."""
        last = self.last
        if last is None:
            return
        envelope = decode(last.tick, Envelope, size_max=TICK_BYTES_MAX + SEAL_BYTES)
        if not is_signed(self._lease.renter, COSIGN_DOMAIN, self._shop.net, envelope.b, by=by):
            return
        self.is_met = True
        self._keep(Metered(tick=last.tick, cosign=by, used_ms=last.used_ms))
        if is_over(self._shop.cabinet, self._lease.id):
            self.state()

    def bill(self) -> None:
        """State what both have signed of a lease that goes on, if it is time to and can be done."""
        if (agreed := self._agreed()) is None:
            return
        try:
            self._shop.bill(self._lease, agreed)
        except LocalFault as fault:
            # The run goes on: the numbers are cumulative, so that any later bill says this too.
            log.warning("lease not billed", extra={"lease": self._id, "why": str(fault)})

    def state(self) -> Micros:
        """State what both have signed of a lease that has ended; how much that is."""
        agreed = self._agreed()
        if agreed is None:
            return Micros(0)
        self._shop.close(self._lease, agreed)
        return Micros(agreed.body.amount_micro)

    def claim(self) -> None:
        """State what the renter has had all the time to co-sign, unless its job went elsewhere.

        It answers no half after one that it has not signed for, so this comes last.
        """
        last = self.last
        if last is not None and not self.is_left:
            self._shop.close(self._lease, unpack(last.tick, self._shop.net, Tick))

    def _agreed(self) -> Sealed[Tick] | None:
        last = self.last
        return None if last is None else self._read(last.agreed)

    def _read(self, tick: bytes) -> Sealed[Tick] | None:
        return unpack(tick, self._shop.net, Tick) if tick else None

    def _keep(self, metered: Metered) -> None:
        self._shop.cabinet.put(self._name("metered"), encode(metered))

    def _name(self, name: str) -> str:
        return f"leases/{self._id}/{name}"

    @property
    def _id(self) -> str:
        return self._lease.id.hex()
