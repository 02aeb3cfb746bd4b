"""How an owner wants to be paid by one renter: its own signed word. SPEC.md section 16."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta

from protocol.codec import CurrencyCode, Extensions, Instant, Key, Name, Wire, encode_plain
from protocol.limits import PAYOUT_CHARACTERS_MAX
from protocol.signing import digest
from protocol.units import PublicKey

Payout = Annotated[str, Meta(min_length=1, max_length=PAYOUT_CHARACTERS_MAX, pattern=r"\A[ -~]+\Z")]
"""Printable ASCII on one line, for people."""


class PaymentAsk(Wire, frozen=True, kw_only=True):
    """The question `payment.reference`: how money of this kind is to reach the owner."""

    money: CurrencyCode


class PaymentReference(Wire, frozen=True, kw_only=True):
    """An owner tells one renter where to pay, and under which reference it will be looked for."""

    v: Literal[1] = 1
    renter: Key
    money: CurrencyCode
    payout: Payout
    reference: Name
    """`reference_of` the account."""
    issued_ms: Instant
    x: Extensions = UNSET


def reference_of(owner: PublicKey, renter: PublicKey, money: str) -> str:
    """Names an account in a bank transfer: ten hex digits that both can work out."""
    name = digest("payment-reference", encode_plain([owner, renter, money]))[:5].hex().upper()
    return f"P2P-{name[:5]}-{name[5:]}"
