"""What owners say of their GPUs, how it is challenged, what they answer. SPEC.md section 3."""

from typing import Annotated, Final, Literal

from msgspec import Meta, field

from ledger.limits import CAPACITY_UNITS_MAX, CLAIM_SIZE_MAX, RESPONSE_ROWS_MAX
from protocol.codec import Hash, Id16, Name, Span, UInt, Wire

CAPACITY: Final = 2
CLAIM: Final = 30
CHALLENGE: Final = 31
RESPONSE: Final = 32

ROWS_WORK: Final = "rows-1"
"""The work of `ledger.row_work`, the only one that evidence recomputes."""

Size = Annotated[int, Meta(ge=1, le=CLAIM_SIZE_MAX)]


class CapacityUnit(Wire, frozen=True, array_like=True):
    """One GPU or slice that its owner says it has."""

    unit: Id16
    fingerprint: Hash
    """Commitment to what the device calls itself: equal for one device, unreadable."""
    model: Name
    vram_mib: UInt


class Capacity(Wire, frozen=True, kw_only=True):
    """The owner names its units."""

    units: Annotated[
        tuple[CapacityUnit, ...], Meta(min_length=1, max_length=CAPACITY_UNITS_MAX)
    ] = field(name="0")
    gpu: Literal["nvml", "simulated"] = field(name="1")


class Claim(Wire, frozen=True, kw_only=True):
    """The owner says what work a unit of its does, and how fast."""

    unit: Id16 = field(name="0")
    work: Name = field(name="1")
    size: Size = field(name="2")
    time_ms: Span = field(name="3")
    """Within which an answer comes; lateness is attested by challengers, never proved."""


class Challenge(Wire, frozen=True, kw_only=True):
    """Somebody asks for the work of a claim on a seed of its own."""

    claim: Hash = field(name="0")
    seed: Hash = field(name="1")


class RowAnswer(Wire, frozen=True, array_like=True):
    """One row of the product, by its digest."""

    row: UInt
    digest: Hash


class Response(Wire, frozen=True, kw_only=True):
    """The owner's answer. It repeats the seed, so that it is judged with its claim alone."""

    claim: Hash = field(name="0")
    challenge: Hash = field(name="1")
    seed: Hash = field(name="2")
    rows: Annotated[tuple[RowAnswer, ...], Meta(min_length=1, max_length=RESPONSE_ROWS_MAX)] = (
        field(name="3")
    )
