"""All leases of ours: admits jobs, starts a worker for each lease, and lets renters in."""

import logging
from collections.abc import Callable
from typing import Final

import trio
from msgspec import UNSET

from ledger.bodies import consent_bytes
from ledger.fold import Lease
from p2pnode.execution.lease_door import serve_renter
from p2pnode.execution.shop import Shop
from p2pnode.execution.worker import Worker
from p2pnode.network.exchange import Handler
from protocol.certificate import Certificate
from protocol.codec import decode, encode
from protocol.errors import LocalFault, PeerFault, Unavailable
from protocol.job import Job, open_job, read_job
from protocol.lease import LeaseRequest
from protocol.lease_stream import CosignAsk, Kept, LeaseName, Settle
from protocol.signing import is_signed
from protocol.units import Digest, Millis, PeerId, PublicKey

log = logging.getLogger(__name__)

JOBS_PENDING_MAX: Final = 256
"""Jobs that were sent with a lease request and wait for its GRANT, which follows at once."""
LEFT_MAX: Final = 4
"""Jobs of one renter whose output is kept once their units have been free for an hour."""
OUTBID: Final = "a lease of a better tier needs it"
SETTLE_BYTES_MAX: Final = 512
LEASES_WAITING_MAX: Final = 1_024

WhoIs = Callable[[PeerId], Certificate]


