"""A unit's reservations, as the entries of its owner's feed list them. SPEC.md section 4."""

from typing import Annotated

from msgspec import Meta

from ledger.limits import OPEN_MAX
from protocol.codec import Instant, UInt, Wire


class Interval(Wire, frozen=True, array_like=True, order=True):
    """A reservation of a unit: from, up to but not including, and the counter of its grant."""

    start_ms: Instant
    end_ms: Instant
    ctr: UInt


Open = Annotated[tuple[Interval, ...], Meta(max_length=OPEN_MAX)]
"""A unit's outstanding intervals after an entry, sorted."""
