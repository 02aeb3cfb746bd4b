"""What a lease promised beside what was delivered. SPEC.md section 10.5. Pure."""

from dataclasses import dataclass
from typing import Final

from msgspec import UNSET

from protocol.lease import LeaseRequest, remedy_of
from protocol.tick import Cause, Outcome
from protocol.units import Micros, MillisSpan

HOST_FAULTS: Final[tuple[Cause, ...]] = ("engine",)
"""After these the owner owes the remedy that it named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """How far a lease was what it had promised to be."""

    start_delay_ms: MillisSpan | None
    """By how much later than agreed the job began, as the owner says; None: it did not begin."""
    availability_ppm: int
    """Part of the leased time that was used: until the job's end, or all if its host failed it."""
    remedy_micro: Micros
    """What the owner lets off, by its own word on how the job ended."""


def delivered(request: LeaseRequest, outcome: Outcome, used_ms: int) -> Delivered:
    """What came of the promise; `used_ms` is what both have signed for, in GPU-milliseconds."""
    is_failed = outcome.cause in HOST_FAULTS
    until = request.end_ms if is_failed else min(outcome.ended_ms, request.end_ms)
    promised = max(0, until - request.start_ms) * len(request.units)
    delay = None
    if outcome.started_ms is not UNSET:
        delay = MillisSpan(max(0, outcome.started_ms - request.start_ms))
    return Delivered(
        start_delay_ms=delay,
        availability_ppm=min(1_000_000, used_ms * 1_000_000 // promised) if promised else 0,
        remedy_micro=remedy_of(request) if is_failed else Micros(0),
    )
