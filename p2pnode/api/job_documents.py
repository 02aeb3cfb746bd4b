"""What the node tells and takes about jobs and leases, as JSON. See `documents`."""

from typing import Literal

from msgspec import Struct

from p2pnode.config import PrimaryUse
from protocol.advert import Tier


class OutcomeDocument(Struct, frozen=True, kw_only=True):
    """How a job ended, as its owner signed it."""

    cause: str
    exit_code: int | None
    signal: int | None
    started_ms: int | None
    ended_ms: int
    output_sha256: str | None
    output_bytes: int
    engine: str
    isolation: str
    enforced: str
    detail: str
    """Why it ended so, in its owner's words."""
    vram_peak_mib: int | None
    """The most that was seen in use on one of its GPUs; null where that is not measured."""
    gpu: Literal["nvml", "simulated"]


class PrimaryDocument(Struct, frozen=True, kw_only=True):
    """A job on its renter's own primary."""

    use: PrimaryUse
    phase: str
    why: str
    """For which it left, or what it waits for."""
    exit_code: int | None


class VramDocument(Struct, frozen=True, kw_only=True):
    """Memory of each GPU: what was planned and what was measured."""

    asked_mib: int
    """That a GPU must have."""
    planned_mib: int
    """That the job may use of it: what its model needs, or all that was asked for."""
    peak_mib: int | None
    """The most that it was seen to use of one; null where that is not known, or not yet."""
    is_over: bool
    """It used more than was planned."""


class JobDocument(Struct, frozen=True, kw_only=True):
    """One job of this renter."""

    schema: str = "p2pnode.job/1"
    id: str
    state: str
    why: str
    created_ms: int
    argv: tuple[str, ...]
    attempt: int
    preemptions: int
    """How often an owner took its units back."""
    tier: Tier
    saved_bytes: int | None
    """Of the last checkpoint that is here."""
    owner: str | None
    """Peer id of the lease's owner."""
    lease: str | None
    micro_per_gpu_hour: int | None
    lease_money: str | None
    """What that price is in."""
    remedy_micro: int
    """What the owner lets off if its host fails the job; 0 where the lease names nothing."""
    money: str
    """Of the limits and the cost."""
    cost_micro: int
    """Co-signed so far, over all attempts."""
    outcome: OutcomeDocument | None
    vram: VramDocument
    log_bytes: int
    """That it ever had; the order says how many of them are kept."""
    log_path: str
    """A directory of files, in order of their names."""
    output_path: str
    has_receipt: bool
    primary: PrimaryDocument | None
    """Null where only the market is asked."""


class JobListDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode job list`."""

    schema: str = "p2pnode.job.list/1"
    items: tuple[JobDocument, ...]
    left_out: int


class FetchOrder(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Unpack the output there: an empty or missing directory on the node's host."""

    folder: str


class ReceiptDocument(Struct, frozen=True, kw_only=True):
    """What a receipt proves, and the receipt itself in hex."""

    schema: str = "p2pnode.receipt/1"
    lease: str
    owner: str
    renter: str
    used_ms: int
    amount_micro: int
    money: str
    is_settled: bool
    outcome: OutcomeDocument
    hex: str


class ReceiptCheck(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A receipt to be checked."""

    hex: str


class LeaseDocument(Struct, frozen=True, kw_only=True):
    """A lease of ours, given or taken."""

    id: str
    side: Literal["owner", "renter"]
    peer_feed: str
    units: int
    start_ms: int
    end_ms: int
    micro_per_gpu_hour: int
    money: str
    tier: str
    remedy_micro: int
    """What its owner lets off if its host fails the job."""
    is_accepted: bool
    reason: str | None


class YieldOrder(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Take units back from bronze leases, with more notice than was agreed or none."""

    grace_ms: int = 0
    why: str = "the owner wants its GPU"


class YieldedDocument(Struct, frozen=True, kw_only=True):
    """A lease of ours, and when its units are free."""

    lease: str
    tier: Tier
    units: tuple[str, ...]
    free_ms: int
    is_taken_back: bool
    """Else it runs its time, because its tier is never broken or it ends before anyway."""


class YieldDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode lease stop --yield` and `gpu reclaim`."""

    schema: str = "p2pnode.lease.yield/1"
    items: tuple[YieldedDocument, ...]


class LeaseListDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode lease list`."""

    schema: str = "p2pnode.lease.list/1"
    items: tuple[LeaseDocument, ...]
