"""Holds, captures and voids of a payment rail, told to the ledger by a party. SPEC.md section 3.

The rail is trusted for money and nothing else; its sealed receipt says what it did.
"""

from dataclasses import dataclass
from typing import Annotated, Final

from msgspec import UNSET, Meta, field

from protocol.codec import Wire, decode
from protocol.limits import RAIL_RECEIPT_BYTES_MAX, SEAL_BYTES
from protocol.rail import Act, RailReceipt
from protocol.signing import digest
from protocol.units import Digest, Micros, Millis, PublicKey
from protocol.wire import Envelope

RAIL_HOLD: Final = 50
RAIL_CAPTURE: Final = 51
RAIL_VOID: Final = 52

SealedReceipt = Annotated[bytes, Meta(max_length=RAIL_RECEIPT_BYTES_MAX + SEAL_BYTES)]


class RailHold(Wire, frozen=True, kw_only=True):
    """The rail keeps money of the payer for a lease."""

    receipt: SealedReceipt = field(name="0")


class RailCapture(Wire, frozen=True, kw_only=True):
    """The rail has paid it out."""

    receipt: SealedReceipt = field(name="0")


class RailVoid(Wire, frozen=True, kw_only=True):
    """The rail has given it back."""

    receipt: SealedReceipt = field(name="0")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class RailTold:
    """One act of a rail, as a party has told it."""

    lease: Digest
    rail: PublicKey
    """The key that sealed it."""
    digest: Digest
    """Of the sealed receipt; that of a hold is what ends it names."""
    act: Act
    hold: Digest | None
    """The hold that this ends; None for a hold."""
    payer: PublicKey
    payee: PublicKey
    amount_micro: Micros
    money: str
    expires_ms: Millis
    is_simulated: bool


def told_by(body: RailHold | RailCapture | RailVoid) -> RailTold:
    """What the receipt in an entry says; its seal is judged where the entry is taken.

    Raises PeerFault `codec.*`.
    """
    envelope = decode(body.receipt, Envelope, size_max=RAIL_RECEIPT_BYTES_MAX + SEAL_BYTES)
    said = decode(envelope.b, RailReceipt, size_max=RAIL_RECEIPT_BYTES_MAX)
    return RailTold(
        lease=said.lease,
        rail=envelope.k,
        digest=digest("rail", envelope.b),
        act=said.act,
        hold=None if said.hold is UNSET else said.hold,
        payer=said.payer,
        payee=said.payee,
        amount_micro=said.amount_micro,
        money=said.money,
        expires_ms=said.expires_ms,
        is_simulated=said.simulated is not UNSET,
    )


def live_holds(told: list[RailTold], now: Millis) -> list[RailTold]:
    """The holds among these that their rail has not ended and that last beyond `now`."""
    ended = [(each.rail, each.hold) for each in told if each.act != "hold"]
    return [
        each
        for each in told
        if each.act == "hold" and each.expires_ms > now and (each.rail, each.digest) not in ended
    ]
