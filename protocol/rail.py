"""What a payment rail signs: that it holds, has paid out or has given back. SPEC.md section 15."""

from typing import Literal

from msgspec import UNSET, UnsetType

from protocol.codec import CurrencyCode, Extensions, Hash, Instant, Key, Money, Name, Wire
from protocol.errors import PeerFault

Act = Literal["hold", "capture", "void"]


class RailReceipt(Wire, frozen=True, kw_only=True):
    """One act of a rail, sealed by the rail's key."""

    v: Literal[1] = 1
    rail: Name
    act: Act
    lease: Hash
    """Id of the GRANT."""
    payer: Key
    payee: Key
    amount_micro: Money
    """Held, paid out or given back by this act."""
    money: CurrencyCode
    hold: Hash | UnsetType = UNSET
    """Digest of the sealed hold that a capture or void ends, domain "rail"."""
    issued_ms: Instant
    expires_ms: Instant
    """When a hold ends by itself."""
    simulated: Literal["yes"] | UnsetType = UNSET
    """Present: no money moves."""
    x: Extensions = UNSET


def check_rail_receipt(receipt: RailReceipt) -> None:
    """What can be judged of a receipt alone.

    Raises PeerFault `rail.hold` (a hold that ends another, or an act that ends none), `rail.span`
    or `rail.parties`.
    """
    if (receipt.act == "hold") != (receipt.hold is UNSET):
        raise PeerFault("rail.hold")
    if receipt.expires_ms <= receipt.issued_ms:
        raise PeerFault("rail.span", "over when it is issued")
    if receipt.payer == receipt.payee:
        raise PeerFault("rail.parties", "pays itself")
