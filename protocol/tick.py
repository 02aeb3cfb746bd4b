"""The meter of a lease and how its job ended, each signed by the owner. SPEC.md section 13.

A tick is cumulative and co-signed by the renter: the last one alone says what is owed.
"""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from protocol.advert import Isolation, MibCount
from protocol.codec import Extensions, Hash, Instant, Money, Name, Span, UInt, Wire
from protocol.errors import PeerFault
from protocol.lease import LeaseRequest, charge
from protocol.units import Millis, MillisSpan

COSIGN_DOMAIN = "tick-cosign"
"""Domain of the renter's signature over the body of a tick."""


class Tick(Wire, frozen=True, kw_only=True):
    """What was used and is owed so far."""

    v: Literal[1] = 1
    lease: Hash
    n: UInt
    """Grows by one with each tick of the lease, from 1."""
    used_ms: Span
    """Cumulative GPU-milliseconds: running time times GPUs."""
    amount_micro: Money
    at_ms: Instant
    head_seq: UInt
    """Height of the owner's feed; holds its clock to its feed."""
    x: Extensions = UNSET


class ArchiveName(Wire, frozen=True, kw_only=True):
    """An archive by its content."""

    digest: Hash
    bytes: UInt


class Saved(Wire, frozen=True, kw_only=True):
    """What a job has saved of its work, as its owner packed it. SPEC.md 13.5."""

    v: Literal[1] = 1
    lease: Hash
    used_ms: Span
    """Use of the lease up to when it was saved, as a tick counts it."""
    at_ms: Instant
    """When the job saved it."""
    archive: ArchiveName
    x: Extensions = UNSET


Cause = Literal[
    "exit",
    "signal",
    "memory",
    "time",
    "disk",
    "pids",
    "stopped",
    "preempted",
    "renewed",
    "engine",
]
"""Why a job ended: by itself, by a signal of its own, at a limit, because the owner or the lease
ended it, because the owner took the units back, not at all but in the next lease, or because the
engine or its host failed."""


class Outcome(Wire, frozen=True, kw_only=True):
    """How a job ended and under what it ran, as its owner says."""

    v: Literal[1] = 1
    lease: Hash
    cause: Cause
    exit_code: Annotated[int, Meta(ge=0, le=255)] | UnsetType = UNSET
    signal: Annotated[int, Meta(ge=1, le=64)] | UnsetType = UNSET
    started_ms: Instant | UnsetType = UNSET
    ended_ms: Instant
    output: ArchiveName | UnsetType = UNSET
    engine: Name
    isolation: Isolation
    enforced: Annotated[str, Meta(max_length=500)]
    """What the engine enforced, in words."""
    detail: Annotated[str, Meta(min_length=1, max_length=200)] | UnsetType = UNSET
    """Why it ended so, in words."""
    vram_peak_mib: MibCount | UnsetType = UNSET
    """The most that the owner has seen the job hold of one GPU's memory, where it can see that."""
    gpu: Literal["nvml", "simulated"]
    x: Extensions = UNSET


def check_saved(
    saved: Saved, request: LeaseRequest, *, bytes_max: int, now: Millis, skew: MillisSpan
) -> None:
    """Whether a renter takes this for what its job saved. SPEC.md 13.5.

    Raises PeerFault `saved.size`, `saved.future` or `saved.span`.
    """
    if saved.at_ms > now + skew:
        raise PeerFault("saved.future")
    if not 0 < saved.archive.bytes <= bytes_max:
        raise PeerFault("saved.size", f"{saved.archive.bytes} bytes")
    until = min(saved.at_ms, request.end_ms)
    if saved.used_ms > max(0, until - request.start_ms) * len(request.units):
        raise PeerFault("saved.span", "more than the lease had lasted")


def check_tick(
    tick: Tick,
    request: LeaseRequest,
    *,
    before: Tick | None,
    now: Millis,
    skew: MillisSpan,
    saved_ms: MillisSpan | None = None,
) -> None:
    """Whether a renter may co-sign: it grows, and claims no more than the time there was.

    `before` is the last tick that was co-signed. `saved_ms` is up to where the renter has what the
    job saved, if no more is to be paid. Raises PeerFault `tick.order`, `tick.amount`, `tick.span`,
    `tick.future` or `tick.lost`.
    """
    if tick.n < 1:
        raise PeerFault("tick.order", "ticks count from 1")
    if before is not None and (tick.n <= before.n or tick.used_ms < before.used_ms):
        raise PeerFault("tick.order")
    if tick.amount_micro != charge(tick.used_ms, request.micro_per_gpu_hour):
        raise PeerFault("tick.amount")
    until = min(tick.at_ms, request.end_ms)
    if tick.used_ms > max(0, until - request.start_ms) * len(request.units):
        raise PeerFault("tick.span", "more than the lease has lasted")
    if tick.at_ms > now + skew:
        raise PeerFault("tick.future")
    owed = 0 if before is None else before.used_ms
    if saved_ms is not None and tick.used_ms > max(owed, saved_ms):
        raise PeerFault("tick.lost", "work that the renter does not have")
