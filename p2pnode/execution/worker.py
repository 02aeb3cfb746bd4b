"""One lease of ours, from its GRANT to its receipt: stage, run, meter, report, settle.

Each step is durable before the next, and each is harmless when repeated, so a worker that is
started again after a crash goes on where the last one was.
"""

import logging
from dataclasses import replace
from typing import Final

import trio
from msgspec import UNSET

from ledger.fold import Lease
from p2pnode.execution import course
from p2pnode.execution.engine import Cause, Ending, Notice, RunId
from p2pnode.execution.meter import Meter
from p2pnode.execution.remedies import let_off
from p2pnode.execution.saves import Saves
from p2pnode.execution.shop import Shop
from p2pnode.execution.stopping import RETRY_ENGINE_S, STOP_GRACE_MS, give_up, stop_run
from p2pnode.execution.workspace import Parcel
from p2pnode.kept import LOST
from protocol.errors import LocalFault, PeerFault, Unavailable
from protocol.job import Input, Job
from protocol.limits import OUTCOME_BYTES_MAX, SEAL_BYTES
from protocol.tick import Outcome
from protocol.units import Digest, Millis, MillisSpan
from protocol.wire import pack, unpack

log = logging.getLogger(__name__)

ASK_AGAIN_S: Final = 300
WARNED_MS_MAX: Final = MillisSpan(3_600_000)
"""A job is not told earlier than this that its units are taken back."""
LEAVE_MS: Final = MillisSpan(20_000)
"""Once its job is over, a lease whose renter does not come for it frees its units after this."""
RETURN_MS: Final = MillisSpan(30_000)
"""After a restart of ours a renter has this long to let us know that it has accepted."""


