"""Jobs, leases and receipts of a running node, as API documents."""

from pathlib import Path
from typing import Final

import trio
from msgspec import UNSET
from msgspec.structs import replace

from ledger.fold import Lease
from ledger.limits import RECEIPT_BYTES_MAX
from ledger.receipt import Proven, check_receipt
from p2pnode.api.auction_documents import AuctionDocument
from p2pnode.api.job_documents import (
    JobDocument,
    JobListDocument,
    LeaseDocument,
    LeaseListDocument,
    OutcomeDocument,
    PrimaryDocument,
    ReceiptDocument,
    VramDocument,
    YieldDocument,
    YieldOrder,
)
from p2pnode.api.wanted_documents import JobOrder
from p2pnode.auction_check import auction_document
from p2pnode.config import Renting
from p2pnode.execution.archive import Packed, pack, unpack
from p2pnode.execution.run_log import end_of
from p2pnode.jobs.baggage import FileBaggage
from p2pnode.jobs.jobfile import AtPrimary, Fallback, JobFile
from p2pnode.jobs.jobs import NO_NOTICE, Submission
from p2pnode.network.peer_text import peer_text
from p2pnode.node import Node
from p2pnode.receipt_check import outcome_document
from p2pnode.reclaiming import reclaim
from p2pnode.reputation_views import feed_named
from p2pnode.wanted import choice_of, need_of
from protocol.codec import decode
from protocol.errors import LocalFault, PeerFault
from protocol.job import Input, Job, JobLimits
from protocol.lease import remedy_of
from protocol.limits import JOB_BYTES_MAX, WITNESSES_MAX
from protocol.tick import Outcome
from protocol.units import Micros, Millis, MillisSpan, PublicKey
from protocol.wire import unpack as unpack_message

INPUT_BYTES_MAX: Final = 64 * 2**30
PATIENCE_MS, PATIENCE_BRONZE_MS = MillisSpan(30_000), MillisSpan(600_000)
NOTICE_MS: Final = MillisSpan(30_000)
"""What a bronze job gets that asks for no other: time to write some gigabytes."""
CHECKPOINT_MS: Final = MillisSpan(60_000)
"""What a bronze job may lose that asks for nothing else."""
CHECKPOINT_MS_MIN: Final = 1_000
PREEMPTIONS_MAX: Final = 64
_FILES: Final = trio.CapacityLimiter(2)


