"""What entries say: one frozen struct for each kind, with numbered fields. SPEC.md section 3."""

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, UnsetType, field

from ledger.capability_bodies import (
    CAPACITY,
    CHALLENGE,
    CLAIM,
    RESPONSE,
    Capacity,
    Challenge,
    Claim,
    Response,
)
from ledger.continuity_bodies import (
    CHECKPOINT,
    RULES_SIGNAL,
    SUCCESSOR,
    Checkpoint,
    RulesSignal,
    Successor,
)
from ledger.entry import GENESIS, Draft
from ledger.intervals import Open
from ledger.limits import (
    BODY_BYTES_MAX,
    BODY_DEPTH_MAX,
    KEYS_MAX,
    REQUEST_BYTES_MAX,
)
from ledger.rail_bodies import (
    RAIL_CAPTURE,
    RAIL_HOLD,
    RAIL_VOID,
    RailCapture,
    RailHold,
    RailVoid,
)
from ledger.witness_bodies import COSIGN_LOG, PROBE, Cosigned, CosignLog, Probe
from protocol.codec import (
    CurrencyCode,
    Hash,
    Id16,
    Instant,
    Key,
    Money,
    Seal,
    Span,
    UInt,
    Wire,
    decode,
    decode_numbered,
    decode_plain,
    encode_numbered,
    encode_plain,
)
from protocol.errors import PeerFault
from protocol.lease import LeaseRequest, Quorum, Witnesses
from protocol.limits import CERTIFICATE_BYTES_MAX, INT_MAX, LEASE_UNITS_MAX, QUOTE_BYTES_MAX
from protocol.units import Digest, Millis, PublicKey
from protocol.wire import Envelope

GRANT: Final = 10
RELEASE: Final = 11
ACCEPT: Final = 12
STATEMENT: Final = 20

Reason = Literal["consent", "preempted", "lapsed", "unpaid", "end"]


class GrantTurn(Wire, frozen=True, array_like=True):
    """One unit's part of a GRANT: its counter, the unit's entry before, what is open after."""

    unit: Id16
    ctr: UInt
    gseq: UInt
    gprev: Hash
    open: Open


class ReleaseTurn(Wire, frozen=True, array_like=True):
    """One unit's part of a RELEASE: as in a GRANT, and the released lease's counter."""

    unit: Id16
    ctr: UInt
    gseq: UInt
    gprev: Hash
    open: Open
    lctr: UInt


class Genesis(Wire, frozen=True, kw_only=True):
    """Opens a feed."""

    certificate: Annotated[bytes, Meta(max_length=CERTIFICATE_BYTES_MAX)] = field(name="0")
    """`protocol.certificate`, encoded and signed."""
    incarnation: UInt = field(name="1")
    next_key: Hash = field(name="2")
    """SHA-256 of the feed key that will follow this one."""
    witnesses: Witnesses | UnsetType = field(default=UNSET, name="3")
    """Feeds that may be asked to cosign; a hint."""


class Grant(Wire, frozen=True, kw_only=True):
    """The owner's half of a lease. It says nothing that the embedded request says already."""

    units: Annotated[tuple[GrantTurn, ...], Meta(min_length=1, max_length=LEASE_UNITS_MAX)] = field(
        name="0"
    )
    start_ms: Instant = field(name="1")
    end_ms: Instant = field(name="2")
    request: Annotated[bytes, Meta(max_length=REQUEST_BYTES_MAX)] = field(name="3")
    """The sealed lease request, as the renter sent it."""
    witnesses: Witnesses | UnsetType = field(default=UNSET, name="4")
    """Those of the request."""
    quorum: Quorum | UnsetType = field(default=UNSET, name="5")
    """How many of the witnesses must cosign."""


class Release(Wire, frozen=True, kw_only=True):
    """The owner ends a lease, or shortens it to `at_ms`."""

    units: Annotated[tuple[ReleaseTurn, ...], Meta(min_length=1, max_length=LEASE_UNITS_MAX)] = (
        field(name="0")
    )
    grant: Hash = field(name="1")
    at_ms: Instant = field(name="2")
    reason: Reason = field(name="3")
    consent: Seal | UnsetType = field(default=UNSET, name="4")
    """The renter's signature over `consent_bytes`, domain "release-consent"."""


class Accept(Wire, frozen=True, kw_only=True):
    """The renter's half of a lease."""

    grant: Hash = field(name="0")
    cosigned: Cosigned | UnsetType = field(default=UNSET, name="1")
    """What the witnesses of the GRANT had signed when the renter took it."""