class Worker:
    """Owns one lease. Its door takes the input and hands out log, output and outcome."""

    def __init__(self, shop: Shop, lease: Lease, job: Job | None) -> None:
        self._shop = shop
        self.lease: Final = lease
        self.job: Final = job
        self.run_id: Final = RunId(course.root_of(lease, shop.state_of).hex())
        self._parcel_came = trio.Event()
        self.ended: Final = trio.Event()
        """The outcome can be handed out."""
        self.consented: Final = trio.Event()
        """The renter has all that it wants."""
        self.stop_asked: Final = trio.Event()
        """The renter wants no more of it."""
        self._noticed: Final = trio.Event()
        """The units are taken back."""
        self._staging: Final = trio.CancelScope()
        self.saves: Final = Saves(shop, lease, job, self.run_id)
        self.was_started = shop.cabinet.get(self._name("began")) is not None
        """The engine knows the run, so it has a log."""
        self.meter: Final = Meter(shop, lease)
        self._claim_by_ms = course.lapse_ms(lease)

    @property
    def outcome(self) -> bytes | None:
        """The sealed outcome, once there is one."""
        return self._shop.cabinet.get(self._name("outcome"))

    @property
    def _cause(self) -> str:
        """How the job ended; empty while it has not."""
        raw = self.outcome
        return "" if raw is None else unpack(raw, self._shop.net, Outcome).body.cause

    @property
    def leaves_run(self) -> bool:
        """Whether the run is another lease's by now, or still."""
        is_another = self.lease.request.renews is not UNSET and not self.was_started
        return self._cause == "renewed" or bool(self._cause and is_another)

    def parcel_came(self) -> None:
        """Something that the job starts with is whole."""
        self._parcel_came.set()

    def preempt(self, not_before: Millis, why: str, now: Millis | None = None) -> Millis | None:
        """Take the units back; when they are free, or None if the lease ends before that anyway.

        The notice is durable on return, and the job is told at once. Raises LocalFault.
        """
        self._keep("notice", why.encode())
        at_ms = self._shop.preempt(self.lease, not_before, now)
        if at_ms is not None:
            self._heed()
        return at_ms

    def ask_stop(self) -> None:
        """The renter wants no more of it."""
        self.stop_asked.set()
        if not self.was_started:
            self._staging.cancel()

    def _heed(self) -> None:
        self._noticed.set()
        if not self.was_started and self._end_ms() - self._now() <= WARNED_MS_MAX:
            # What has not begun need not begin for the time of the notice.
            self._staging.cancel()

    async def note_kept(self, saved: Digest) -> None:
        """The renter has this, so that it owes the work up to there."""
        if self.saves.keep(saved) and self.ended.is_set() and self._is_lost():
            kept = self.saves.kept_ms
            ran = MillisSpan(-(-kept // len(self.lease.request.units)))
            await self.meter.tick(ran, until=self._end_ms(), kept=kept)

    def _is_lost(self) -> bool:
        """Whether the job ended so that what bronze had not saved is lost, and unpaid."""
        return self.lease.request.tier == "bronze" and self._cause in LOST

    async def run(self) -> None:
        """From wherever the lease stands to its end. Raises nothing that a renter can cause."""
        # A renter that was waiting for us to come back needs the same time again.
        self._claim_by_ms = max(self._claim_by_ms, Millis(self._now() + RETURN_MS))
        if self.job is None:
            await self._await_lapse()
            return
        if self.outcome is None:
            ending = await self._work(self.job)
            await self._report(self.job, ending)
        self.ended.set()
        outcome = unpack(self.outcome or b"", self._shop.net, Outcome)
        agreed = self.meter.state()
        log.info(
            "lease ended",
            extra={"lease": self.run_id, "cause": outcome.body.cause, "amount_micro": agreed},
        )
        await self._await_consent()
        self.meter.claim()
        let_off(self._shop, self.lease, outcome.body)

    async def keep(self) -> None:
        """Hold what the job left until the renter has it, or for as long as we agreed to."""
        kept_ms = course.kept_until_ms(self._shop.state_of(self.lease.id) or self.lease)
        with trio.move_on_after(max(0, kept_ms - self._now()) / 1_000):
            await self.consented.wait()

    async def _await_lapse(self) -> None:
        """A lease without a job holds the units for `lapse_ms`, then they are free again."""
        await self._sleep_until(course.lapse_ms(self.lease))
        self._lapse()
        self.ended.set()

    async def _work(self, job: Job) -> Ending:
        """Stage and run the job; how it ended."""
        started = self._now()
        if self._is_preempted():
            self._heed()
        if self.lease.request.renews is not UNSET:
            return await self._go_on(started)
        parcels = course.parcels_of(job)
        try:
            with self._staging:
                if not await self._await_parcels(parcels):
                    return self._failed("stopped", "the input did not arrive in time", started)
                await self._shop.materials.prepare(
                    self.run_id, parcels["input"], job.limits, resumed=parcels["resume"]
                )
                await self._sleep_until(self.lease.request.start_ms)
            if self._staging.cancel_called:
                # Unless we died between its start and our note of it.
                await give_up(self._shop.engine, self.run_id)
                # Both sign that nothing is owed, so that the renter need not wait for more.
                await self.meter.tick(MillisSpan(0), until=self._end_ms())
                return self._failed("stopped", "ended before it began", started)
            await self._shop.engine.start(
                course.run_of(job, self.lease, self.run_id, self._shop.device_of)
            )
        except PeerFault as fault:
            # The renter's own fault, so that no remedy is due.
            return self._failed("stopped", f"the input is refused: {fault.rule}", started)
        except (LocalFault, Unavailable) as fault:
            return self._failed("engine", str(fault), started)
        return await self._watch()

    async def _go_on(self, started: Millis) -> Ending:
        """The run is that of the lease before, which leaves it to us at its end."""
        with self._staging:
            await self._sleep_until(self.lease.request.start_ms)
        if self._staging.cancel_called or self._end_ms() <= self.lease.request.start_ms:
            await self.meter.tick(MillisSpan(0), until=self._end_ms())
            return self._failed("stopped", "ended before it began", started)
        return await self._watch()

    def _is_renewed(self) -> bool:
        """Whether the run is to go on in another lease."""
        is_over = self._now() >= self._end_ms() and not self.stop_asked.is_set()
        return is_over and self._shop.renewal_of(self.lease.id) is not None

    async def _watch(self) -> Ending:
        """Meter the run until it ends; the lease's end ends it."""
        self.was_started = True
        began = self._began()
        endings: list[Ending] = []

        async def wait() -> None:
            endings.append(await self._await_ending(began))
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            nursery.start_soon(self._heed_notice)
            while self._now() < self._end_ms() and not self.stop_asked.is_set():
                period_s = self.lease.request.period_ms / 1_000
                left_s = (self._end_ms() - self._now()) / 1_000
                with trio.move_on_after(min(period_s, max(left_s, 0))):
                    await self.stop_asked.wait()
                if not await self._meter(MillisSpan(self._now() - began)):
                    break
            if self._is_renewed():
                endings.append(Ending(cause="renewed", started_ms=began, ended_ms=self._end_ms()))
                nursery.cancel_scope.cancel()
            else:
                await stop_run(self._shop.engine, self.run_id, STOP_GRACE_MS)
        ending = self._as_preempted(endings[0])
        used = max(0, min(ending.ended_ms, self._end_ms()) - max(ending.started_ms, began))
        is_lost = self.lease.request.tier == "bronze" and ending.cause in LOST
        await self.meter.tick(
            MillisSpan(used), until=self._end_ms(), kept=self.saves.kept_ms if is_lost else None
        )
        if ending.cause == "engine":
            await give_up(self._shop.engine, self.run_id)
        return ending

    async def _heed_notice(self) -> None:
        """Once the units are taken back: let the job know, and end what goes on at the deadline."""
        await self._noticed.wait()
        # A reservation for tomorrow is no reason to save now.
        await self._sleep_until(Millis(self._end_ms() - WARNED_MS_MAX))
        why = self._shop.cabinet.get(self._name("notice")) or b""
        signal = UNSET if self.job is None else self.job.notice_signal
        notice = Notice(
            deadline_ms=self._end_ms(),
            reason=why.decode(),
            signal=None if signal is UNSET else signal,
        )
        try:
            await self._shop.engine.warn(self.run_id, notice)
        except (LocalFault, Unavailable) as error:
            log.warning("job not warned", extra={"lease": self.run_id, "why": str(error)})
        await self._sleep_until(self._end_ms())
        await stop_run(self._shop.engine, self.run_id, MillisSpan(0))

    def _as_preempted(self, ending: Ending) -> Ending:
        """A job that was told to save, and did not end well by itself, goes on elsewhere."""
        if course.is_cut(ending) and self._is_preempted():
            return replace(ending, cause="preempted")
        return ending

    def _is_preempted(self) -> bool:
        lease = self._shop.state_of(self.lease.id)
        return lease is not None and lease.reason == "preempted"

    async def _meter(self, ran: MillisSpan) -> bool:
        """Write down and state what was used so far; whether the run may go on."""
        try:
            # Bronze owes what the renter has of the work; the rest may yet be lost.
            is_bronze = self.lease.request.tier == "bronze"
            kept = self.saves.kept_ms if is_bronze else None
            await self.meter.tick(ran, until=self._end_ms(), kept=kept)
        except LocalFault as fault:
            # Once the run has been stopped the last tick says it again.
            log.warning("lease not metered", extra={"lease": self.run_id, "why": str(fault)})
            return False
        self.meter.bill()
        if self.meter.is_left:
            return False
        if self._is_unclaimed():
            log.info("lease not accepted", extra={"lease": self.run_id})
            return False
        if self._shop.is_enough(self.lease):
            log.warning("renter owes all that it may", extra={"lease": self.run_id})
            return False
        return True

    async def _await_ending(self, began: Millis) -> Ending:
        """How the run ended. An engine that is away is asked again; one that fails has ended it."""
        while True:
            try:
                return await self._shop.engine.wait(self.run_id)
            except LocalFault as fault:
                return self._failed("engine", str(fault), began)
            except Unavailable as error:
                log.warning("engine away", extra={"lease": self.run_id, "why": str(error)})
                await trio.sleep(RETRY_ENGINE_S)

    def _began(self) -> Millis:
        """When the meter started, also for a worker that took over from one that died."""
        raw = self._shop.cabinet.get(self._name("began"))
        if raw is None:
            raw = self._now().to_bytes(8, "big")
            self._keep("began", raw)
        return Millis(int.from_bytes(raw, "big"))

    def _end_ms(self) -> Millis:
        lease = self._shop.state_of(self.lease.id)
        return self.lease.ended_ms if lease is None else lease.ended_ms

    async def _report(self, job: Job, ending: Ending) -> None:
        """Pack the output and sign how the job ended; durable on return."""
        shop = self._shop
        output, detail = None, ending.detail
        try:
            if ending.cause not in {"preempted", "renewed"}:
                output = await shop.materials.collect(self.run_id, job.limits)
        except PeerFault as fault:
            detail = f"output refused: {fault.rule} {detail}"
        outcome = Outcome(
            lease=self.lease.id,
            cause=ending.cause,
            exit_code=UNSET if ending.exit_code is None else ending.exit_code,
            signal=UNSET if ending.signal is None else ending.signal,
            started_ms=ending.started_ms,
            ended_ms=ending.ended_ms,
            output=UNSET if output is None else output,
            engine=shop.engine.description.partition(":")[0],
            isolation=shop.engine.isolation,
            enforced=shop.engine.description[:500],
            detail=detail.strip()[:200] or UNSET,
            vram_peak_mib=self.meter.vram_peak,
            gpu="simulated" if shop.is_simulated() else "nvml",
        )
        raw = pack(outcome, signer=shop.signer, net=shop.net)
        assert len(raw) <= OUTCOME_BYTES_MAX + SEAL_BYTES
        self._keep("outcome", raw)

    async def _await_consent(self) -> None:
        """Return once the renter has all that it wants, or an hour after the units are free.

        They are that soon, since nothing more runs on them and nothing more is owed.
        """
        leave_ms = 0 if self._shop.is_enough(self.lease) else LEAVE_MS
        with trio.move_on_after(max(leave_ms, self._claim_by_ms - self._now()) / 1_000):
            await self.consented.wait()
        if not self.consented.is_set():
            self._lapse()
        while not self.consented.is_set() and self._now() < self._end_ms() + course.KEPT_MS:
            left_s = (self._end_ms() + course.KEPT_MS - self._now()) / 1_000
            with trio.move_on_after(min(left_s, ASK_AGAIN_S)):
                await self.consented.wait()
                return
            # Who has its job's outputs but could not settle still co-signs, and answers.
            await self.meter.ask()

    async def _await_parcels(self, parcels: dict[Parcel, Input | None]) -> bool:
        """Whether all that the job starts with came before the lease lapses."""
        with trio.move_on_after(max(0, course.lapse_ms(self.lease) - self._now()) / 1_000):
            for what, named in parcels.items():
                while named is not None:
                    if await self._shop.materials.have(self.run_id, what) >= named.bytes:
                        break
                    await self._parcel_came.wait()
                    self._parcel_came = trio.Event()
            return True
        return False

    def _failed(self, cause: Cause, detail: str, started: Millis) -> Ending:
        log.warning("job not run", extra={"lease": self.run_id, "why": detail})
        ending = Ending(cause=cause, detail=detail, started_ms=started, ended_ms=self._now())
        return self._as_preempted(ending)

    def _is_unclaimed(self) -> bool:
        """Whether the renter has had its time to accept the lease, and has not."""
        lease = self._shop.state_of(self.lease.id)
        return (
            self._now() >= self._claim_by_ms
            and not self.meter.is_met
            and lease is not None
            and not lease.is_accepted
        )

    def _lapse(self) -> None:
        """Let the units go, unless the lease is over by now. Raises LocalFault."""
        lease = self._shop.state_of(self.lease.id)
        assert lease is not None
        if self._now() < lease.ended_ms and lease.reason is None:
            self._shop.lapse(lease)

    def _keep(self, name: str, record: bytes) -> None:
        self._shop.cabinet.put(self._name(name), record)

    def _name(self, name: str) -> str:
        return f"leases/{self.lease.id.hex()}/{name}"

    def _now(self) -> Millis:
        return self._shop.clock.now()

    async def _sleep_until(self, at: Millis) -> None:
        await trio.sleep(max(0, at - self._now()) / 1_000)
