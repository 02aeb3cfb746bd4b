"""What renter and owner say on a stream about one lease. SPEC.md section 14.

The renter opens the stream and says what it wants; inputs flow to the owner, logs and outputs to
the renter. Every transfer goes on from an offset, so that a broken one loses nothing.
"""

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, UnsetType

from protocol.codec import Hash, Instant, Name, Seal, UInt, Wire
from protocol.limits import (
    INT_MAX,
    OUTCOME_BYTES_MAX,
    PART_BYTES_MAX,
    SEAL_BYTES,
    TICK_BYTES_MAX,
)

Want = Literal["input", "resume", "log", "output", "checkpoint"]
"""`input`, `resume`: what the job starts with, and what it saved elsewhere; the renter sends.
`log`, `output`, `checkpoint`: what it writes, leaves and saves; the owner sends."""
SENT: Final[tuple[Want, ...]] = ("input", "resume")


class Open(Wire, frozen=True, kw_only=True):
    """The renter's first frame."""

    v: Literal[1] = 1
    lease: Hash
    want: Want
    offset: UInt
    """From where on; 0 for what the renter sends, of which the owner knows what it has.

    A checkpoint from 0 on is the newest one, from elsewhere on the one that was sent last.
    """

    def __post_init__(self) -> None:
        if self.want in SENT and self.offset:
            raise ValueError("an input goes on from where the owner says")


SealedOutcome = Annotated[bytes, Meta(max_length=OUTCOME_BYTES_MAX + SEAL_BYTES)]
SealedSaved = Annotated[bytes, Meta(max_length=TICK_BYTES_MAX + SEAL_BYTES)]


class Part(Wire, frozen=True, kw_only=True):
    """Every further frame: a piece, or its end, or a refusal; or, with none of them, a count."""

    offset: UInt
    """Of a piece, where it begins; of a count, how much the owner has of the input; of an outcome,
    where the transfer ended; of a rule, 0."""
    b: Annotated[bytes, Meta(min_length=1, max_length=PART_BYTES_MAX)] | UnsetType = UNSET
    outcome: SealedOutcome | UnsetType = UNSET
    """The owner has no more to send: this is how the job ended."""
    saved: SealedSaved | UnsetType = UNSET
    """The checkpoint whose pieces follow."""
    rule: Name | UnsetType = UNSET
    """The owner refuses, or the transfer broke a rule."""

    def __post_init__(self) -> None:
        fields = (self.b, self.outcome, self.saved, self.rule)
        if sum(each is not UNSET for each in fields) > 1:
            raise ValueError("a piece, an outcome, a checkpoint or a rule")
        if self.b is not UNSET and self.offset + len(self.b) > INT_MAX:
            raise ValueError("ends beyond any file")
        if self.rule is not UNSET and self.offset:
            raise ValueError("a rule has no place")


class CosignAsk(Wire, frozen=True, kw_only=True):
    """The question `tick`, from owner to renter: co-sign this."""

    tick: Annotated[bytes, Meta(max_length=TICK_BYTES_MAX + SEAL_BYTES)]


class Cosigned(Wire, frozen=True, kw_only=True):
    """The renter's signature over the body of the tick, domain "tick-cosign"."""

    by: Seal


class Settle(Wire, frozen=True, kw_only=True):
    """The question `lease.settle`, from renter to owner: I have all I want, release the units."""

    lease: Hash
    at_ms: Instant
    consent: Seal
    """Over `consent_bytes` of the ledger, domain "release-consent"."""
    cosign: Seal | UnsetType = UNSET
    """Of the last tick, which the owner gave by `lease.tick`."""


class Kept(Wire, frozen=True, kw_only=True):
    """The question `lease.kept`, from renter to owner: I have this checkpoint, whole."""

    lease: Hash
    saved: Hash
    """Digest of the sealed message, domain "saved"."""


class LeaseName(Wire, frozen=True, kw_only=True):
    """The questions `lease.stop` (end the job now) and `lease.tick` (which is the last tick?)."""

    lease: Hash