class JobViews:
    """What the API does with jobs; `baggage` tells where their files are."""

    def __init__(self, node: Node, baggage: FileBaggage) -> None:
        self._node = node
        self._baggage = baggage

    async def submit(self, order: JobOrder) -> JobDocument:
        """Pack the input, take the job. Raises LocalFault."""
        job = self._node.jobs.new_id()
        witnesses = witnesses_of(self._node, order, self._node.config.renting)
        order = replace(order, primary=order.primary or self._node.config.primary.use)
        # What never leaves the primary is taken from where it lies.
        is_packed = order.primary != "only"
        archive = await input_of(self._baggage, job, order) if is_packed else None
        renting = self._node.config.renting
        file = self._node.jobs.submit(
            submission_of(job, order, archive, witnesses, renting=renting)
        )
        return self._document(file)

    def list_jobs(self, limit: int) -> JobListDocument:
        """The newest jobs."""
        files = self._node.jobs.files()
        return JobListDocument(
            items=tuple(self._document(file) for file in files[:limit]),
            left_out=max(0, len(files) - limit),
        )

    def show(self, name: str) -> JobDocument:
        """One job, by id or unique prefix. Raises LocalFault."""
        return self._document(self._node.jobs.driver(name).file)

    def cancel(self, name: str) -> JobDocument:
        """End a job; it is over when its state says so. Raises LocalFault."""
        driver = self._node.jobs.driver(name)
        driver.cancel()
        return self._document(driver.file)

    async def read_log(self, name: str, offset: int, size_max: int) -> tuple[int, bytes]:
        """A piece of the job's log and its offset, above the one asked for if that is not kept.

        Raises LocalFault.
        """
        job = self._node.jobs.driver(name).file.id
        return await self._baggage.read_log(job, offset=offset, size_max=size_max)

    async def fetch(self, name: str, folder: str) -> JobDocument:
        """Unpack the job's output. Raises LocalFault."""
        document = self.show(name)
        if document.outcome is None or document.state not in {"settling", "done", "failed"}:
            raise LocalFault(f"{document.id} has no output yet.", f"p2pnode job wait {document.id}")
        if document.outcome.output_sha256 is None:
            raise LocalFault(f"{document.id} left no output.", "write into $P2PNODE_OUT")
        try:
            await unpack(
                Path(document.output_path), Path(folder), bytes_max=INPUT_BYTES_MAX, files=_FILES
            )
        except PeerFault as fault:
            raise LocalFault(f"The output cannot be unpacked: {fault}.") from fault
        return document

    def receipt(self, name: str) -> ReceiptDocument:
        """The receipt of a job's last lease. Raises LocalFault."""
        file = self._node.jobs.driver(name).file
        raw = self._node.ports.cabinet.get(f"jobs/{file.id}/receipt")
        if raw is None:
            raise LocalFault(f"{file.id} has no receipt.", f"p2pnode job show {file.id}")
        return self.check(raw.hex())

    def check(self, text: str) -> ReceiptDocument:
        """What a receipt proves to this node. Raises LocalFault if it proves nothing."""
        try:
            raw = bytes.fromhex(text[: 2 * RECEIPT_BYTES_MAX + 2])
            return _receipt_document(raw, check_receipt(raw, self._node.net))
        except (ValueError, PeerFault) as error:
            raise LocalFault(f"This receipt does not hold: {error}.") from error

    def auction(self, name: str) -> AuctionDocument:
        """The bids of a job's last auction, and whether the choice was right. Raises LocalFault."""
        return auction_document(self.auction_file(name), self._node.net)

    def auction_file(self, name: str) -> bytes:
        """The record of a job's last auction, for whoever checks it. Raises LocalFault."""
        file = self._node.jobs.driver(name).file
        raw = self._node.ports.cabinet.get(f"jobs/{file.id}/auction-{file.attempt}")
        if raw is None:
            pool = self._node.pools.pool_with(file.id) if file.attempt == 1 else None
            cure = "" if pool is None else f"p2pnode pool bids {pool.id}"
            raise LocalFault(f"{file.id} has had no auction of its own yet.", cure)
        return raw

    def leases(self) -> LeaseListDocument:
        """Leases in which we are one side, newest first."""
        own = self._node.identity.feed.public
        leases = [
            lease
            for lease in self._node.ports.ledger.state.leases()
            if own in {lease.owner, lease.renter}
        ]
        leases.sort(key=lambda lease: (-lease.request.start_ms, lease.id))
        return LeaseListDocument(
            items=tuple(_lease_document(lease, is_owner=lease.owner == own) for lease in leases)
        )

    def take_back(self, name: str | None, order: YieldOrder) -> YieldDocument:
        """Let this bronze lease, or each that runs, yield its units. Raises LocalFault.

        `name` is the beginning of a lease's id.
        """
        return reclaim(self._node, name, order)

    def _document(self, file: JobFile) -> JobDocument:
        job = decode(file.job, Job, size_max=JOB_BYTES_MAX)
        lease = None if file.lease is UNSET else self._node.ports.ledger.lease(file.lease)
        outcome = None
        if file.outcome is not UNSET:
            outcome = outcome_document(unpack_message(file.outcome, self._node.net, Outcome).body)
        log_path = self._baggage.path(file.id, "log")
        return JobDocument(
            id=file.id,
            state=file.state,
            why=file.why,
            created_ms=file.created_ms,
            argv=job.argv,
            attempt=file.attempt,
            preemptions=file.preemptions,
            tier=file.tier,
            saved_bytes=None if file.checkpoint is UNSET else file.checkpoint.bytes,
            owner=None if file.taking is UNSET or lease is None else peer_text(file.taking.peer),
            lease=None if lease is None else lease.id.hex(),
            micro_per_gpu_hour=None if lease is None else lease.request.micro_per_gpu_hour,
            lease_money=None if lease is None else lease.request.money,
            remedy_micro=0 if lease is None else remedy_of(lease.request),
            money=file.money,
            cost_micro=cost_of(self._node, file),
            outcome=outcome,
            vram=vram_document(file, outcome),
            log_bytes=end_of(log_path),
            log_path=str(log_path),
            output_path=str(self._baggage.path(file.id, "output.tar")),
            has_receipt=self._node.ports.cabinet.get(f"jobs/{file.id}/receipt") is not None,
            primary=None if file.primary is UNSET else _primary_document(file.primary),
        )


