"""Carries one job from submission to its end, over as many leases as it takes.

Every step is durable before the next and harmless when repeated; a driver that is started again
after a crash goes on where the last one was.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import msgspec
import trio
from msgspec import UNSET

from ledger.fold import Lease
from ledger.witness_bodies import Cosigned
from p2pnode.cabinet import Cabinet
from p2pnode.clock import WallClock
from p2pnode.jobs.baggage import Baggage
from p2pnode.jobs.jobfile import ENDED, JobFile, State, save, taking_of, taking_record
from p2pnode.jobs.lease_client import LeaseClient, OpenStream
from p2pnode.matching.book import Offer
from p2pnode.matching.renter import NoMatch, Renter, Taking
from p2pnode.matching.search import Wish
from protocol.codec import decode, encode
from protocol.errors import LocalFault, P2PError, PeerFault, Unavailable
from protocol.job import Job, seal_job
from protocol.limits import JOB_BYTES_MAX
from protocol.scoring import AuctionRecord
from protocol.tick import Outcome
from protocol.units import Digest, Micros, Millis, NetId, PeerId, PublicKey
from protocol.wire import unpack

log = logging.getLogger(__name__)

RETRY_MATCH_S: Final = 2.0
RETRY_PEER_S: Final = 0.5
CONFIRM_S: Final = 10
SETTLE_S: Final = 10
MOVED: Final = b"\n[p2pnode] the job moves to another node\n"
OWN_LINES_BYTES: Final = 4_096
"""Room for lines about moves and gaps in a log that keeps little or nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What a driver needs of the node."""

    renter: Renter
    cabinet: Cabinet
    baggage: Baggage
    net: NetId
    clock: WallClock
    random_bytes: Callable[[int], bytes]
    open_stream: OpenStream
    confirm: Callable[[PeerId, bytes, Cosigned | None], Awaitable[Lease]]
    """confirm(owner, GRANT, cosignatures): judge it, with the owner's feed, and ACCEPT it.

    Raises LeaseOver, Unavailable or PeerFault.
    """
    settle: Callable[[PeerId, Lease, bytes], Awaitable[bytes]]
    """Close the accounts of an ended lease; the receipt. Raises Unavailable or PeerFault."""
    lease: Callable[[Digest], Lease | None]
    owed: Callable[[Digest], Micros]
    """What we have co-signed for this lease."""
    stop: Callable[[PeerId, Digest], Awaitable[None]]
    look_around: Callable[[Wish], Awaitable[None]]
    """Bring what may fit this wish into the book, as far as that takes asking."""
    call_witnesses: Callable[[Lease], Awaitable[None]]
    """Have those of the lease look after it; takes a few seconds, raises nothing."""
    failed: Callable[[PublicKey], None]
    """An owner did not finish: remember it when the next bids are scored."""
    lost_after_s: float
    """An owner that cannot be reached for this long is given up."""


class LostOwner(Unavailable):
    """The owner of the lease has been out of reach for too long."""


class LeaseOver(Unavailable):
    """What the owner granted has ended before we accepted it."""


class Driver:
    """Owns one job's file."""

    def __init__(self, desk: Desk, file: JobFile) -> None:
        self._desk = desk
        self.file = file
        self.changed = trio.Event()
        self.cancelled: Final = trio.Event()
        if file.is_cancelled is not UNSET:
            self.cancelled.set()

    def cancel(self) -> None:
        """The renter wants no more of it; durable on return. Raises LocalFault."""
        self._change(is_cancelled="yes")
        self.cancelled.set()

    async def run(self) -> None:
        """Until the job has ended. Raises LocalFault if our own disk fails."""
        while self.file.state not in ENDED:
            try:
                await self._step()
            except LostOwner as lost:
                await self._desk.call_witnesses(self._leased())
                await self._move(str(lost))
            except PeerFault as fault:
                await self._leave(fault)
            except Unavailable as error:
                self._change(why=str(error))
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
            order = self.file.order()
            await self._desk.look_around(order.wish())
            try:
                won = await self._desk.renter.rent(
                    order, seal_job=self._seal, remember=self._remember
                )
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
                self._change(taking=UNSET, why=str(over))
                return
            self._change(state="staging", lease=lease.id, why="")
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
        self._change(taking=UNSET)
        return None

    async def _wait_for_market(self, why: str) -> None:
        self._change(why=why)
        if self._desk.clock.now() >= self.file.give_up_ms:
            self._end("failed", f"no match: {why}")
            return
        with trio.move_on_after(RETRY_MATCH_S):
            await self.cancelled.wait()

    async def _remember(self, taking: Taking) -> None:
        self._change(taking=taking_record(taking))
        await trio.lowlevel.checkpoint()

    def _seal(self, offer: Offer) -> bytes:
        return seal_job(
            self.file.job,
            to=offer.certificate.x25519,
            ephemeral=self._desk.random_bytes(32),
        )

    async def _stage(self) -> None:
        job = self._job()
        if job.input is not UNSET:
            size = job.input.bytes
            await self._with_owner(lambda client: client.send_input(self.file.id, size))
        self._mark_log(await self._desk.baggage.log_size(self.file.id))
        self._change(state="running")

    async def _follow(self) -> None:
        """The log of this attempt, behind that of the attempts before."""

        async def follow(client: LeaseClient) -> None:
            have = await self._desk.baggage.log_size(self.file.id) - self._log_mark()
            outcome = await client.follow_log(
                self.file.id, offset=have, shift=self._shift_log, bytes_max=self._log_bytes()
            )
            self._check_outcome(outcome)
            self._change(state="fetching", outcome=outcome, why="")

        failed: P2PError | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._stop_when_cancelled)
            try:
                await self._with_owner(follow)
            except P2PError as error:
                failed = error  # out here, so that the nursery does not wrap it
            nursery.cancel_scope.cancel()
        if failed is not None:
            raise failed

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
        lease = self._leased()
        if sealed.signer != lease.owner or sealed.body.lease != lease.id:
            raise PeerFault("outcome.signer")
        output = sealed.body.output
        if output is not UNSET and output.bytes > self._job().limits.output_bytes:
            raise PeerFault("outcome.output", f"{output.bytes} bytes")
        return sealed.body

    def _job(self) -> Job:
        return decode(self.file.job, Job, size_max=JOB_BYTES_MAX)

    def _log_bytes(self) -> int:
        """How much we keep of the log, over all attempts; the lines of ours come on top."""
        return self._job().limits.log_bytes + OWN_LINES_BYTES

    async def _stop_when_cancelled(self) -> None:
        await self.cancelled.wait()
        while True:
            try:
                await self._desk.stop(self._peer(), self._leased().id)
            except (Unavailable, PeerFault):
                await trio.sleep(RETRY_PEER_S)
            else:
                return

    async def _fetch(self) -> None:
        outcome = self._outcome()
        if outcome.output is not UNSET:
            wanted = outcome.output
            await self._with_owner(lambda client: client.fetch_output(self.file.id, wanted.bytes))
            await self._desk.baggage.check_output(self.file.id, wanted)
        self._change(state="settling")

    async def _settle(self) -> None:
        """A receipt is wanted, but an owner that denies it does not hold up the job."""
        outcome, lease = self._outcome(), self._leased()
        try:
            with trio.fail_after(SETTLE_S):
                receipt = await self._settled(lease)
            self._desk.cabinet.put(f"jobs/{self.file.id}/receipt", receipt)
        except (PeerFault, trio.TooSlowError) as error:
            why = str(error) or self.file.why or "too slow"
            log.warning("lease not settled", extra={"job": self.file.id, "why": why})
        if outcome.cause in {"engine", "stopped"} and not self.cancelled.is_set():
            await self._move(f"the owner ended it: {outcome.cause}: {outcome.enforced}")
        elif outcome.cause == "exit":
            self._end("done", "")
        else:
            self._end("failed", "cancelled" if self.cancelled.is_set() else outcome.cause)

    async def _settled(self, lease: Lease) -> bytes:
        """The receipt; asked for again while the owner is out of reach."""
        while True:
            try:
                return await self._desk.settle(self._peer(), lease, self._sealed_outcome())
            except Unavailable as error:
                self._change(why=str(error))
                await trio.sleep(RETRY_PEER_S)

    async def _leave(self, fault: PeerFault) -> None:
        """An owner that broke a rule would break it again: go elsewhere."""
        taking = self.file.taking
        if self.file.lease is not UNSET:
            await self._move(str(fault))
        elif taking is not UNSET:
            self._desk.failed(taking.owner)
            avoid = (*self.file.avoid, taking.owner)
            self._change(taking=UNSET, avoid=avoid, why=str(fault))
        else:
            self._change(why=str(fault))
            await trio.sleep(RETRY_PEER_S)

    async def _move(self, why: str) -> None:
        """Give up this lease and look for another owner."""
        file, lease = self.file, self._leased()
        # Before another lease is paid for: this owner may come back, and go on metering.
        self._desk.cabinet.put(f"left/{lease.id.hex()}", b"")
        self._desk.failed(lease.owner)
        if file.attempt > file.moves_max or self.cancelled.is_set():
            self._end("failed", why)
            return
        log.warning("job moves", extra={"job": file.id, "why": why, "from": lease.owner.hex()})
        await self._desk.baggage.drop_output(file.id)
        await self._desk.baggage.append_log(file.id, MOVED, bytes_max=self._log_bytes())
        self._change(
            state="matching",
            why=why,
            attempt=file.attempt + 1,
            give_up_ms=Millis(self._desk.clock.now() + file.patience_ms),
            avoid=(*file.avoid, lease.owner),
            taking=UNSET,
            lease=UNSET,
            outcome=UNSET,
            paid_micro=Micros(file.paid_micro + self._desk.owed(lease.id)),
        )

    async def _with_owner(self, talk: Callable[[LeaseClient], Awaitable[None]]) -> None:
        """Talk with the lease's owner, again after each loss of the connection.

        Raises LostOwner when it has not been reached for `lost_after_s`, or at the lease's end.
        """
        client = LeaseClient(
            peer=self._peer(),
            lease=self._leased().id,
            open_stream=self._desk.open_stream,
            baggage=self._desk.baggage,
        )
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
                self._change(why=str(error))
                await trio.sleep(RETRY_PEER_S)
            else:
                return

    def _leased(self) -> Lease:
        assert self.file.lease is not UNSET
        lease = self._desk.lease(self.file.lease)
        if lease is None:
            raise LocalFault("the ledger has lost a lease of ours", "p2pnode ledger verify")
        return lease

    def _peer(self) -> PeerId:
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
        self._change(state=state, why=why)

    def _change(self, **changes: object) -> None:
        """Durable, then true, then told."""
        file = msgspec.structs.replace(self.file, **changes)
        if file == self.file:
            return
        save(self._desk.cabinet, file)
        self.file = file
        self.changed.set()
        self.changed = trio.Event()
