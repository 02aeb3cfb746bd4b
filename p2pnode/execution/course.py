"""What a worker reads off its lease and its job. Pure."""

from collections.abc import Callable
from typing import Final

from msgspec import UNSET

from ledger.fold import Lease
from p2pnode.execution.engine import Ending, Run, RunId
from p2pnode.execution.workspace import Parcel
from protocol.job import Input, Job
from protocol.units import Digest, Millis, MillisSpan

KEPT_MS: Final = MillisSpan(3_600_000)
"""A renter who was away finds log and output this long after its lease."""


def parcels_of(job: Job) -> dict[Parcel, Input | None]:
    """What the job starts with."""
    return {
        "input": None if job.input is UNSET else job.input,
        "resume": None if job.checkpoint is UNSET else job.checkpoint,
    }


def lapse_ms(lease: Lease) -> Millis:
    """Until when the units are held for a renter that does not come."""
    request = lease.request
    return Millis(min(request.start_ms + request.lapse_ms, request.end_ms))


def kept_until_ms(lease: Lease) -> Millis:
    """Until when the renter finds what its job left, also where the units are free before."""
    is_shorter = lease.reason == "preempted" or not lease.is_accepted
    return Millis((lease.ended_ms if is_shorter else lease.request.end_ms) + KEPT_MS)


def root_of(lease: Lease, state_of: Callable[[Digest], Lease | None]) -> Digest:
    """The lease in which the run of this one began: itself, or the first that was renewed."""
    before: Lease | None = lease
    while before is not None and before.request.renews is not UNSET:
        lease, before = before, state_of(Digest(before.request.renews))
    return lease.id if before is None else before.id


def run_of(job: Job, lease: Lease, run_id: RunId, device_of: Callable[[bytes], str]) -> Run:
    """What the engine is to run."""
    units = tuple(each.unit for each in lease.request.units)
    return Run(
        id=run_id,
        argv=job.argv,
        variables=job.variables,
        image=None if job.image is UNSET else job.image,
        units=units,
        devices=tuple(device for device in map(device_of, units) if device),
        limits=job.limits,
    )


def is_cut(ending: Ending) -> bool:
    """Whether a job that was told to save did not end well by itself."""
    by_itself = ending.cause == "exit" and ending.exit_code == 0
    return not by_itself and ending.cause in {"stopped", "signal", "exit"}
