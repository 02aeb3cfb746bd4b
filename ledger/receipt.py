"""One lease in one file that anybody can check offline. SPEC.md section "Receipts".

It holds what both sides signed: the GRANT (with the renter's request in it) and the ACCEPT, the
last tick with both signatures, the outcome, and both halves of the account.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from ledger.bodies import Accept, Grant, Statement, read_body, requested
from ledger.entry import Entry, check_seal, read_entry
from ledger.limits import ENTRY_BYTES_MAX, RECEIPT_BYTES_MAX
from ledger.validity import check_body
from ledger.witness_bodies import witnesses_of
from protocol.certificate import Certificate, SignedCertificate, read_certificate
from protocol.codec import Seal, Wire, decode
from protocol.errors import PeerFault
from protocol.lease import LeaseRequest, charge
from protocol.limits import CERTIFICATE_BYTES_MAX, OUTCOME_BYTES_MAX, SEAL_BYTES, TICK_BYTES_MAX
from protocol.signing import is_signed
from protocol.tick import COSIGN_DOMAIN, Outcome, Tick
from protocol.units import Digest, Millis, NetId, PublicKey
from protocol.wire import Envelope, Sealed, unpack

RawEntry = Annotated[bytes, Meta(max_length=ENTRY_BYTES_MAX)]
RawCertificate = Annotated[bytes, Meta(max_length=CERTIFICATE_BYTES_MAX)]


class Receipt(Wire, frozen=True, kw_only=True):
    """The file. What is absent was never signed; what is there is judged, whatever it counts."""

    v: Literal[1] = 1
    grant: RawEntry
    accept: RawEntry
    tick: Annotated[bytes, Meta(max_length=TICK_BYTES_MAX + SEAL_BYTES)] | UnsetType = UNSET
    cosign: Seal | UnsetType = UNSET
    outcome: Annotated[bytes, Meta(max_length=OUTCOME_BYTES_MAX + SEAL_BYTES)]
    owner_half: RawEntry | UnsetType = UNSET
    renter_half: RawEntry | UnsetType = UNSET
    owner: RawCertificate
    renter: RawCertificate


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """What a receipt that holds says."""

    lease: Digest
    owner: PublicKey
    renter: PublicKey
    request: LeaseRequest
    outcome: Outcome
    accounts: tuple[PublicKey, PublicKey]
    """Root keys of owner and renter, by their certificates."""
    granted_ms: Millis
    """When the owner wrote its half, by its own clock."""
    is_metered: bool
    """Whether a tick with both signatures is there."""
    used_ms: int
    amount_micro: int
    """By the last co-signed tick; zero without one."""
    is_settled: bool
    """Whether both halves of the account are there and agree."""
    witnesses: tuple[PublicKey, ...]
    """Those of the renter's choice that had cosigned the GRANT when it was accepted."""
    is_witnessed: bool
    """Whether they are as many as the request asks for; a request without any is not."""


def check_receipt(raw: bytes, net: NetId) -> Proven:
    """What this receipt proves.

    Raises PeerFault `receipt.*`, or the rule of the part that is bad. That the owner's outcome is
    true is claimed by the owner; that the renter owes the amount is proved by its signature.
    """
    receipt = _read(raw)
    grant = _entry(receipt.grant, net)
    body = read_body(grant.draft)
    if not isinstance(body, Grant):
        raise PeerFault("receipt.grant")
    renter, request = requested(body)
    accounts = (
        _check_certificate(receipt.owner, grant.feed, net).root,
        _check_certificate(receipt.renter, renter, net).root,
    )
    accept = _entry(receipt.accept, net)
    said = read_body(accept.draft)
    if not isinstance(said, Accept) or said.grant != grant.id or accept.feed != renter:
        raise PeerFault("receipt.accept")
    outcome = unpack(receipt.outcome, net, Outcome)
    if outcome.signer != grant.feed or outcome.body.lease != grant.id:
        raise PeerFault("receipt.outcome")
    tick = _check_tick(receipt, grant, (renter, request), net)
    witnesses = _witnesses(said, grant.feed, request)
    return Proven(
        lease=grant.id,
        owner=grant.feed,
        renter=renter,
        request=request,
        outcome=outcome.body,
        accounts=accounts,
        granted_ms=grant.header.ts_ms,
        is_metered=tick is not None,
        used_ms=0 if tick is None else tick.body.used_ms,
        amount_micro=0 if tick is None else tick.body.amount_micro,
        is_settled=_are_halves_equal(receipt, (grant, renter), tick, net),
        witnesses=witnesses,
        is_witnessed=request.quorum is not UNSET and len(witnesses) >= request.quorum,
    )


