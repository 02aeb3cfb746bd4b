"""The one table of sealed messages, and the two doors through which they pass. SPEC.md section 7.

Bytes from a peer are judged in this order: size, seal, shape, rule. The first three happen in
`unpack`; the rules are with each noun (`check_advert` and its like).
"""

from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeVar

from protocol.advert import Advert
from protocol.auction import Bid, BidCommit, BidReveal, Refusal, Rfq
from protocol.codec import Key, Name, Seal, Wire, decode, encode
from protocol.errors import PeerFault
from protocol.lease import LeaseRequest
from protocol.limits import (
    ADVERT_BYTES_MAX,
    OUTCOME_BYTES_MAX,
    PAYMENT_BYTES_MAX,
    QUOTE_BYTES_MAX,
    RAIL_RECEIPT_BYTES_MAX,
    REFUSAL_BYTES_MAX,
    REVEAL_BYTES_MAX,
    SEAL_BYTES,
    TICK_BYTES_MAX,
)
from protocol.payment import PaymentReference
from protocol.rail import RailReceipt
from protocol.signing import Signer, digest, is_signed
from protocol.tick import Outcome, Saved, Tick
from protocol.units import Digest, NetId, PublicKey

KINDS: Final[dict[type[Wire], tuple[str, int]]] = {
    Advert: ("advert", ADVERT_BYTES_MAX),
    Rfq: ("rfq", QUOTE_BYTES_MAX),
    Bid: ("bid", QUOTE_BYTES_MAX),
    BidCommit: ("bid-commit", QUOTE_BYTES_MAX),
    BidReveal: ("bid-reveal", REVEAL_BYTES_MAX),
    Refusal: ("refusal", REFUSAL_BYTES_MAX),
    LeaseRequest: ("lease-request", QUOTE_BYTES_MAX),
    Tick: ("tick", TICK_BYTES_MAX),
    Outcome: ("outcome", OUTCOME_BYTES_MAX),
    Saved: ("saved", TICK_BYTES_MAX),
    PaymentReference: ("payment", PAYMENT_BYTES_MAX),
    RailReceipt: ("rail", RAIL_RECEIPT_BYTES_MAX),
}
"""Shape of a body -> (its kind, the most bytes it may have)."""

M = TypeVar("M", bound=Wire)


class Envelope(Wire, frozen=True, kw_only=True):
    """A sealed body: `s` is the signature of feed key `k` over `b` in domain `t`."""

    v: Literal[1] = 1
    t: Name
    k: Key
    s: Seal
    b: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed(Generic[M]):
    """A message whose seal has been verified, who sealed it, and the digest that names it."""

    signer: PublicKey
    body: M
    digest: Digest


def pack(body: Wire, *, signer: Signer, net: NetId) -> bytes:
    """The sealed message, ready for any transport."""
    kind, _ = KINDS[type(body)]
    raw = encode(body)
    return encode(Envelope(t=kind, k=signer.public, s=signer.sign(kind, net, raw), b=raw))


def unpack(raw: bytes, net: NetId, shape: type[M]) -> Sealed[M]:
    """The message of this shape in these bytes, its seal verified.

    Raises PeerFault `codec.*`, `seal.kind` (another kind than is wanted here) or `seal.bad` (which
    is also what a message of another network gives). Whether the key is a sound point is asked
    where it is first seen, which is in a certificate.
    """
    kind, size_max = KINDS[shape]
    envelope = decode(raw, Envelope, size_max=size_max + SEAL_BYTES)
    if envelope.t != kind:
        raise PeerFault("seal.kind", envelope.t)
    if not is_signed(envelope.k, kind, net, envelope.b, by=envelope.s):
        raise PeerFault("seal.bad")
    return Sealed(
        signer=envelope.k,
        body=decode(envelope.b, shape, size_max=size_max),
        digest=digest(kind, envelope.b),
    )
