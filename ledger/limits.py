"""Every bound of the ledger, each with its reason."""

from typing import Final

from protocol.limits import LEASE_UNITS_MAX

# Sizes of encoded values, in bytes.
HEADER_BYTES_MAX: Final = 144
"""A header takes 137 with its longest integers."""
BODY_BYTES_MAX: Final = 8_192
"""A grant of eight units, each with sixteen open intervals, takes under this with its request."""
ENTRY_BYTES_MAX: Final = HEADER_BYTES_MAX + 64 + BODY_BYTES_MAX + 8
"""Header, signature, body and the framing of the three."""
EVIDENCE_BYTES_MAX: Final = 2 * ENTRY_BYTES_MAX + 32
"""Two entries, the unit they are about, and framing."""
REQUEST_BYTES_MAX: Final = 3_600
"""A sealed lease request inside a grant: one takes under 700, extensions may fill the rest."""
TURN_BYTES_MAX: Final = 72
"""A unit's part of a grant or release without its open intervals."""
INTERVAL_BYTES_MAX: Final = 28
"""One open interval with its longest integers."""

# Counts.
KIND_MAX: Final = 65_535
KEYS_MAX: Final = 23
"""Highest key of a body: up to 23 a key is one byte, and CBOR's two canonical orders agree."""
BODY_DEPTH_MAX: Final = 5
"""Nesting of a body, its own map included: body, units, unit, open intervals, interval."""
OPEN_MAX: Final = 16
"""Outstanding intervals of one unit: they are repeated in each of its entries."""
WITNESSES_MAX: Final = 8
"""Witnesses named by one entry."""
CONFLICTS_MAX: Final = 64
"""Conflicting entries kept of one forked feed: evidence needs two, debts seldom more."""

assert (
    LEASE_UNITS_MAX * (TURN_BYTES_MAX + 9 + OPEN_MAX * INTERVAL_BYTES_MAX)
    + REQUEST_BYTES_MAX
    + WITNESSES_MAX * 34
    + 64
    <= BODY_BYTES_MAX
)
