"""What becomes of a job's file when the job leaves its owner. Pure."""

from msgspec import UNSET
from msgspec.structs import replace

from ledger.fold import Lease
from p2pnode.jobs.jobfile import JobFile, Resting
from protocol.codec import decode, encode
from protocol.job import Job
from protocol.limits import JOB_BYTES_MAX
from protocol.units import Micros, Millis

RESTING_MAX = 64


def moved(
    file: JobFile,
    lease: Lease,
    *,
    why: str,
    is_preempted: bool,
    now: Millis,
    owed: Micros,
    nonce: bytes,
) -> JobFile:
    """The file of the job on its way to another owner, with what it saved.

    An owner that failed is not asked again. One that took its units back is, once the lease would
    have ended, and so long the job waits for a match at the least.
    """
    give_up_ms = now + file.patience_ms
    if is_preempted:
        until_ms = Millis(lease.request.end_ms)
        rest = Resting(owner=lease.owner, until_ms=until_ms)
        waiting = [each for each in file.resting if each.until_ms > now]
        resting, avoid = (*waiting[1 - RESTING_MAX :], rest), file.avoid
        give_up_ms = max(give_up_ms, until_ms + file.patience_ms)
    else:
        resting, avoid = file.resting, file.avoiding(lease.owner)
    preemptions = file.preemptions + is_preempted
    fallback = file.fallback
    is_enough = fallback is not UNSET and preemptions >= fallback.after
    return replace(
        file,
        state="matching",
        why=why,
        attempt=file.attempt + 1,
        preemptions=preemptions,
        tier=fallback.tier if fallback is not UNSET and is_enough else file.tier,
        choice=replace(file.choice, or_tiers=()) if is_enough else file.choice,
        give_up_ms=Millis(give_up_ms),
        avoid=avoid,
        resting=resting,
        job=_resumed(file, nonce),
        taking=UNSET,
        renewing=UNSET,
        renewal=UNSET,
        lease=UNSET,
        outcome=UNSET,
        paid_micro=Micros(file.paid_micro + file.worth(owed, lease.request.money)),
    )


def _resumed(file: JobFile, nonce: bytes) -> bytes:
    """The job with what it saved last; with another nonce, so that nobody sees that it is one."""
    if file.checkpoint is UNSET:
        return file.job
    job = decode(file.job, Job, size_max=JOB_BYTES_MAX)
    return encode(replace(job, checkpoint=file.checkpoint, nonce=nonce))


def gone_on(file: JobFile, lease: Lease, owed: Micros) -> JobFile:
    """The file of a job that goes on in its next lease, once `owed` is all of this one."""
    return replace(
        file,
        state="running",
        why="",
        taking=file.renewing,
        lease=file.renewal,
        renewing=UNSET,
        renewal=UNSET,
        outcome=UNSET,
        paid_micro=Micros(file.paid_micro + file.worth(owed, lease.request.money)),
    )
