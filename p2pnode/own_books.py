"""The owner's side of the ledger: which units are free, which leases end how."""

from collections.abc import Callable
from typing import Final

from msgspec import UNSET

from ledger.bodies import GRANT, Reason
from ledger.capability_bodies import Capacity, CapacityUnit
from ledger.entry import Entry, read_entry
from ledger.fold import Lease
from ledger.ledger import Ledger
from ledger.limits import CAPACITY_UNITS_MAX
from ledger.units_chain import overlaps
from p2pnode.accounts import Accounts, certificate_in
from p2pnode.cabinet import Cabinet
from p2pnode.clock import WallClock
from p2pnode.execution.meter import is_over, last_tick, last_used
from p2pnode.gpus import Gpu
from protocol.advert import device_fingerprint
from protocol.certificate import read_certificate
from protocol.lease import charge
from protocol.tick import Tick
from protocol.units import Digest, Micros, Millis, MillisSpan, NetId, PeerId, PublicKey, Signature
from protocol.wire import Sealed

BILL_MS_MIN: Final = MillisSpan(3_600_000)
"""A lease is stated at most so often while it runs: halves are kept by everybody."""
SOON_MS: Final = MillisSpan(3_000)
"""A lease that begins within this is no offer to others: theirs would begin no earlier."""
BILLS_IN_PERIOD: Final = 4
"""A renter may owe one billing period; so it has most of that to pay what it is asked for."""


