"""Every bound of the ledger, each with its reason."""

from typing import Final

from protocol.limits import (
    CERTIFICATE_BYTES_MAX,
    COSIGN_BYTES_MAX,
    FRAME_BYTES_MAX,
    LEASE_UNITS_MAX,
    SEAL_BYTES,
    TICK_BYTES_MAX,
    WITNESSES_MAX,
)

# Sizes of encoded values, in bytes.
HEADER_BYTES_MAX: Final = 144
"""A header takes 137 with its longest integers."""
BODY_BYTES_MAX: Final = 8_192
"""A grant of eight units, each with sixteen open intervals, takes under this with its request."""
ENTRY_BYTES_MAX: Final = HEADER_BYTES_MAX + 64 + BODY_BYTES_MAX + 8
"""Header, signature, body and the framing of the three."""
EVIDENCE_BYTES_MAX: Final = 2 * ENTRY_BYTES_MAX + TICK_BYTES_MAX + SEAL_BYTES + 32
"""Two entries, a tick, and framing; 65 headers of a path take less."""
RECEIPT_BYTES_MAX: Final = 65_536
"""Four entries, two certificates, a tick and an outcome take at most 40 kB."""
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
CAPACITY_UNITS_MAX: Final = 32
"""Units named by one entry: each takes up to 130 bytes; a larger host writes several."""
RESPONSE_ROWS_MAX: Final = 64
"""Rows of one answer: as many as are sampled."""
CLAIM_SIZE_MAX: Final = 256
"""Rows and columns of a claimed work: a row of it takes about as long as ten signatures."""
COSIGNS_MAX: Final = 32
"""Cosignatures told by one entry."""
ROW_KEY_BYTES_MAX: Final = 48
"""Key of a row of a checkpoint: an account takes 38."""
SUCCESSOR_UNITS_MAX: Final = 13
"""Units that one SUCCESSOR carries over, each with sixteen intervals; a larger host writes more."""
PATH_MAX: Final = 64
"""Unsigned steps of a branch that its last header proves: a path longer than that is cut."""
CONFLICTS_MAX: Final = 64
"""Conflicting entries kept of one forked feed: evidence needs two, debts seldom more."""

assert (
    LEASE_UNITS_MAX * (TURN_BYTES_MAX + 9 + OPEN_MAX * INTERVAL_BYTES_MAX)
    + REQUEST_BYTES_MAX
    + WITNESSES_MAX * 34
    + 64
    <= BODY_BYTES_MAX
)

# An ACCEPT with the signatures of all witnesses for all units.
assert LEASE_UNITS_MAX * 32 + WITNESSES_MAX * (48 + LEASE_UNITS_MAX * 66) + 80 <= BODY_BYTES_MAX
assert CAPACITY_UNITS_MAX * 140 <= BODY_BYTES_MAX
assert COSIGNS_MAX * COSIGN_BYTES_MAX <= BODY_BYTES_MAX
assert SUCCESSOR_UNITS_MAX * (TURN_BYTES_MAX + OPEN_MAX * INTERVAL_BYTES_MAX) <= (
    BODY_BYTES_MAX - CERTIFICATE_BYTES_MAX - 64
)
assert (PATH_MAX + 2) * (HEADER_BYTES_MAX + 3) + 2 * 66 <= EVIDENCE_BYTES_MAX
# Standing.
FLOW_LOOKS_MAX: Final = 2_097_152
"""Looks at arcs for all ways that are found through one graph, about half a second. One push among
10,000 peers takes under a hundred thousand; many reporters take more, and so does a graph that was
made to be hard."""
FLOW_EDGE_LOOKS_MAX: Final = FLOW_LOOKS_MAX // 16
"""Of them for the ways that begin with one edge: who has earned one can waste no more than that
and one way; a push among 10,000 peers takes less."""

# Sync.
LEAF_MAX: Final = 16
"""Items of a range that are listed instead of split: sixteen fingerprints take about as much."""
PREFIX_MAX: Final = 16
"""Digits of a range's prefix: nobody finds LEAF_MAX + 1 keys that agree in 64 bits."""
FEEDS_MAX: Final = 65_536
"""Feeds that one replica takes: six times the authors that full replication is meant for. Half of
these are for whoever comes; of the rest each peer may bring a few in an hour.
"""
ITEMS_MAX: Final = 4 * FEEDS_MAX
"""Heads, or offences, of which one side tells in one session beside those that it lists: what is
beyond is for another session.
"""
EVIDENCE_TURNS_MAX: Final = 16
"""Turns of a session in which entries wait for evidence: two thousand proofs."""
ONLY_MAX: Final = 1_024
"""Feeds to which a light client may narrow a session: 36 kB of a HELLO."""
SYNC_HELLO_BYTES_MAX: Final = ONLY_MAX * 34 + 4_096
WANTS_MAX: Final = 256
"""Feeds, or proofs, asked for at once: small ones fill a frame together."""
FORK_WINDOW: Final = 16
"""Entries below a known fork that are compared too: the branches may have parted earlier."""
TAIL_MAX: Final = FORK_WINDOW + 2 * CONFLICTS_MAX + 1
"""Entries of a forked feed that are handed over: what shows the fork, and all kept conflicts."""
TURN_BYTES: Final = 229_376
"""What one turn is filled to: a frame less than its framing and what is asked in it."""
RUN_MAX: Final = 1_024
"""Entries of one run: as many small ones as fill a turn."""
PUSH_MAX: Final = 16
"""Entries that answer one listed head without being asked for: a peer that is a little behind."""
INGEST_AT_ONCE: Final = 64
"""Entries judged and written together: some milliseconds in which nothing else runs."""
PRUNE_AT_ONCE: Final = 64
"""Bodies dropped together: some milliseconds likewise."""
TRUST_FROM: Final = 512
"""Entries missing of one feed from which on they are taken first and judged later."""
WAITING_MAX: Final = 262_144
"""Entries that wait to be judged, of all feeds: some minutes of judging."""
COMPARE_BYTES: Final = 65_536
"""Of a turn, for each of the two comparisons."""
PROOFS_BYTES: Final = 65_536
"""Of a turn, for evidence."""

assert TURN_BYTES + 2 * WANTS_MAX * 64 <= FRAME_BYTES_MAX
assert TURN_BYTES - 2 * COMPARE_BYTES - PROOFS_BYTES > ENTRY_BYTES_MAX
assert PROOFS_BYTES > EVIDENCE_BYTES_MAX
