"""What a renter asks of the witnesses that it has named. SPEC.md section 17."""

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from protocol.codec import Instant, Seal, Wire
from protocol.limits import COSIGN_BYTES_MAX, LEASE_UNITS_MAX, REPLY_BYTES_MAX

RawGrant = Annotated[bytes, Meta(max_length=REPLY_BYTES_MAX)]


class WitnessAsk(Wire, frozen=True, kw_only=True):
    """The question `witness.cosign`: the GRANT entry that a renter wants to have cosigned."""

    grant: RawGrant


class Cosignatures(Wire, frozen=True, kw_only=True):
    """The witness has signed: one signature for each turn of the GRANT, in their order."""

    at_ms: Instant
    by: Annotated[tuple[Seal, ...], Meta(min_length=1, max_length=LEASE_UNITS_MAX)]


class OtherGrant(Wire, frozen=True, kw_only=True):
    """The witness has signed another GRANT for one of the turns, and signs no second one."""

    item: Annotated[bytes, Meta(max_length=COSIGN_BYTES_MAX)]
    """What it has signed, as in the ledger."""
    by: Seal
    grant: RawGrant | UnsetType = UNSET
    """The other GRANT, if the witness has kept it: with the first it proves the owner's offence."""


class WitnessAnswer(Wire, frozen=True, kw_only=True):
    """The answer: cosignatures, or why there can be none."""

    yes: Cosignatures | UnsetType = UNSET
    no: OtherGrant | UnsetType = UNSET

    def __post_init__(self) -> None:
        if (self.yes is UNSET) == (self.no is UNSET):
            raise ValueError("yes or no")