def _witnesses(accept: Accept, owner: PublicKey, request: LeaseRequest) -> tuple[PublicKey, ...]:
    if accept.cosigned is UNSET or request.witnesses is UNSET:
        return ()
    return witnesses_of(accept.cosigned, owner=owner, turns=request.units, named=request.witnesses)


def net_named_by(raw: bytes) -> NetId:
    """The network of which this says to be a receipt; `check_receipt` with it proves that.

    Raises PeerFault `codec.*` or `receipt.version`.
    """
    signed = decode(_read(raw).owner, SignedCertificate, size_max=CERTIFICATE_BYTES_MAX)
    return decode(signed.b, Certificate, size_max=CERTIFICATE_BYTES_MAX).net


def _read(raw: bytes) -> Receipt:
    # Of canonical keys the shortest is first, so the version is always the fourth byte.
    if raw[1:3] == b"\x61v" and raw[3:4] != b"\x01" and len(raw) <= RECEIPT_BYTES_MAX:
        raise PeerFault("receipt.version", "a version that is not known here")
    return decode(raw, Receipt, size_max=RECEIPT_BYTES_MAX)


def _entry(raw: bytes, net: NetId) -> Entry:
    entry = read_entry(raw, net)
    check_seal(entry, net)
    check_body(read_body(entry.draft), entry.header, net)
    return entry


def _check_certificate(raw: bytes, feed: PublicKey, net: NetId) -> Certificate:
    certificate = read_certificate(raw, net)
    if certificate.feed != feed:
        raise PeerFault("receipt.certificate")
    return certificate


def _check_tick(
    receipt: Receipt, grant: Entry, by: tuple[PublicKey, LeaseRequest], net: NetId
) -> Sealed[Tick] | None:
    """The last tick if both have signed it; None if there is none, or only the owner's seal."""
    renter, request = by
    if receipt.tick is UNSET:
        if receipt.cosign is not UNSET:
            raise PeerFault("receipt.cosign", "it signs nothing that is here")
        return None
    tick = unpack(receipt.tick, net, Tick)
    if tick.signer != grant.feed or tick.body.lease != grant.id:
        raise PeerFault("receipt.tick")
    if tick.body.amount_micro != charge(tick.body.used_ms, request.micro_per_gpu_hour):
        raise PeerFault("receipt.amount")
    if receipt.cosign is UNSET:
        return None
    envelope = decode(receipt.tick, Envelope, size_max=TICK_BYTES_MAX + SEAL_BYTES)
    if not is_signed(renter, COSIGN_DOMAIN, net, envelope.b, by=receipt.cosign):
        raise PeerFault("receipt.cosign")
    return tick


def _are_halves_equal(
    receipt: Receipt, of: tuple[Entry, PublicKey], tick: Sealed[Tick] | None, net: NetId
) -> bool:
    """Whether both halves are there; they then say the same, and rest on the tick that is here."""
    grant, renter = of
    owners = _half(receipt.owner_half, (grant.feed, renter), grant.id, net)
    renters = _half(receipt.renter_half, (renter, grant.feed), grant.id, net)
    if owners is None or renters is None:
        return False
    (owners_entry, one), (_, other) = owners, renters
    same = (
        other.half == owners_entry.id
        and one.tick == other.tick == (UNSET if tick is None else tick.digest)
        and (one.ctr, one.used_ms, one.amount_micro, one.money)
        == (other.ctr, other.used_ms, other.amount_micro, other.money)
    )
    if not same:
        raise PeerFault("receipt.half", "the two halves do not say the same")
    return True


def _half(
    raw: bytes | UnsetType, sides: tuple[PublicKey, PublicKey], lease: Digest, net: NetId
) -> tuple[Entry, Statement] | None:
    """One side's half, which is about this lease of these two; None if it is not there."""
    if raw is UNSET:
        return None
    entry = _entry(raw, net)
    said = read_body(entry.draft)
    if not isinstance(said, Statement):
        raise PeerFault("receipt.half", "no statement")
    if (entry.feed, said.peer) != sides or said.lease != lease:
        raise PeerFault("receipt.half", "of another feed, peer or lease")
    return entry, said
