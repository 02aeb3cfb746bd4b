"""A renter's reverse auction: what it asks for, what owners answer. SPEC.md section 9.

A request for quote names resources, tier, time and region; never the image, command or
environment, which reach only the winner.
"""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from protocol.advert import Isolation, MibCount, Region, Share, Tier
from protocol.codec import (
    CurrencyCode,
    Extensions,
    Hash,
    Id16,
    Instant,
    Key,
    Money,
    Name,
    Span,
    UInt,
    Wire,
)
from protocol.errors import PeerFault
from protocol.genesis import Genesis
from protocol.lease import Terms, UnitTurns
from protocol.limits import (
    ADVERT_BYTES_MAX,
    JOB_BYTES_MAX,
    JOB_SEAL_BYTES,
    LEASE_UNITS_MAX,
    QUOTE_BYTES_MAX,
    REFUSAL_BYTES_MAX,
    REPLY_BYTES_MAX,
    SEAL_BYTES,
)
from protocol.signing import digest
from protocol.units import Digest, Millis, PublicKey


class Need(Wire, frozen=True, kw_only=True):
    """What a job needs of one node; an absent field asks for nothing."""

    gpus: Annotated[int, Meta(ge=1, le=LEASE_UNITS_MAX)]
    vram_mib_min: MibCount
    """Of each GPU, never of the largest alone."""
    models: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=16)] | UnsetType = UNSET
    regions: Annotated[tuple[Region, ...], Meta(min_length=1, max_length=64)] | UnsetType = UNSET
    isolation_min: Isolation | UnsetType = UNSET
    cpus_min: UInt | UnsetType = UNSET
    memory_mib_min: MibCount | UnsetType = UNSET
    disk_mib_min: MibCount | UnsetType = UNSET
    down_kbit_s_min: UInt | UnsetType = UNSET
    up_kbit_s_min: UInt | UnsetType = UNSET
    driver_min: Annotated[tuple[UInt, ...], Meta(min_length=1, max_length=4)] | UnsetType = UNSET
    """The numbers of its version; more come with more weight the earlier they stand."""
    compute_min: tuple[UInt, UInt] | UnsetType = UNSET
    """CUDA compute capability, (major, minor)."""


class Rfq(Wire, frozen=True, kw_only=True):
    """Request for quote to one owner, about one of its unit groups."""

    v: Literal[1] = 1
    owner: Key
    group: Id16
    incarnation: UInt
    """With `seq`: the advert on which the renter's question is based."""
    seq: UInt
    need: Need
    tier: Tier
    start_ms: Instant
    end_ms: Instant
    start_by_ms: Instant | UnsetType = UNSET
    """The lease may start so late, if units must be taken back from bronze for it first."""
    notice_ms: Span
    money: CurrencyCode
    renews: Hash | UnsetType = UNSET
    """A lease of ours with this owner, after which this one is to go on with its job."""
    region: Region | UnsetType = UNSET
    """The renter's own, self-declared, for owners who choose among renters by it."""
    hold: Literal["yes"] | UnsetType = UNSET
    """Present: an exclusive bid is wanted, so that several leases come together or not at all."""
    nonce: Id16
    issued_ms: Instant
    not_after_ms: Instant
    x: Extensions = UNSET


def latest_start(rfq: Rfq) -> Millis:
    """When a lease starts at the latest that must wait for its units."""
    return Millis(rfq.start_ms if rfq.start_by_ms is UNSET else rfq.start_by_ms)


def check_rfq(rfq: Rfq, *, owner: PublicKey, genesis: Genesis, now: Millis) -> None:
    """What can be judged of a request for quote without the owner's offers. SPEC.md 9.1.

    Raises PeerFault `rfq.owner`, `rfq.span`, `rfq.future` or `rfq.stale`.
    """
    if rfq.owner != owner:
        raise PeerFault("rfq.owner")
    if rfq.start_ms >= rfq.end_ms:
        raise PeerFault("rfq.span", "ends before it starts")
    if latest_start(rfq) < rfq.start_ms:
        raise PeerFault("rfq.span", "starts at the latest before it starts")
    if rfq.issued_ms >= rfq.not_after_ms:
        raise PeerFault("rfq.span", "over when it is issued")
    if rfq.issued_ms > now + genesis.bounds.skew_ms:
        raise PeerFault("rfq.future")
    if now > rfq.not_after_ms:
        raise PeerFault("rfq.stale")


