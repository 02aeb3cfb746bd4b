"""Whether an entry of a known kind holds by itself. SPEC.md section 3. Looks at no other entry."""

from collections.abc import Hashable, Iterable
from itertools import pairwise
from typing import Final

from msgspec import UNSET

from ledger.bodies import (
    Accept,
    Body,
    Genesis,
    Grant,
    GrantTurn,
    Rail,
    Release,
    ReleaseTurn,
    Statement,
    consent_bytes,
)
from ledger.capability_bodies import Capacity, Challenge, Claim, Response
from ledger.continuity_bodies import (
    SUCCESSOR_DOMAIN,
    Checkpoint,
    RulesSignal,
    Successor,
    covers,
    row_keys,
    successor_bytes,
)
from ledger.entry import NO_ENTRY, Header
from ledger.intervals import Interval
from ledger.rail_bodies import RailCapture, RailHold, RailVoid
from ledger.witness_bodies import COSIGN_DOMAIN, CosignLog, Probe, cosigns_in
from protocol.certificate import check_in_force, read_certificate
from protocol.codec import encode
from protocol.errors import PeerFault
from protocol.lease import LeaseRequest, witnesses_fault
from protocol.rail import Act, RailReceipt, check_rail_receipt
from protocol.signing import is_signed
from protocol.units import Digest, Millis, NetId, PublicKey
from protocol.wire import unpack

_ACTS: Final[dict[type[Rail], Act]] = {
    RailHold: "hold",
    RailCapture: "capture",
    RailVoid: "void",
}


def check_body(body: Body | None, header: Header, net: NetId) -> None:
    """Raises PeerFault with one of the rules of SPEC.md section 3; unknown kinds have none."""
    match body:
        case Genesis():
            _check_genesis(body, header, net)
        case Grant():
            _check_turns(body.units, header)
            _check_grant(body, header)
            _check_request(body, header, net)
        case Release():
            _check_turns(body.units, header)
            _check_release(body)
        case Statement():
            if body.peer == header.feed:
                raise PeerFault("statement.peer", "an account has two sides")
        case Capacity():
            _check_once("capacity.units", (each.unit for each in body.units))
            _check_once("capacity.units", (each.fingerprint for each in body.units))
        case Response():
            _check_once("response.rows", (each.row for each in body.rows))
        case CosignLog():
            _check_once("cosign.twice", ((each.owner, each.unit, each.ctr) for each in body.items))
        case RailHold() | RailCapture() | RailVoid():
            _check_rail(body, header, net)
        case Checkpoint():
            _check_checkpoint(body, header)
        case Successor():
            _check_successor(body, header, net)
        case Accept():
            _check_accept(body, net)
        case None | Claim() | Challenge() | Probe() | RulesSignal():
            pass


def _check_once(rule: str, values: Iterable[Hashable]) -> None:
    listed = list(values)
    if len(dict.fromkeys(listed)) != len(listed):
        raise PeerFault(rule, "something comes twice")


def _check_genesis(body: Genesis, header: Header, net: NetId) -> None:
    certificate = read_certificate(body.certificate, net)
    if certificate.feed != header.feed:
        raise PeerFault("genesis.feed", "the certificate is another feed's")
    check_in_force(certificate, header.ts_ms)


def _check_turns(turns: tuple[GrantTurn | ReleaseTurn, ...], header: Header) -> None:
    _check_once("turn.units", (turn.unit for turn in turns))
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


def _check_request(body: Grant, header: Header, net: NetId) -> None:
    sealed = unpack(body.request, net, LeaseRequest)
    request = sealed.body
    if request.owner != header.feed:
        raise PeerFault("grant.owner", "the request is to another owner")
    if (request.start_ms, request.end_ms) != (body.start_ms, body.end_ms):
        raise PeerFault("grant.interval", "not the one that was asked for")
    if [(each.unit, each.ctr) for each in request.units] != [
        (turn.unit, turn.ctr) for turn in body.units
    ]:
        raise PeerFault("grant.units", "not those that were asked for")
    if (body.witnesses, body.quorum) != (request.witnesses, request.quorum):
        raise PeerFault("grant.witness", "not those that were asked for")
    if why := witnesses_fault(request, sealed.signer):
        raise PeerFault("grant.witness", why)
    if header.ts_ms > request.not_after_ms:
        raise PeerFault("grant.late", "the request bound nobody any more")


def _check_accept(body: Accept, net: NetId) -> None:
    if body.cosigned is UNSET:
        return
    _check_once("accept.witness", (turn.unit for turn in body.cosigned.turns))
    witnesses = [each.witness for each in body.cosigned.by]
    if witnesses != sorted(dict.fromkeys(witnesses)):
        raise PeerFault("accept.witness", "a witness twice, or out of order")
    for each in body.cosigned.by:
        if len(each.by) != len(body.cosigned.turns):
            raise PeerFault("accept.witness", "signatures for other turns")
    for witness, said, by in cosigns_in(body.cosigned, Digest(body.grant)):
        if not is_signed(witness, COSIGN_DOMAIN, net, encode(said), by=by):
            raise PeerFault("accept.witness", "not signed by the witness")


def _check_release(body: Release) -> None:
    if any(turn.lctr >= turn.ctr for turn in body.units):
        raise PeerFault("release.counter", "ends a lease that comes later")
    if (body.reason == "consent") != (body.consent is not UNSET):
        raise PeerFault("release.consent", body.reason)


def _check_rail(body: Rail, header: Header, net: NetId) -> None:
    receipt = unpack(body.receipt, net, RailReceipt).body
    check_rail_receipt(receipt)
    if receipt.act != _ACTS[type(body)]:
        raise PeerFault("rail.act", receipt.act)
    if header.feed not in (receipt.payer, receipt.payee):
        raise PeerFault("rail.parties", "told by neither of them")


def _check_checkpoint(body: Checkpoint, header: Header) -> None:
    if body.upto >= header.seq:
        raise PeerFault("checkpoint.place", "says what comes later")
    if body.stop is not UNSET and body.stop <= body.start:
        raise PeerFault("checkpoint.range", "stops before it starts")
    keys = list(row_keys(body))
    if any(one >= other for one, other in pairwise(keys)):
        raise PeerFault("checkpoint.rows", "out of order, or twice")
    if not all(covers(body, key) for key in keys):
        raise PeerFault("checkpoint.rows", "outside the range")
    places = [*(row.seq for row in body.units), *(row.seq for row in body.accounts)]
    if any(place > body.upto for place in places):
        raise PeerFault("checkpoint.rows", "of a later entry")


def _check_successor(body: Successor, header: Header, net: NetId) -> None:
    ended = read_certificate(body.certificate, net)
    if ended.feed == header.feed:
        raise PeerFault("successor.feed", "a feed does not follow itself")
    _check_once("successor.units", (each.unit for each in body.units))
    said = successor_bytes(body, header.feed)
    if not is_signed(ended.root, SUCCESSOR_DOMAIN, net, said, by=body.by):
        raise PeerFault("successor.seal", "not by the root key of the feed that ended")


def is_consented(release: Release, renter: PublicKey, net: NetId) -> bool:
    """Whether the renter signed that the lease may end so."""
    if release.consent is UNSET:
        return False
    units = tuple((turn.unit, turn.lctr) for turn in release.units)
    signed = consent_bytes(Digest(release.grant), units, release.at_ms)
    return is_signed(renter, "release-consent", net, signed, by=release.consent)
