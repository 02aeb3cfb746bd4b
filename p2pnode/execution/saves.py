"""What the job of one lease of ours has saved, and how much of it the renter has."""

import logging
from typing import Final

import trio

from ledger.fold import Lease
from p2pnode.execution.engine import RunId
from p2pnode.execution.materials import Snapshot
from p2pnode.execution.shop import Shop
from protocol.errors import PeerFault
from protocol.job import Job
from protocol.tick import Saved
from protocol.units import Digest, Millis, MillisSpan
from protocol.wire import pack, unpack

log = logging.getLogger(__name__)


class Saves:
    """Owns both records; each is durable before anybody sees it."""

    def __init__(self, shop: Shop, lease: Lease, job: Job | None, run_id: RunId) -> None:
        """`run_id` is the run, which may have begun in an earlier lease."""
        self._shop = shop
        self._lease = lease
        self._job = job
        self._run_id: Final = run_id
        self._looking: Final = trio.Lock()

    @property
    def last(self) -> bytes | None:
        """The sealed word for what we found saved last; None if we found nothing."""
        return self._shop.cabinet.get(self._name("saved"))

    @property
    def kept_ms(self) -> MillisSpan:
        """Up to where the renter has the job's work, in GPU-milliseconds."""
        raw = self._shop.cabinet.get(self._name("kept"))
        return MillisSpan(0 if raw is None else int.from_bytes(raw, "big"))

    async def look(self) -> bytes | None:
        """The sealed word for what the job has saved by now; None if it has saved nothing."""
        if self._job is None:
            return None
        async with self._looking:
            try:
                found = await self._shop.materials.save(self._run_id, self._job.limits)
            except PeerFault as fault:
                # It cannot be packed, or the job was faster than we; the next one may do.
                log.info("nothing saved", extra={"lease": self._run_id, "why": str(fault)})
                found = None
            if found is not None:
                self._note(found)
        return self.last

    def keep(self, saved: Digest) -> bool:
        """Note that the renter has what this names; whether that is news."""
        if self.last is None:
            return False
        sealed = unpack(self.last, self._shop.net, Saved)
        if sealed.digest != saved or sealed.body.used_ms <= self.kept_ms:
            return False
        self._shop.cabinet.put(self._name("kept"), sealed.body.used_ms.to_bytes(8, "big"))
        return True

    def _note(self, found: Snapshot) -> None:
        last = self.last
        if last is not None and unpack(last, self._shop.net, Saved).body.archive == found.archive:
            return
        saved = Saved(
            lease=self._lease.id,
            used_ms=self._used(found.at_ms),
            at_ms=found.at_ms,
            archive=found.archive,
        )
        raw = pack(saved, signer=self._shop.signer, net=self._shop.net)
        self._shop.cabinet.put(self._name("saved"), raw)

    def _used(self, at_ms: Millis) -> MillisSpan:
        """What was used of the lease by then."""
        began = self._shop.cabinet.get(self._name("began"))
        if began is None:
            return MillisSpan(0)
        request, lease = self._lease.request, self._shop.state_of(self._lease.id)
        end_ms = request.end_ms if lease is None else lease.ended_ms
        start_ms = max(request.start_ms, int.from_bytes(began, "big"))
        ran = min(at_ms, self._shop.clock.now(), end_ms) - start_ms
        return MillisSpan(max(0, ran) * len(request.units))

    def _name(self, name: str) -> str:
        return f"leases/{self._lease.id.hex()}/{name}"