class Bid(Wire, frozen=True, kw_only=True):
    """A firm quote to one renter: the owner keeps it until `valid_until_ms`."""

    v: Literal[1] = 1
    rfq: Hash
    """Digest of the sealed request for quote, domain "rfq"."""
    renter: Key
    group: Id16
    units: UnitTurns
    tier: Tier
    start_ms: Instant
    end_ms: Instant
    micro_per_gpu_hour: Money
    money: CurrencyCode
    period_ms: Span
    notice_ms: Span
    lapse_ms: Span
    renews: Hash | UnsetType = UNSET
    """As in the question."""
    remedy_ppm: Share | UnsetType = UNSET
    """Part of the charge for the whole time that the owner lets off if its host fails the job."""
    terms: Terms
    gpu: Literal["nvml", "simulated"]
    head_seq: UInt
    """Height of the owner's feed when it signed; holds its clock to its feed."""
    issued_ms: Instant
    valid_until_ms: Instant
    exclusive: Literal["yes"] | UnsetType = UNSET
    """Present: these turns of the units are offered to nobody else meanwhile."""
    x: Extensions = UNSET


class BidDrop(Wire, frozen=True, kw_only=True):
    """The question `bid.drop`: the renter does not want what an exclusive bid keeps for it."""

    bid: Hash
    """Digest of the sealed bid, domain "bid"."""


class BidCommit(Wire, frozen=True, kw_only=True):
    """An owner binds itself to a bid that nobody can read yet."""

    v: Literal[1] = 1
    rfq: Hash
    """Digest of the sealed request for quote, domain "rfq"."""
    hidden: Hash
    """`hidden_bid` of the salt and the sealed bid."""
    issued_ms: Instant
    x: Extensions = UNSET


class BidReveal(Wire, frozen=True, kw_only=True):
    """The owner opens what it has committed to."""

    v: Literal[1] = 1
    commit: Hash
    """Digest of the sealed commit, domain "bid-commit"."""
    bid: Annotated[bytes, Meta(max_length=QUOTE_BYTES_MAX + SEAL_BYTES)]
    salt: Id16
    x: Extensions = UNSET


class RevealAsk(Wire, frozen=True, kw_only=True):
    """The question `rfq.reveal`: open this commit."""

    commit: Hash
    """Digest of the sealed commit, domain "bid-commit"."""


def hidden_bid(salt: bytes, bid: bytes) -> Digest:
    """What a commit says of a sealed bid: nothing, to who lacks the salt."""
    return digest("hidden-bid", salt + bid)


Reason = Literal["TAKEN", "PRICE_MOVED", "POLICY", "SHAPE", "STALE", "CLOSED", "BUSY"]
"""Why an owner says no: units leased, price changed, policy, need not met, message or advert out
of date, outside the owner's hours or draining, too many requests at once."""


class Refusal(Wire, frozen=True, kw_only=True):
    """A signed no, to a request for quote or a lease request."""

    v: Literal[1] = 1
    of: Hash
    """Digest of the sealed message that is refused, in its own domain."""
    renter: Key
    reason: Reason
    detail: Annotated[str, Meta(max_length=200)] | UnsetType = UNSET
    advert: Annotated[bytes, Meta(max_length=ADVERT_BYTES_MAX + SEAL_BYTES)] | UnsetType = UNSET
    """The owner's newest advert of the group, sealed, when the renter's was out of date."""
    issued_ms: Instant
    x: Extensions = UNSET


class Take(Wire, frozen=True, kw_only=True):
    """The question `lease.take`: a sealed lease request, and the job sealed to the owner."""

    request: Annotated[bytes, Meta(max_length=QUOTE_BYTES_MAX + SEAL_BYTES)]
    job: Annotated[bytes, Meta(max_length=JOB_BYTES_MAX + JOB_SEAL_BYTES)] | UnsetType = UNSET


class Reply(Wire, frozen=True, kw_only=True):
    """An owner's answer: what was asked for (a sealed bid, a GRANT entry) or a sealed refusal."""

    yes: Annotated[bytes, Meta(max_length=REPLY_BYTES_MAX)] | UnsetType = UNSET
    no: Annotated[bytes, Meta(max_length=REFUSAL_BYTES_MAX + SEAL_BYTES)] | UnsetType = UNSET

    def __post_init__(self) -> None:
        if (self.yes is UNSET) == (self.no is UNSET):
            raise ValueError("yes or no")
