"""Every bound of the protocol, each with its reason. A network's own bounds are in its genesis."""

from typing import Final

from protocol.units import MillisSpan

# Shape of encoded values.
DEPTH_MAX: Final = 6
"""Nesting of containers: the deepest message uses four, two are room for later versions."""
KEY_BYTES_MAX: Final = 23
"""Longest text key: below 24 bytes CBOR's two canonical key orders agree."""
INT_MAX: Final = 2**63 - 1
"""Largest integer: fits a signed 64-bit column everywhere."""
EXTENSIONS_MAX: Final = 8
EXTENSION_BYTES_MAX: Final = 256
"""A later version may say eight short things to an older one, which keeps and ignores them."""
DETAIL_CHARACTERS_MAX: Final = 120
"""What is kept of a parser's complaint, which may quote the peer at length."""

# Sizes of encoded messages, in bytes.
GENESIS_BYTES_MAX: Final = 2_048
CERTIFICATE_BYTES_MAX: Final = 1_024
"""A certificate takes about 500; extensions may double it."""
ADVERT_BYTES_MAX: Final = 6_144
"""An advert with certificate, calendar, two filters and eight addresses takes about 2,400,
and with marks of 64 devices 3,000."""
SEAL_BYTES: Final = 192
"""What a seal adds to a body: key, signature, kind, version and framing take under 150."""
FRAME_BYTES_MAX: Final = 262_144
"""One frame of a stream: what a peer can make us buffer before we have judged anything."""
QUOTE_BYTES_MAX: Final = 4_096
"""A request for quote, a bid or a lease request takes under 1,500."""
REFUSAL_BYTES_MAX: Final = ADVERT_BYTES_MAX + 1_024
"""A refusal may carry the owner's newest advert."""
PART_BYTES_MAX: Final = 131_072
"""A piece of a transfer: large enough to be cheap, small enough to share a connection."""
TICK_BYTES_MAX: Final = 1_024
OUTCOME_BYTES_MAX: Final = 2_048
RAIL_RECEIPT_BYTES_MAX: Final = 3_072
"""A receipt takes about 400; eight extensions take another 2,300."""
PAYMENT_BYTES_MAX: Final = 4_096
"""A payment reference takes under 900; eight extensions take another 2,300."""
PAYOUT_CHARACTERS_MAX: Final = 512
"""An account number, an address, and a sentence."""
REVEAL_BYTES_MAX: Final = QUOTE_BYTES_MAX + SEAL_BYTES + 512
"""A sealed bid, and what hid it."""
AUCTION_BYTES_MAX: Final = 1_048_576
"""A file of at most 64 bids with their questions and 64 refusals; of a pool, 64 adverts and 48."""
JOB_BYTES_MAX: Final = 65_536
"""A job description with its arguments and environment; larger things belong into the input."""
JOB_SEAL_BYTES: Final = 48
"""An ephemeral key and an authenticator."""
REPLY_BYTES_MAX: Final = 16_384
"""A GRANT entry has at most 8 KiB of body."""
HELLO_BYTES_MAX: Final = 4_096
COSIGN_BYTES_MAX: Final = 128
"""What a witness signs takes 104 with its longest integers."""

# Time.
CERTIFICATE_LIFE_MS_MAX: Final = MillisSpan(2 * 366 * 86_400_000)
"""Two years: a lost feed key stops being usable some day even if nobody notices the loss."""
REQUEST_LIFE_MS_MAX: Final = MillisSpan(2_000)
"""How long a lease request binds a renter who has had no answer."""

# Counts.
WITNESSES_MAX: Final = 8
"""Witnesses of one lease: six of eight hold against three that lie."""
LEASE_UNITS_MAX: Final = 8
"""GPUs of one lease; with their open intervals eight fill 3.3 kB of a grant."""
ADDRESSES_MAX: Final = 8
"""Addresses in one advert: IPv4, IPv6, LAN, relay, each with TCP and WebSocket."""
UNITS_MAX: Final = 64
"""GPUs of one unit group; the largest single hosts have 16, MIG makes up to 7 of each."""
SURCHARGES_MAX: Final = 8
POLICY_REGIONS_MAX: Final = 16
"""Of each list; who has more leaves the list out, and says so when it is asked."""
BIDS_OUTSTANDING_MAX: Final = 4_096
"""Firm bids that an owner remembers at once; each lives ten seconds."""
OPEN_INTERVALS_SOFT_MAX: Final = 15
"""An entry carries 16 open intervals of a unit; one place is kept so that a lease can be cut."""
RATES_MAX: Final = 32
"""Other money that a renter takes: it pins each rate by hand."""
BIDS_MAX: Final = 64
"""Bids in one auction: the largest shortlist."""
POOL_NODES_MAX: Final = 16
"""Nodes of one job: holds live five seconds, and are asked for one after the other."""
POOL_OFFERS_MAX: Final = 64
"""Offers that a job on several nodes chooses among: four for each place."""
POOL_TRIES_MAX: Final = 3
"""How often it is tried anew with other owners before the job waits."""
ARGUMENTS_MAX: Final = 64
VARIABLES_MAX: Final = 64
ADVERTS_KEPT_MAX: Final = 16_384
"""Adverts in one node's book: 16 times the network that two cores can simulate, about 60 MB."""
GROUPS_PER_FEED_MAX: Final = 64
"""Unit groups that one feed may have in a book, so that one key cannot fill it."""
OFFER_HEADS_MAX: Final = 4_096
"""Heads in one answer of anti-entropy: 4,096 of about 40 bytes fill most of a frame."""
OFFERS_ASKED_MAX: Final = 32
"""Adverts in one answer: 32 of at most 6.3 kB stay below FRAME_BYTES_MAX."""

assert OFFERS_ASKED_MAX * (ADVERT_BYTES_MAX + SEAL_BYTES + 8) < FRAME_BYTES_MAX
assert (
    POOL_OFFERS_MAX * ADVERT_BYTES_MAX
    + POOL_TRIES_MAX * POOL_NODES_MAX * (QUOTE_BYTES_MAX + REFUSAL_BYTES_MAX)
    < AUCTION_BYTES_MAX
)
assert OFFER_HEADS_MAX * 48 < FRAME_BYTES_MAX
