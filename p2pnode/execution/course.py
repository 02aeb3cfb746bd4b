"""What a worker reads off its lease and its job. Pure."""

from msgspec import UNSET

from ledger.fold import Lease
from p2pnode.execution.workspace import Parcel
from protocol.job import Input, Job
from protocol.units import Millis


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
