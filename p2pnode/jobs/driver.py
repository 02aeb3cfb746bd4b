"""Carries one job from submission to its end, over as many leases as it takes.

Every step is durable before the next and harmless when repeated; a driver that is started again
after a crash goes on where the last one was.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import trio
from msgspec import UNSET

from ledger.fold import Lease
from ledger.witness_bodies import Cosigned
from p2pnode.jobs.desk import Desk, LeaseOver, LostOwner
from p2pnode.jobs.jobfile import ENDED, JobFile, State, save, taking_of, taking_record
from p2pnode.jobs.lease_client import LeaseClient
from p2pnode.jobs.moving import gone_on, moved
from p2pnode.jobs.placing import place
from p2pnode.jobs.renewer import Renewer
from p2pnode.jobs.saver import Saver
from p2pnode.kept import LOST
from p2pnode.matching.book import Offer
from p2pnode.matching.renter import NoMatch, Taking
from protocol.codec import decode, encode
from protocol.errors import LocalFault, P2PError, PeerFault, Unavailable
from protocol.job import Job, seal_job
from protocol.limits import JOB_BYTES_MAX
from protocol.scoring import AuctionRecord
from protocol.tick import Outcome
from protocol.units import PeerId
from protocol.wire import unpack

log = logging.getLogger(__name__)

RETRY_MATCH_S: Final = 2.0
RETRY_PEER_S: Final = 0.5
CONFIRM_S: Final = 10
EARLY_MS: Final = 10_000
SETTLE_S: Final = 10
MOVED: Final = b"\n[p2pnode] the job moves to another node\n"
OWN_LINES_BYTES: Final = 4_096
"""Room for lines about moves and gaps in a log that keeps little or nothing."""


class Driver:
    """Owns one job's file."""

    def __init__(self, desk: Desk, file: JobFile) -> None:
        self._desk = desk
        self.file = file
        self.changed = trio.Event()
        self.cancelled: Final = trio.Event()
        self._saver: Final = Saver(desk, self)
        self._renewer: Final = Renewer(desk, self)
        if file.is_cancelled is not UNSET:
            self.cancelled.set()

    def cancel(self) -> None:
        """The renter wants no more of it; durable on return. Raises LocalFault."""
        self.change(is_cancelled="yes")
        self.cancelled.set()

    async def run(self) -> None:
        """Until the job has ended. Raises LocalFault if our own disk fails."""
        while self.file.state not in ENDED:
            try:
                await self._step()
            except LostOwner as lost:
                await self._desk.call_witnesses(self.leased())
                await self._move(str(lost))
            except PeerFault as fault:
                await self._leave(fault)
            except Unavailable as error:
                self.change(why=str(error))
                await trio.sleep(RETRY_PEER_S)
        log.info(
            "job ended",
            extra={"job": self.file.id, "state": self.file.state, "why": self.file.why},
        )

    async def _step(self) -> None:
        """One state to the next."""
        match self.file.state:
            case "matching":
                await self._match()
            case "staging":
                await self._stage()
            case "running":
                await self._follow()
            case "fetching":
                await self._fetch()
            case "settling":
                await self._settle()
            case "done" | "failed" | "primary":  # of which a HybridDriver takes care
                raise AssertionError

    async def _match(self) -> None:
        if self.cancelled.is_set():
            self._end("failed", "cancelled")
            return
        taken = await self._resume_taking()
        if taken is None:
            try:
                order = self.file.order(self._desk.clock.now())
                won = await place(self._desk, order, self.seal, self._remember)
            except NoMatch as error:
                self._keep_auction(error.record)
                await self._wait_for_market(str(error))
                return
            self._keep_auction(won.record)
            taken = (won.taking, won.grant, won.cosigned)
        taking, grant, cosigned = taken
        with trio.move_on_after(CONFIRM_S) as scope:
            try:
                lease = await self._desk.confirm(taking.peer, grant, cosigned)
            except LeaseOver as over:
                self.change(taking=UNSET, why=str(over))
                return
            self.change(state="staging", lease=lease.id, why="")
        if scope.cancelled_caught:
            raise Unavailable("the owner granted and then did not show its ledger")

    async def _resume_taking(self) -> tuple[Taking, bytes, Cosigned | None] | None:
        """The answer to a request that was on its way when we died; None if it gave nothing."""
        if self.file.taking is UNSET:
            return None
        taking = taking_of(self.file.taking)
        try:
            with trio.fail_after(CONFIRM_S):
                reply = await self._desk.renter.ask_again(taking)
                if reply.yes is not UNSET:
                    return taking, reply.yes, await self._desk.renter.witness(taking, reply.yes)
        except (Unavailable, trio.TooSlowError) as error:
            log.info("no grant", extra={"job": self.file.id, "why": str(error)})
        self.change(taking=UNSET)
        return None

    async def _wait_for_market(self, why: str) -> None:
        self.change(why=why)
        if self._desk.clock.now() >= self.file.give_up_ms:
            self._end("failed", f"no match: {why}")
            return
        with trio.move_on_after(RETRY_MATCH_S):
            await self.cancelled.wait()

    async def _remember(self, taking: Taking) -> None:
        self.change(taking=taking_record(taking))
        await trio.lowlevel.checkpoint()

    def seal(self, offer: Offer) -> bytes:
        """The job, for this owner alone. Raises PeerFault."""
        return seal_job(
            self.file.job,
            to=offer.certificate.x25519,
            ephemeral=self._desk.random_bytes(32),
        )

    async def _stage(self) -> None:
        job = self.job()
        if job.input is not UNSET:
            size = job.input.bytes
            await self._with_owner(lambda client: client.send_input(self.file.id, size))
        if job.checkpoint is not UNSET:
            saved = job.checkpoint
            await self._with_owner(lambda client: client.send_checkpoint(self.file.id, saved))
        await self._await_start()
        self._mark_log(await self._desk.baggage.log_size(self.file.id))
        self.change(state="running")

    async def _await_start(self) -> None:
        """Leave the owner of a reservation alone until shortly before it starts."""
        early_ms = self.leased().request.start_ms - EARLY_MS - self._desk.clock.now()
        with trio.move_on_after(max(0, early_ms) / 1_000):
            await self.cancelled.wait()

    async def _follow(self) -> None:
        """The log of this attempt, behind that of the attempts before."""

        async def follow(client: LeaseClient) -> None:
            have = await self._desk.baggage.log_size(self.file.id) - self._log_mark()
            outcome = await client.follow_log(
                self.file.id, offset=have, shift=self._shift_log, bytes_max=self._log_bytes()
            )
            self._check_outcome(outcome)
            self.change(state="fetching", outcome=outcome, why="")

        failed: list[P2PError] = []

        async def until_over(talk: Callable[[], Awaitable[None]]) -> None:
            try:
                await talk()
            except P2PError as error:
                failed.append(error)  # out here, so that the nursery does not wrap it
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._stop_when_cancelled)
            nursery.start_soon(until_over, lambda: self._with_owner(follow))
            if self.file.checkpoint_ms is not UNSET:
                nursery.start_soon(until_over, self._saver.run)
            if self.file.is_renewable is not UNSET:
                nursery.start_soon(self._renewer.run)
        # Once the outcome is here, a fault of the other task is for the next step to meet.
        if failed and self.file.state == "running":
            raise failed[0]

    def _log_mark(self) -> int:
        """How much longer our copy of the log is than what the owner has sent of this lease."""
        raw = self._desk.cabinet.get(f"jobs/{self.file.id}/log-mark") or b""
        return int.from_bytes(raw, "big", signed=True)

    def _mark_log(self, ahead: int) -> None:
        raw = ahead.to_bytes(8, "big", signed=True)
        self._desk.cabinet.put(f"jobs/{self.file.id}/log-mark", raw)

    def _shift_log(self, by: int) -> None:
        self._mark_log(self._log_mark() + by)

    def _check_outcome(self, raw: bytes) -> Outcome:
        sealed = unpack(raw, self._desk.net, Outcome)
        lease = self.leased()
        if sealed.signer != lease.owner or sealed.body.lease != lease.id:
            raise PeerFault("outcome.signer")
        output = sealed.body.output
        if output is not UNSET and output.bytes > self.job().limits.output_bytes:
            raise PeerFault("outcome.output", f"{output.bytes} bytes")
        return sealed.body

    def job(self) -> Job:
        """What is run."""
        return decode(self.file.job, Job, size_max=JOB_BYTES_MAX)

    def _log_bytes(self) -> int:
        """How much we keep of the log, over all attempts; the lines of ours come on top."""
        return self.job().limits.log_bytes + OWN_LINES_BYTES

    async def _stop_when_cancelled(self) -> None:
        await self.cancelled.wait()
        while True:
            try:
                await self._desk.stop(self.peer(), self.leased().id)
            except (Unavailable, PeerFault):
                await trio.sleep(RETRY_PEER_S)
            else:
                return

    async def _fetch(self) -> None:
        outcome = self._outcome()
        if outcome.cause in LOST and self.file.checkpoint_ms is not UNSET:
            await self._with_owner(self._saver.fetch)
        if outcome.output is not UNSET:
            wanted = outcome.output
            await self._with_owner(lambda client: client.fetch_output(self.file.id, wanted.bytes))
            await self._desk.baggage.check_output(self.file.id, wanted)
        self.change(state="settling")

    async def _settle(self) -> None:
        """A receipt is wanted, but an owner that denies it does not hold up the job."""
        outcome, lease = self._outcome(), self.leased()
        try:
            with trio.fail_after(SETTLE_S):
                receipt = await self._settled(lease)
            self._desk.cabinet.put(f"jobs/{self.file.id}/receipt", receipt)
        except (PeerFault, trio.TooSlowError) as error:
            why = str(error) or self.file.why or "too slow"
            log.warning("lease not settled", extra={"job": self.file.id, "why": why})
        if outcome.cause == "renewed" and await self._renewer.is_going_on():
            self._become(gone_on(self.file, lease, self._desk.owed(lease.id)))
            return
        await self._renewer.let_go()
        if outcome.cause == "preempted" and not self.cancelled.is_set():
            await self._move("the owner took the units back", is_preempted=True)
        elif outcome.cause in {"engine", "stopped", "renewed"} and not self.cancelled.is_set():
            why = outcome.enforced if outcome.detail is UNSET else outcome.detail
            await self._move(f"the owner ended it: {outcome.cause}: {why}")
        elif outcome.cause == "exit":
            self._end("done", "")
        else:
            self._end("failed", "cancelled" if self.cancelled.is_set() else outcome.cause)

    async def _settled(self, lease: Lease) -> bytes:
        """The receipt; asked for again while the owner is out of reach."""
        while True:
            try:
                return await self._desk.settle(self.peer(), lease, self._sealed_outcome())
            except Unavailable as error:
                self.change(why=str(error))
                await trio.sleep(RETRY_PEER_S)

    async def _leave(self, fault: PeerFault) -> None:
        """An owner that broke a rule would break it again: go elsewhere."""
        taking = self.file.taking
        if self.file.lease is not UNSET:
            await self._move(str(fault))
        elif taking is not UNSET:
            self._desk.failed(taking.owner)
            avoid = self.file.avoiding(taking.owner)
            self.change(taking=UNSET, avoid=avoid, why=str(fault))
        else:
            self.change(why=str(fault))
            await trio.sleep(RETRY_PEER_S)

    async def _move(self, why: str, *, is_preempted: bool = False) -> None:
        """Give up this lease and look for another owner."""
        file, lease = self.file, self.leased()
        # Before another lease is paid for: this owner may come back, and go on metering.
        self._desk.cabinet.put(f"left/{lease.id.hex()}", b"")
        if not is_preempted:
            self._desk.failed(lease.owner)
        faults = file.attempt - file.preemptions
        if (faults > file.moves_max and not is_preempted) or self.cancelled.is_set():
            self._end("failed", why)
            return
        log.warning("job moves", extra={"job": file.id, "why": why, "from": lease.owner.hex()})
        await self._desk.baggage.drop_output(file.id)
        await self._desk.baggage.append_log(file.id, MOVED, bytes_max=self._log_bytes())
        self._become(
            moved(
                self.file,
                lease,
                why=why,
                is_preempted=is_preempted,
                now=self._desk.clock.now(),
                owed=self._desk.owed(lease.id),
                nonce=self._desk.random_bytes(16),
            )
        )

    async def _with_owner(self, talk: Callable[[LeaseClient], Awaitable[None]]) -> None:
        """Talk with the lease's owner, again after each loss of the connection.

        Raises LostOwner when it has not been reached for `lost_after_s`, or at the lease's end.
        """
        client = self.client()
        lost_at = trio.current_time()
        while True:
            began = trio.current_time()
            try:
                await talk(client)
            except Unavailable as error:
                if trio.current_time() - began > RETRY_PEER_S:
                    lost_at = trio.current_time()  # it was there until now
                if trio.current_time() - lost_at > self._desk.lost_after_s:
                    raise LostOwner(f"the owner is out of reach: {error}") from error
                self.change(why=str(error))
                await trio.sleep(RETRY_PEER_S)
            else:
                return

    def client(self) -> LeaseClient:
        """For talking with the owner of the lease."""
        return LeaseClient(
            peer=self.peer(),
            lease=self.leased().id,
            open_stream=self._desk.open_stream,
            baggage=self._desk.baggage,
        )

    def leased(self) -> Lease:
        """The lease that the job has now. Raises LocalFault."""
        assert self.file.lease is not UNSET
        lease = self._desk.lease(self.file.lease)
        if lease is None:
            raise LocalFault("the ledger has lost a lease of ours", "p2pnode ledger verify")
        return lease

    def peer(self) -> PeerId:
        """Its owner's peer."""
        assert self.file.taking is not UNSET
        return self.file.taking.peer

    def _sealed_outcome(self) -> bytes:
        assert self.file.outcome is not UNSET
        return self.file.outcome

    def _outcome(self) -> Outcome:
        return self._check_outcome(self._sealed_outcome())

    def _keep_auction(self, record: AuctionRecord) -> None:
        name = f"jobs/{self.file.id}/auction-{self.file.attempt}"
        self._desk.cabinet.put(name, encode(record))

    def _end(self, state: State, why: str) -> None:
        self.change(state=state, why=why)

    def change(self, **changes: object) -> None:
        """Durable, then true, then told."""
        self._become(msgspec.structs.replace(self.file, **changes))

    def _become(self, file: JobFile) -> None:
        if file == self.file:
            return
        save(self._desk.cabinet, file)
        self.file = file
        self.changed.set()
        self.changed = trio.Event()