class Statement(Wire, frozen=True, kw_only=True):
    """One side's half of an account: all that was used and owed so far."""

    peer: Key = field(name="0")
    """The feed on the other side."""
    ctr: UInt = field(name="1")
    used_ms: Span = field(name="2")
    """Cumulative GPU-milliseconds."""
    amount_micro: Money = field(name="3")
    """Cumulative sum, in millionths of `money`."""
    money: CurrencyCode = field(name="4")
    lease: Hash | UnsetType = field(default=UNSET, name="5")
    tick: Hash | UnsetType = field(default=UNSET, name="6")
    """Digest of the last co-signed tick."""
    half: Hash | UnsetType = field(default=UNSET, name="7")
    """Id of the other side's half that this one answers."""
    paid_micro: Money | UnsetType = field(default=UNSET, name="8")
    """Cumulative sum that has reached the owner, by its own word; absent: nothing has."""


Rail = RailHold | RailCapture | RailVoid

Body = (
    Genesis
    | Capacity
    | Grant
    | Release
    | Accept
    | Statement
    | Claim
    | Challenge
    | Response
    | CosignLog
    | Probe
    | Rail
    | Checkpoint
    | Successor
    | RulesSignal
)

KINDS: Final[dict[int, type[Body]]] = {
    GENESIS: Genesis,
    CAPACITY: Capacity,
    GRANT: Grant,
    RELEASE: Release,
    ACCEPT: Accept,
    STATEMENT: Statement,
    CLAIM: Claim,
    CHALLENGE: Challenge,
    RESPONSE: Response,
    COSIGN_LOG: CosignLog,
    PROBE: Probe,
    RAIL_HOLD: RailHold,
    RAIL_CAPTURE: RailCapture,
    RAIL_VOID: RailVoid,
    CHECKPOINT: Checkpoint,
    SUCCESSOR: Successor,
    RULES_SIGNAL: RulesSignal,
}


_KIND_OF: Final = {shape: kind for kind, shape in KINDS.items()}


def kind_of(body: Body) -> int:
    """The number that a header bears for this body."""
    return _KIND_OF[type(body)]


def encode_body(body: Body) -> bytes:
    """The one encoding of a body."""
    return encode_numbered(body)


def read_body(draft: Draft) -> Body | None:
    """What the entry says; None where its kind is not known here.

    Raises PeerFault `codec.*` or, for an unknown kind, `body.form`.
    """
    shape = KINDS.get(draft.header.kind)
    if shape is not None:
        return decode_numbered(draft.body, shape, size_max=BODY_BYTES_MAX)
    plain = decode_plain(draft.body, size_max=BODY_BYTES_MAX)
    if not isinstance(plain, dict) or not _is_plain(plain, BODY_DEPTH_MAX):
        raise PeerFault("body.form", "not a map of the subset")
    if encode_plain(plain) != draft.body:
        raise PeerFault("body.form", "not the canonical encoding")
    return None


def _is_plain(value: object, depth: int) -> bool:
    """Whether the value keeps to the subset of CBOR that bodies are made of."""
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return 0 <= value <= INT_MAX
    if isinstance(value, str):
        return value.isascii()
    if isinstance(value, list):
        return depth > 0 and all(_is_plain(item, depth - 1) for item in value)
    if isinstance(value, dict):
        return depth > 0 and all(
            _is_plain(key, 0)
            and isinstance(key, int)
            and key <= KEYS_MAX
            # Depth counts containers, so a map's values are one level down.
            and _is_plain(item, depth - 1)
            for key, item in value.items()
        )
    return isinstance(value, bytes)


def requested(grant: Grant) -> tuple[PublicKey, LeaseRequest]:
    """The renter and what it asked for; the seal is judged where the entry is taken.

    Raises PeerFault `codec.*`.
    """
    envelope = decode(grant.request, Envelope, size_max=REQUEST_BYTES_MAX)
    return envelope.k, decode(envelope.b, LeaseRequest, size_max=QUOTE_BYTES_MAX)


def consent_bytes(grant: Digest, units: tuple[tuple[bytes, int], ...], at_ms: Millis) -> bytes:
    """What a renter signs to let a lease end early: the grant, its units and counters, the time.

    It names the units, so that consent for one of them cannot be used for another.
    """
    return encode_plain([grant, [list(unit) for unit in units], at_ms])
