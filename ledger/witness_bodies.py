"""What witnesses sign: that they saw a turn granted, and how a lease fared. SPEC.md section 3."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Final, Literal

from msgspec import Meta, field

from ledger.limits import COSIGNS_MAX
from protocol.codec import Hash, Id16, Instant, Key, Seal, UInt, Wire, decode, encode
from protocol.lease import UnitTurn
from protocol.limits import COSIGN_BYTES_MAX, LEASE_UNITS_MAX, WITNESSES_MAX
from protocol.signing import Signer, is_signed
from protocol.units import Digest, Millis, NetId, PublicKey, Signature

COSIGN_LOG: Final = 40
PROBE: Final = 41

COSIGN_DOMAIN: Final = "cosign"
"""Domain of a witness's signature over an encoded Cosign."""

Verdict = Literal["ok", "fail"]


class Cosign(Wire, frozen=True, array_like=True):
    """This GRANT is the only one that the witness has seen, and will sign, for this turn."""

    owner: Key
    unit: Id16
    ctr: UInt
    grant: Hash
    at_ms: Instant


class CosignLog(Wire, frozen=True, kw_only=True):
    """A witness's own list of what it has cosigned."""

    items: Annotated[tuple[Cosign, ...], Meta(min_length=1, max_length=COSIGNS_MAX)] = field(
        name="0"
    )


class CosignedTurn(Wire, frozen=True, array_like=True):
    """A turn of a GRANT that witnesses have cosigned."""

    unit: Id16
    ctr: UInt


class Cosigning(Wire, frozen=True, array_like=True):
    """What one witness has signed, all at one instant."""

    witness: Key
    at_ms: Instant
    by: Annotated[tuple[Seal, ...], Meta(min_length=1, max_length=LEASE_UNITS_MAX)]
    """One signature for each turn, in their order."""


class Cosigned(Wire, frozen=True, array_like=True):
    """The cosignatures of one GRANT, with what they were made over."""

    owner: Key
    turns: Annotated[tuple[CosignedTurn, ...], Meta(min_length=1, max_length=LEASE_UNITS_MAX)]
    by: Annotated[tuple[Cosigning, ...], Meta(min_length=1, max_length=WITNESSES_MAX)]
    """In the order of the witnesses."""


class Probe(Wire, frozen=True, kw_only=True):
    """What a witness found when it asked for a lease's job in one period. Attested, not proved."""

    lease: Hash = field(name="0")
    period: UInt = field(name="1")
    """Counted from the lease's start in steps of its `period_ms`."""
    verdict: Verdict = field(name="2")


def sign_cosign(said: Cosign, *, signer: Signer, net: NetId) -> Signature:
    """The witness's signature. What it says must be durable before this leaves the witness."""
    return signer.sign(COSIGN_DOMAIN, net, encode(said))


def read_cosign(raw: bytes) -> Cosign:
    """What was signed. Raises PeerFault `codec.*`."""
    return decode(raw, Cosign, size_max=COSIGN_BYTES_MAX)


def turns_to_cosign(
    owner: PublicKey, turns: Iterable[UnitTurn | CosignedTurn], grant: Digest, at_ms: Millis
) -> tuple[Cosign, ...]:
    """What a witness signs for a GRANT: one item for each of its turns, in their order."""
    return tuple(Cosign(owner, turn.unit, turn.ctr, grant, at_ms) for turn in turns)


def cosigns_in(cosigned: Cosigned, grant: Digest) -> Iterator[tuple[PublicKey, Cosign, Signature]]:
    """Each witness, item and signature of the GRANT with this id; not verified."""
    for each in cosigned.by:
        items = turns_to_cosign(cosigned.owner, cosigned.turns, grant, each.at_ms)
        for said, by in zip(items, each.by, strict=False):
            yield each.witness, said, by


def is_cosigned(each: Cosigning, items: tuple[Cosign, ...], net: NetId) -> bool:
    """Whether the witness has signed all of these."""
    return len(items) == len(each.by) and all(
        is_signed(each.witness, COSIGN_DOMAIN, net, encode(said), by=by)
        for said, by in zip(items, each.by, strict=True)
    )


def witnesses_of(
    cosigned: Cosigned,
    *,
    owner: PublicKey,
    turns: Iterable[UnitTurn],
    named: tuple[PublicKey, ...],
) -> tuple[PublicKey, ...]:
    """Those of the named witnesses who have cosigned all turns of this owner's GRANT, in order.

    The signatures were verified where the ACCEPT was taken; others' count nothing.
    """
    asked = tuple((turn.unit, turn.ctr) for turn in turns)
    signed = tuple((turn.unit, turn.ctr) for turn in cosigned.turns)
    if (owner, asked) != (cosigned.owner, signed):
        return ()
    return tuple(each.witness for each in cosigned.by if each.witness in named)
