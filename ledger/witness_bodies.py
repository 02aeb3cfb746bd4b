"""What witnesses sign: that they saw a turn granted, and how a lease fared. SPEC.md section 3."""

from typing import Annotated, Final, Literal

from msgspec import Meta, field

from ledger.limits import COSIGN_BYTES_MAX, COSIGNS_MAX
from protocol.codec import Hash, Id16, Instant, Key, UInt, Wire, decode, encode
from protocol.signing import Signer
from protocol.units import NetId, Signature

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
