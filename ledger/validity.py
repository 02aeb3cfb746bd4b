"""Whether an entry of a known kind holds by itself. SPEC.md section 3. Looks at no other entry."""

from msgspec import UNSET

from ledger.bodies import (
    Body,
    Genesis,
    Grant,
    GrantTurn,
    Interval,
    Release,
    ReleaseTurn,
    Statement,
    consent_bytes,
)
from ledger.entry import NO_ENTRY, Header
from protocol.certificate import check_in_force, read_certificate
from protocol.errors import PeerFault
from protocol.lease import LeaseRequest
from protocol.signing import is_signed
from protocol.units import Digest, Millis, NetId, PublicKey
from protocol.wire import unpack


def check_body(body: Body | None, header: Header, net: NetId) -> None:
    """Raises PeerFault with one of the rules of SPEC.md section 3; unknown kinds have none."""
    if isinstance(body, Genesis):
        _check_genesis(body, header, net)
    elif isinstance(body, Grant):
        _check_turns(body.units, header)
        _check_grant(body, header)
        _check_request(body, header, net)
    elif isinstance(body, Release):
        _check_turns(body.units, header)
        _check_release(body)
    elif isinstance(body, Statement) and body.peer == header.feed:
        raise PeerFault("statement.peer", "an account has two sides")


def _check_genesis(body: Genesis, header: Header, net: NetId) -> None:
    certificate = read_certificate(body.certificate, net)
    if certificate.feed != header.feed:
        raise PeerFault("genesis.feed", "the certificate is another feed's")
    check_in_force(certificate, header.ts_ms)


def _check_turns(turns: tuple[GrantTurn | ReleaseTurn, ...], header: Header) -> None:
    if len(dict.fromkeys(turn.unit for turn in turns)) != len(turns):
        raise PeerFault("turn.units", "a unit comes twice")
    for turn in turns:
        if turn.ctr == 0:
            follows = turn.gseq == 0 and turn.gprev == NO_ENTRY
        else:
            follows = 0 < turn.gseq < header.seq
        if not follows:
            raise PeerFault("turn.chain", f"counter {turn.ctr} after entry {turn.gseq}")
        _check_open(turn, header.ts_ms)


def _check_open(turn: GrantTurn | ReleaseTurn, ts_ms: Millis) -> None:
    if list(turn.open) != sorted(turn.open):
        raise PeerFault("turn.open", "not sorted")
    for each in turn.open:
        if not each.start_ms < each.end_ms or each.end_ms <= ts_ms or each.ctr > turn.ctr:
            raise PeerFault("turn.open", "empty, over, or of a later counter")


def _check_grant(body: Grant, header: Header) -> None:
    if not header.ts_ms <= body.start_ms < body.end_ms:
        raise PeerFault("grant.interval", "starts before it is written, or does not end after")
    for turn in body.units:
        if Interval(body.start_ms, body.end_ms, turn.ctr) not in turn.open:
            raise PeerFault("grant.open", "lacks the interval that is granted")
    named = 0 if body.witnesses is UNSET else len(dict.fromkeys(body.witnesses))
    wanted = 0 if body.quorum is UNSET else body.quorum
    if (named == 0) != (wanted == 0) or wanted > named:
        raise PeerFault("grant.witness", f"{wanted} of {named}")


def _check_request(body: Grant, header: Header, net: NetId) -> None:
    request = unpack(body.request, net, LeaseRequest).body
    if request.owner != header.feed:
        raise PeerFault("grant.owner", "the request is to another owner")
    if (request.start_ms, request.end_ms) != (body.start_ms, body.end_ms):
        raise PeerFault("grant.interval", "not the one that was asked for")
    if [(each.unit, each.ctr) for each in request.units] != [
        (turn.unit, turn.ctr) for turn in body.units
    ]:
        raise PeerFault("grant.units", "not those that were asked for")
    if header.ts_ms > request.not_after_ms:
        raise PeerFault("grant.late", "the request bound nobody any more")


def _check_release(body: Release) -> None:
    if any(turn.lctr >= turn.ctr for turn in body.units):
        raise PeerFault("release.counter", "ends a lease that comes later")
    if (body.reason == "consent") != (body.consent is not UNSET):
        raise PeerFault("release.consent", body.reason)


def is_consented(release: Release, renter: PublicKey, net: NetId) -> bool:
    """Whether the renter signed that the lease may end so."""
    if release.consent is UNSET:
        return False
    units = tuple((turn.unit, turn.lctr) for turn in release.units)
    signed = consent_bytes(Digest(release.grant), units, release.at_ms)
    return is_signed(renter, "release-consent", net, signed, by=release.consent)
