"""Holds, captures and voids of a payment rail, told to the ledger by a party. SPEC.md section 3.

The rail is trusted for money and nothing else; its sealed receipt says what it did.
"""

from typing import Annotated, Final

from msgspec import Meta, field

from protocol.codec import Wire
from protocol.limits import RAIL_RECEIPT_BYTES_MAX, SEAL_BYTES

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
