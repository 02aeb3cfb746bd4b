"""Whether this owner runs a stranger's job: what the lease's winner may still be refused for."""

from collections.abc import Callable
from dataclasses import dataclass

from msgspec import UNSET

from p2pnode.gpus import HostFacts
from protocol.advert import Isolation
from protocol.certificate import Certificate
from protocol.genesis import Genesis
from protocol.job import Job
from protocol.lease import LeaseRequest
from protocol.units import PublicKey


def refusal_of(
    job: Job,
    request: LeaseRequest,
    *,
    renter: PublicKey,
    own: PublicKey,
    genesis: Genesis,
    host: HostFacts,
    isolation: Isolation,
) -> str | None:
    """Why we do not run this job, in a sentence; None if we do.

    Plain processes are no isolation: outside test networks they run their owner's own jobs only.
    """
    if isolation == "process" and genesis.kind != "test" and renter != own:
        return "this node runs plain processes, and those only for its owner"
    if isolation != "process" and job.image is UNSET and genesis.kind != "test":
        return "the job names no image; give one by its digest, which is on this node's host"
    is_longer = job.limits.time_ms > request.end_ms - request.start_ms
    if is_longer and job.outlasts is UNSET:
        return "the job may run longer than the lease"
    if job.limits.memory_mib > host.memory_mib:
        return f"the job may use more than our {host.memory_mib} MiB"
    if job.limits.cpus_milli > host.cpus * 1_000:
        return f"the job may use more than our {host.cpus} cores"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """All that this owner asks before it gives a lease that it has bid for."""

    own: PublicKey
    genesis: Genesis
    host: HostFacts
    isolation: Isolation
    credit: Callable[[LeaseRequest, PublicKey], str | None]
    """Why this renter may not owe us so much."""
    screens: Callable[[Job, Certificate], str | None]
    """Why the owner's rules keep this renter's job out."""

    def refusal(self, request: LeaseRequest, job: Job, renter: Certificate) -> str | None:
        """Why not, in a sentence; None if nothing speaks against it."""
        why = self.credit(request, renter.feed) or self.screens(job, renter)
        return why or refusal_of(
            job,
            request,
            renter=renter.feed,
            own=self.own,
            genesis=self.genesis,
            host=self.host,
            isolation=self.isolation,
        )