def cost_of(node: Node, file: JobFile) -> Micros:
    """What has been co-signed for the job so far, in the money of its limits."""
    lease = None if file.lease is UNSET else node.ports.ledger.lease(file.lease)
    if lease is None:
        return file.paid_micro
    return Micros(file.paid_micro + file.worth(node.accounts.owed(lease.id), lease.request.money))


async def input_of(baggage: FileBaggage, job: str, order: JobOrder) -> Input | None:
    """The order's input, packed under the job's name. Raises LocalFault."""
    if order.input_folder is None:
        return None
    path = baggage.path(job, "input.tar")
    await trio.to_thread.run_sync(_make_parent, path, limiter=_FILES)
    packed = await _pack_input(Path(order.input_folder), path)
    return Input(digest=packed.digest, bytes=packed.bytes)


async def _pack_input(folder: Path, archive: Path) -> Packed:
    try:
        return await pack(folder, archive, bytes_max=INPUT_BYTES_MAX, files=_FILES)
    except PeerFault as fault:
        raise LocalFault(
            f"{folder} cannot be packed: {fault.detail}.", "leave it out of the input"
        ) from fault


def witnesses_of(
    node: Node, order: JobOrder, renting: Renting
) -> tuple[tuple[PublicKey, ...], int]:
    """Whom this order wants as witnesses, and how many of them. Raises LocalFault."""
    if order.witnesses:
        named = tuple(_witness_named(node, text) for text in order.witnesses)
        asked = order.quorum
    else:
        named = tuple(PublicKey(bytes.fromhex(text)) for text in renting.witnesses)
        asked = order.quorum or renting.quorum
    quorum = asked or (len(named) // 2 + 1 if named else 0)
    if not named and not quorum:
        return (), 0
    if len(dict.fromkeys(named)) < len(named) or node.identity.feed.public in named:
        raise LocalFault("A witness is named twice, or is this node.", "name others")
    if len(named) > WITNESSES_MAX or not len(named) < 2 * quorum <= 2 * len(named):
        raise LocalFault(
            f"{quorum} of {len(named)} witnesses is not more than half of 1 to {WITNESSES_MAX}.",
            "two quorums must have a witness in common: name more of them, or raise --quorum",
        )
    return named, quorum


def _witness_named(node: Node, text: str) -> PublicKey:
    """A whole feed key is taken as it is: its owner may not have been met yet."""
    if len(text) == 64 and all(each in "0123456789abcdef" for each in text.lower()):
        return PublicKey(bytes.fromhex(text))
    return feed_named(node, text)


def primary_of(order: JobOrder) -> AtPrimary | None:
    """What the renter's own primary has to do with this order."""
    if order.primary is None or order.primary == "never":
        return None
    folder = UNSET if order.input_folder is None else order.input_folder
    return AtPrimary(mode=order.primary, input=folder)


def submission_of(
    job: str,
    order: JobOrder,
    archive: Input | None,
    by: tuple[tuple[PublicKey, ...], int],
    *,
    renting: Renting,
) -> Submission:
    """The order as the job that bears this id; `by`: its witnesses, and how many of them."""
    witnesses, quorum = by
    return Submission(
        id=job,
        argv=order.argv,
        variables=order.variables,
        image=order.image,
        input=archive,
        need=need_of(order, order),
        choice=choice_of(
            order,
            renting,
            order.money,
            worth=(order.delay_micro_per_hour, order.latency_micro_per_ms),
        ),
        tier=order.tier,
        limits=JobLimits(
            time_ms=MillisSpan(order.time_ms),
            memory_mib=order.memory_mib,
            cpus_milli=order.cpus_milli,
            pids=order.pids,
            disk_mib=order.disk_mib,
            log_bytes=order.log_bytes,
            output_bytes=order.output_bytes,
        ),
        money=order.money,
        ask_max=None if order.ask_micro_max is None else Micros(order.ask_micro_max),
        total_max=None if order.total_micro_max is None else Micros(order.total_micro_max),
        patience_ms=_patience_ms(order),
        witnesses=witnesses,
        quorum=quorum,
        notice_ms=_notice_ms(order),
        notice_signal=order.notice_signal,
        checkpoint_ms=_checkpoint_ms(order),
        fallback=_fallback(order),
        lease_ms=None if order.lease_ms is None else MillisSpan(order.lease_ms),
        start_ms=None if order.start_ms is None else Millis(order.start_ms),
        primary=primary_of(order),
    )


def _patience_ms(order: JobOrder) -> MillisSpan:
    """Who takes what may be interrupted waits for a good price, also after a move."""
    usual_ms = PATIENCE_BRONZE_MS if "bronze" in {order.tier, *order.or_tiers} else PATIENCE_MS
    return usual_ms if order.patience_ms is None else MillisSpan(max(0, order.patience_ms))


def _notice_ms(order: JobOrder) -> MillisSpan:
    """The warning that the job asks for."""
    if order.notice_ms is not None:
        return MillisSpan(max(0, order.notice_ms))
    return NOTICE_MS if "bronze" in {order.tier, *order.or_tiers} else NO_NOTICE


def _checkpoint_ms(order: JobOrder) -> MillisSpan | None:
    """How often checkpoints are fetched. Raises LocalFault."""
    if order.checkpoint_ms is None:
        return CHECKPOINT_MS if "bronze" in {order.tier, *order.or_tiers} else None
    if order.checkpoint_ms < CHECKPOINT_MS_MIN:
        raise LocalFault("Checkpoints are fetched once a second at most.", "--checkpoint 30s")
    return MillisSpan(order.checkpoint_ms)


def _fallback(order: JobOrder) -> Fallback | None:
    """Raises LocalFault."""
    if order.after_preemptions is None:
        return None
    if not 1 <= order.after_preemptions <= PREEMPTIONS_MAX or order.then_tier == "bronze":
        raise LocalFault(
            f"1 to {PREEMPTIONS_MAX} interruptions are counted, and then comes a better tier.",
            "--after-preemptions 2 --then silver",
        )
    return Fallback(after=order.after_preemptions, tier=order.then_tier)


def vram_document(file: JobFile, outcome: OutcomeDocument | None) -> VramDocument:
    """What was asked of each GPU's memory, what was to be used of it, and what was."""
    asked, plan = file.need.vram_mib_min, file.choice.plan
    planned = asked if plan is UNSET else plan.model_mib
    peak = None if outcome is None else outcome.vram_peak_mib
    is_over = peak is not None and peak > planned > 1
    return VramDocument(asked_mib=asked, planned_mib=planned, peak_mib=peak, is_over=is_over)


def _primary_document(at: AtPrimary) -> PrimaryDocument:
    code = None if at.exit_code is UNSET else at.exit_code
    return PrimaryDocument(use=at.mode, phase=at.phase, why=at.why, exit_code=code)


def _receipt_document(raw: bytes, proven: Proven) -> ReceiptDocument:
    return ReceiptDocument(
        lease=proven.lease.hex(),
        owner=proven.owner.hex(),
        renter=proven.renter.hex(),
        used_ms=proven.used_ms,
        amount_micro=proven.amount_micro,
        money=proven.request.money,
        is_settled=proven.is_settled,
        outcome=outcome_document(proven.outcome),
        hex=raw.hex(),
    )


def _lease_document(lease: Lease, *, is_owner: bool) -> LeaseDocument:
    return LeaseDocument(
        id=lease.id.hex(),
        side="owner" if is_owner else "renter",
        peer_feed=(lease.renter if is_owner else lease.owner).hex(),
        units=len(lease.request.units),
        start_ms=lease.request.start_ms,
        end_ms=lease.ended_ms,
        micro_per_gpu_hour=lease.request.micro_per_gpu_hour,
        money=lease.request.money,
        tier=lease.request.tier,
        remedy_micro=remedy_of(lease.request),
        is_accepted=lease.is_accepted,
        reason=lease.reason,
    )


def _make_parent(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
