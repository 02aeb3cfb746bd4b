"""What a renter signs to take a bid, and what both are then bound to. SPEC.md section 10."""

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, UnsetType

from protocol.advert import Isolation, Share, Tier
from protocol.codec import (
    CurrencyCode,
    Extensions,
    Hash,
    Id16,
    Instant,
    Key,
    Money,
    Span,
    UInt,
    Wire,
    encode,
)
from protocol.errors import PeerFault
from protocol.limits import LEASE_UNITS_MAX, REQUEST_LIFE_MS_MAX, WITNESSES_MAX
from protocol.signing import digest
from protocol.units import Digest, Micros, Millis, MillisSpan, PublicKey

MS_PER_HOUR: Final = 3_600_000


class UnitTurn(Wire, frozen=True, kw_only=True):
    """A unit and the counter that its next grant will bear."""

    unit: Id16
    ctr: UInt


Witnesses = Annotated[tuple[Key, ...], Meta(min_length=1, max_length=WITNESSES_MAX)]
Quorum = Annotated[int, Meta(ge=1, le=WITNESSES_MAX)]
"""In millionths."""
UnitTurns = Annotated[tuple[UnitTurn, ...], Meta(min_length=1, max_length=LEASE_UNITS_MAX)]


class Terms(Wire, frozen=True, kw_only=True):
    """Under what conditions the owner runs the job; a bid carries them, a lease names them."""

    v: Literal[1] = 1
    isolation: Isolation
    network: Literal["none"] = "none"
    cpus: UInt | UnsetType = UNSET
    memory_mib: UInt | UnsetType = UNSET
    disk_mib: UInt | UnsetType = UNSET
    x: Extensions = UNSET


class LeaseRequest(Wire, frozen=True, kw_only=True):
    """The renter takes a bid: binding until `not_after_ms`, and for good once granted.

    It repeats what it agrees to, so that the grant that embeds it proves the agreement alone.
    """

    v: Literal[1] = 1
    owner: Key
    bid: Hash
    """Digest of the sealed bid, domain "bid"."""
    units: UnitTurns
    start_ms: Instant
    end_ms: Instant
    tier: Tier
    micro_per_gpu_hour: Money
    money: CurrencyCode
    period_ms: Span
    """How often use is metered and co-signed."""
    notice_ms: Span
    """Warning that the owner of a bronze lease owes before it takes the units back."""
    lapse_ms: Span
    """How long a grant without a job holds the units before the owner may let it lapse."""
    remedy_ppm: Share | UnsetType = UNSET
    """As in the bid."""
    renews: Hash | UnsetType = UNSET
    """As in the bid: the lease whose job goes on in this one."""
    terms: Hash
    job: Hash | UnsetType = UNSET
    """Digest of the sealed job description."""
    witnesses: Witnesses | UnsetType = UNSET
    """Feeds of the renter's choice that are to cosign the grant before the renter accepts it."""
    quorum: Quorum | UnsetType = UNSET
    """How many of them must."""
    nonce: Id16
    """Makes the request idempotent: one nonce of one renter gives one lease."""
    issued_ms: Instant
    not_after_ms: Instant
    x: Extensions = UNSET


def digest_of_terms(terms: Terms) -> Digest:
    """What a lease names its terms by."""
    return digest("terms", encode(terms))


def check_request(
    request: LeaseRequest,
    *,
    owner: PublicKey,
    renter: PublicKey,
    now: Millis,
    skew: MillisSpan,
) -> None:
    """What can be judged of a request without the owner's books.

    Raises PeerFault `request.owner`, `request.units`, `request.witnesses`, `request.span`,
    `request.future` or `request.stale`.
    """
    if request.owner != owner:
        raise PeerFault("request.owner")
    if len({turn.unit: turn for turn in request.units}) < len(request.units):
        raise PeerFault("request.units", "a unit comes twice")
    if why := witnesses_fault(request, renter):
        raise PeerFault("request.witnesses", why)
    if not 0 < request.not_after_ms - request.issued_ms <= REQUEST_LIFE_MS_MAX:
        raise PeerFault("request.span", "longer than a request may live")
    if request.start_ms >= request.end_ms:
        raise PeerFault("request.span", "ends before it starts")
    if request.issued_ms > now + skew:
        raise PeerFault("request.future")
    if now > request.not_after_ms:
        raise PeerFault("request.stale")


def witnesses_fault(request: LeaseRequest, renter: PublicKey) -> str | None:
    """Why nobody could count on these witnesses, or None. SPEC.md 10.3.

    Of more than half, two quorums have a witness in common, who would have to sign twice.
    """
    if (request.witnesses is UNSET) != (request.quorum is UNSET):
        return "witnesses and quorum come together"
    if request.witnesses is UNSET or request.quorum is UNSET:
        return None
    named = len(dict.fromkeys(request.witnesses))
    if named < len(request.witnesses):
        return "a witness comes twice"
    if request.owner in request.witnesses or renter in request.witnesses:
        return "a party is no witness"
    if not named < 2 * request.quorum <= 2 * named:
        return f"{request.quorum} of {named} is not more than half of them"
    return None


def remedy_of(request: LeaseRequest) -> Micros:
    """What the owner lets off if its host fails the job; rounded down. SPEC.md 10.5."""
    if request.remedy_ppm is UNSET:
        return Micros(0)
    span = MillisSpan((request.end_ms - request.start_ms) * len(request.units))
    whole = charge(span, Micros(request.micro_per_gpu_hour))
    return Micros(whole * request.remedy_ppm // 1_000_000)


def charge(used: MillisSpan, per_gpu_hour: Micros) -> Micros:
    """What `used` GPU-milliseconds cost at this price per GPU-hour. SPEC.md 10.4.

    Always from the cumulative use, rounded up, so that how a lease is cut into ticks changes
    nothing and no use is free.
    """
    return Micros(-(-used * per_gpu_hour // MS_PER_HOUR))