class OwnBooks:
    """Wiring between the ledger and what an owner does with it."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        accounts: Accounts,
        cabinet: Cabinet,
        tell: Callable[[PeerId], None],
        changed: Callable[[], None],
        billing_ms: MillisSpan,
        clock: WallClock,
    ) -> None:
        self._ledger = ledger
        self._accounts = accounts
        self._cabinet = cabinet
        self._tell = tell
        self._changed = changed
        self._bill_ms = max(BILL_MS_MIN, billing_ms // BILLS_IN_PERIOD)
        self._clock = clock
        self._open: dict[Digest, None] = {}
        """Leases of ours that were not over when they were looked at last."""
        self._looked_at = -1
        """Up to which entry of our feed leases are in `_open`."""

    def height(self) -> int:
        """Sequence number of our feed's head."""
        head = self._ledger.head(self._ledger.feed)
        return 0 if head is None else head.seq

    def free_of(self, units: tuple[bytes, ...]) -> int:
        """How many of the units nobody holds now."""
        now = self._clock.now()
        turns = [self._ledger.state.turn(self._ledger.feed, unit) for unit in units]
        held = [() if turn is None else turn.open for turn in turns]
        soon = Millis(now + SOON_MS)
        return sum(not overlaps(intervals, now, soon) for intervals in held)

    def leases(self) -> list[Lease]:
        """Ours, over or not."""
        return [lease for lease in self._ledger.state.leases() if lease.owner == self._ledger.feed]

    def open_leases(self) -> list[Lease]:
        """Ours that are not over, also those to come; it costs what there are of them."""
        ledger, now = self._ledger, self._clock.now()
        head = ledger.head(ledger.feed)
        if self._looked_at < 0:
            self._open = {lease.id: None for lease in self.leases()}
            self._looked_at = 0 if head is None else head.seq
        elif head is not None and head.seq > self._looked_at:
            for raw in ledger.entries(ledger.feed, self._looked_at + 1, head.seq + 1):
                entry = read_entry(raw, ledger.net)
                if entry.header.kind == GRANT:
                    self._open[entry.id] = None
            self._looked_at = head.seq
        leases = [lease for each in self._open if (lease := ledger.lease(each)) is not None]
        found = [lease for lease in leases if lease.ended_ms > now]
        self._open = {lease.id: None for lease in found}
        return found

    def bronze(self) -> list[Lease]:
        """Our open leases that can be taken back, and have not been."""
        return [
            lease
            for lease in self.open_leases()
            if lease.request.tier == "bronze" and lease.reason is None
        ]

    def renewal_of(self, lease: Digest) -> Lease | None:
        """The accepted lease of ours in which the job of this one goes on, if there is one."""
        found = (each for each in self.leases() if each.request.renews == lease)
        before = self._ledger.lease(lease)
        open_ones = (
            each
            for each in found
            if each.is_accepted
            and each.ended_ms > each.request.start_ms
            and before is not None
            and each.request.start_ms == before.ended_ms
        )
        return next(open_ones, None)

    def granted(self, entry: Entry) -> Lease:
        """The lease of a GRANT that we have just written."""
        lease = self._ledger.lease(entry.id)
        assert lease is not None
        self._tell_renter(lease)
        self._changed()
        return lease

    def close(self, lease: Lease, tick: Sealed[Tick]) -> None:
        """State a lease of ours that has ended, whose last tick this is."""
        self._accounts.bill(lease, tick)
        self._tell_renter(lease)

    def bill(self, lease: Lease, tick: Sealed[Tick]) -> None:
        """State a lease that goes on, up to this tick, which both have signed, if it is time."""
        billed = self._accounts.billed_ms(lease)
        since = lease.request.start_ms if billed is None else billed
        if self._clock.now() >= since + self._bill_ms:
            self.close(lease, tick)

    def lapse(self, lease: Lease) -> None:
        """The renter did not come: the units are free again. Raises LocalFault.

        Whoever named a job has shown that much, so it does not count as lapsed (evidence A7).
        """
        now = self._clock.now()
        reason: Reason = "lapsed" if lease.request.job is UNSET else "unpaid"
        self._ledger.release(lease.id, now, at_ms=now, reason=reason)
        self._tell_renter(lease)
        self._changed()

    def preempt(self, lease: Lease, not_before: Millis) -> Millis | None:
        """Take a bronze lease's units back; from when on they are free. The RELEASE is the notice.

        That is once the notice that was agreed is over, or later if not before then. None if the
        lease ends before that anyway. Raises LocalFault.
        """
        assert lease.request.tier == "bronze", "no other tier is taken back"
        now = self._clock.now()
        agreed = self._ledger.clamped(now) + lease.request.notice_ms
        at_ms = Millis(max(agreed, not_before))
        if at_ms >= lease.ended_ms:
            return None
        self._ledger.release(lease.id, now, at_ms=at_ms, reason="preempted")
        self._tell_renter(lease)
        self._changed()
        return at_ms

    def release_by_consent(self, lease: Lease, at_ms: Millis, consent: Signature) -> None:
        """The renter has what it wants: the units are free from then on. Raises LocalFault."""
        self._ledger.release(
            lease.id, self._clock.now(), at_ms=at_ms, reason="consent", consent=consent
        )
        self._tell_renter(lease)
        self._changed()

    def declare(self, gpus: tuple[Gpu, ...]) -> None:
        """Write which GPUs we have, where our feed does not say so yet. Raises LocalFault."""
        own, net = self._ledger.feed, self._ledger.net
        units = [
            CapacityUnit(gpu.unit, fingerprint_of(gpu, net), gpu.model, gpu.vram)
            for gpu in gpus
            if gpu.unit
            not in self._ledger.state.units_of_device(own, fingerprint_of(gpu, net)).values()
        ]
        is_real = all(gpu.source == "nvml" for gpu in gpus)
        for first in range(0, len(units), CAPACITY_UNITS_MAX):
            part = tuple(units[first : first + CAPACITY_UNITS_MAX])
            self._ledger.append(
                Capacity(units=part, gpu="nvml" if is_real else "simulated"), self._clock.now()
            )

    def metered(self, lease: Digest) -> Micros:
        """What a lease of ours has cost so far, also where bronze does not owe it yet."""
        tick, found = last_tick(self._cabinet, self._ledger.net, lease), self._ledger.lease(lease)
        if tick is None or found is None:
            return Micros(0)
        used = max(tick.used_ms, last_used(self._cabinet, lease))
        return charge(MillisSpan(used), found.request.micro_per_gpu_hour)

    def is_over(self, lease: Digest) -> bool:
        """Whether the job of a lease of ours has ended, whether or not the units are free."""
        return is_over(self._cabinet, lease)

    def tell_feed(self, feed: PublicKey) -> None:
        """Our feed has grown by what concerns this one: its peer gets it soon."""
        peer = self._peer_of(feed)
        if peer is not None:
            self._tell(peer)

    def _tell_renter(self, lease: Lease) -> None:
        self.tell_feed(lease.renter)

    def _peer_of(self, feed: PublicKey) -> PeerId | None:
        raw = certificate_in(self._ledger, feed)
        return None if raw is None else read_certificate(raw, self._ledger.net).peer_id


def fingerprint_of(gpu: Gpu, net: NetId) -> Digest:
    """Commits to the device in this network: the same under every name, and not readable."""
    return device_fingerprint(gpu.device.encode() or gpu.unit, net)