class Workplace:
    """Owns the workers."""

    def __init__(
        self,
        *,
        shop: Shop,
        who_is: WhoIs,
        x25519: tuple[PublicKey, bytes],
        refuses: Callable[[LeaseRequest, Job, Certificate], str | None],
        leases: Callable[[], list[Lease]],
    ) -> None:
        self._shop = shop
        self._who_is = who_is
        self._x25519 = x25519
        self._refuses = refuses
        self._leases = leases
        self._workers: dict[Digest, Worker] = {}
        self._left: dict[Digest, Worker] = {}
        """Those of which only what the job left is still here, oldest first."""
        self._to_begin, self._begun = trio.open_memory_channel[Lease](LEASES_WAITING_MAX)

    @property
    def handlers(self) -> dict[str, Handler]:
        """The questions that this part answers."""
        return {
            "lease.kept": self._answer_kept,
            "lease.settle": self._answer_settle,
            "lease.stop": self._answer_stop,
            "lease.tick": self._answer_tick,
            "lease.alive": self._answer_alive,
        }

    def worker(self, lease: Digest) -> Worker | None:
        """Who works on this lease, if it is one of ours that is not over."""
        return self._workers.get(lease)

    def admit(self, request: LeaseRequest, sealed: bytes | None, renter: Certificate) -> None:
        """Keep the job that the lease to come will run; durable on return.

        Raises Unavailable, with the reason, if we do not want to run it; PeerFault if it is not
        what the request names.
        """
        if request.job is UNSET:
            return
        if sealed is None:
            raise Unavailable("the job was not sent")
        public, secret = self._x25519
        raw = open_job(sealed, public=public, secret=secret)
        job = read_job(raw, named=request.job)
        if why := self._refuses(request, job, renter):
            raise Unavailable(why)
        pending = self._shop.cabinet.names("pending")
        for name in pending[: max(0, len(pending) - JOBS_PENDING_MAX + 1)]:
            self._shop.cabinet.remove(name)
        self._shop.cabinet.put(f"pending/{request.job.hex()}", raw)

    def begin(self, lease: Lease) -> None:
        """A lease of ours was granted: work on it."""
        self._to_begin.send_nowait(lease)

    def preempt(
        self, lease: Lease, not_before: Millis, why: str = OUTBID, *, now: Millis | None = None
    ) -> Millis | None:
        """Take a bronze lease's units back: renter and job know at once. Raises LocalFault.

        When they are free: once the notice that was agreed is over, or later if not before then;
        None if the lease ends before that anyway. `now`: when that was decided.
        """
        if (worker := self._workers.get(lease.id)) is not None:
            return worker.preempt(not_before, why, now)
        # Its worker, which is about to begin, looks first.
        self._shop.cabinet.put(f"leases/{lease.id.hex()}/notice", why.encode())
        return self._shop.preempt(lease, not_before, now)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Go on with the leases of before, then work on each new one, until cancelled."""
        now = self._shop.clock.now()
        async with trio.open_nursery() as nursery:
            for lease in self._leases():
                if lease.ended_ms > now or self._is_unfinished(lease):
                    nursery.start_soon(self._work, lease)
            task_status.started()
            async for lease in self._begun:
                nursery.start_soon(self._work, lease)

    def _is_unfinished(self, lease: Lease) -> bool:
        folder = f"leases/{lease.id.hex()}"
        names = self._shop.cabinet.names(folder)
        return bool(names) and f"{folder}/done" not in names

    async def _work(self, lease: Lease) -> None:
        if lease.id in self._workers:
            return
        worker = Worker(self._shop, lease, self._job_of(lease))
        self._workers[lease.id] = worker
        try:
            await worker.run()
            await self._keep(worker)
            folder = f"leases/{lease.id.hex()}"
            self._shop.cabinet.put(f"{folder}/done", b"")
            # Tick and outcome stay, as proof; what was run was the renter's business alone.
            self._shop.cabinet.remove(f"{folder}/job")
            if not worker.leaves_run:
                await self._shop.materials.remove(worker.run_id)
        except (LocalFault, Unavailable) as fault:
            log.exception("lease abandoned", extra={"lease": worker.run_id, "why": str(fault)})
            return
        del self._workers[lease.id]

    async def _keep(self, worker: Worker) -> None:
        """What its job left waits for a renter that stays away; of each renter only the newest."""
        if worker.job is None:
            return
        self._left[worker.lease.id] = worker
        own = [each for each in self._left.values() if each.lease.renter == worker.lease.renter]
        for each in own[:-LEFT_MAX]:
            each.consented.set()
        await worker.keep()
        del self._left[worker.lease.id]

    def _job_of(self, lease: Lease) -> Job | None:
        """The job of this lease, moved from where it waited for the GRANT."""
        named = lease.request.job
        if named is UNSET:
            return None
        kept, pending = f"leases/{lease.id.hex()}/job", f"pending/{named.hex()}"
        raw = self._shop.cabinet.get(kept)
        if raw is None:
            raw = self._shop.cabinet.get(pending)
            if raw is None:
                return None
            self._shop.cabinet.put(kept, raw)
            self._shop.cabinet.remove(pending)
        return read_job(raw, named=named)

    async def answer_stream(self, peer: PeerId, stream: trio.abc.Stream) -> None:
        """A renter's stream about one lease. Raises PeerFault."""
        await serve_renter(
            stream,
            shop=self._shop,
            worker_for=lambda lease: self._worker_for(peer, lease),
        )

    def _worker_for(self, peer: PeerId, lease: Digest) -> Worker:
        worker = self._workers.get(lease)
        if worker is None:
            raise PeerFault("lease.unknown")
        if worker.lease.renter != self._who_is(peer).feed:
            raise PeerFault("lease.renter", "somebody else's lease")
        return worker

    async def _answer_tick(self, peer: PeerId, body: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        asked = decode(body, LeaseName, size_max=SETTLE_BYTES_MAX)
        metered = self._worker_for(peer, asked.lease).meter.last
        if metered is None:
            raise PeerFault("tick.none")
        return encode(CosignAsk(tick=metered.tick))

    async def _answer_kept(self, peer: PeerId, body: bytes) -> bytes:
        asked = decode(body, Kept, size_max=SETTLE_BYTES_MAX)
        await self._worker_for(peer, asked.lease).note_kept(asked.saved)
        return b""

    async def _answer_settle(self, peer: PeerId, body: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        settle = decode(body, Settle, size_max=SETTLE_BYTES_MAX)
        worker = self._worker_for(peer, settle.lease)
        if settle.cosign is not UNSET:
            worker.meter.take(settle.cosign)
        lease = self._shop.state_of(settle.lease)
        assert lease is not None
        if lease.reason is None and settle.at_ms < lease.ended_ms:
            self._release(lease, settle)
        worker.consented.set()
        if lease.request.renews is not UNSET and settle.at_ms <= lease.request.start_ms:
            worker.ask_stop()
        return b""

    def _release(self, lease: Lease, settle: Settle) -> None:
        units = tuple((each.unit, each.ctr) for each in lease.request.units)
        agreed = consent_bytes(lease.id, units, settle.at_ms)
        if not is_signed(
            lease.renter, "release-consent", self._shop.net, agreed, by=settle.consent
        ):
            raise PeerFault("settle.consent")
        self._shop.release_by_consent(lease, settle.at_ms, settle.consent)

    async def _answer_stop(self, peer: PeerId, body: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        asked = decode(body, LeaseName, size_max=SETTLE_BYTES_MAX)
        self._worker_for(peer, asked.lease).ask_stop()
        return b""

    async def _answer_alive(self, peer: PeerId, body: bytes) -> bytes:
        """A witness asks on behalf of a renter that cannot reach us."""
        await trio.lowlevel.checkpoint()
        asked = decode(body, LeaseName, size_max=SETTLE_BYTES_MAX)
        worker = self._workers.get(asked.lease)
        if worker is None:
            raise PeerFault("lease.unknown")
        named = worker.lease.request.witnesses
        if named is UNSET or self._who_is(peer).feed not in named:
            raise PeerFault("witness.lease", "not one of its witnesses")
        return b""
