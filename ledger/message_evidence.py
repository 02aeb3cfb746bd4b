"""Proof by what an author sealed outside its feed: A8, A9, A13, A16. SPEC.md section 8."""

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta

from ledger.bodies import Grant, requested
from ledger.entry import Entry
from ledger.judging import (
    Offence,
    RawEntry,
    RawHeader,
    judged,
    read_shape,
    signed_header,
    void,
)
from ledger.keys import number
from ledger.witness_bodies import COSIGN_DOMAIN, Cosign, read_cosign
from protocol.auction import Bid, BidCommit, BidReveal, hidden_bid
from protocol.codec import Key, Seal, Wire, decode, encode
from protocol.errors import PeerFault
from protocol.limits import COSIGN_BYTES_MAX, QUOTE_BYTES_MAX, REVEAL_BYTES_MAX, SEAL_BYTES
from protocol.signing import is_signed
from protocol.tick import Tick
from protocol.units import Millis, NetId, PublicKey, Signature
from protocol.wire import Envelope, unpack

BROKEN_BID: Final = b"\x08"
BAD_REVEAL: Final = b"\x09"
COSIGNED_TWICE: Final = b"\x0d"
FALSE_TIME: Final = b"\x10"

SealedQuote = Annotated[bytes, Meta(max_length=QUOTE_BYTES_MAX + SEAL_BYTES)]
SealedReveal = Annotated[bytes, Meta(max_length=REVEAL_BYTES_MAX + SEAL_BYTES)]
RawCosign = Annotated[bytes, Meta(max_length=COSIGN_BYTES_MAX)]


class BidAndGrant(Wire, frozen=True, array_like=True):
    """A8: an exclusive bid, and the GRANT of the same turn to somebody else."""

    rule: Literal[8]
    bid: SealedQuote
    grant: RawEntry


class CommitAndReveal(Wire, frozen=True, array_like=True):
    """A9: what was hidden, and something else that was shown."""

    rule: Literal[9]
    commit: SealedQuote
    reveal: SealedReveal


class TwoCosigns(Wire, frozen=True, array_like=True):
    """A13: a witness's signatures for two grants of one turn."""

    rule: Literal[13]
    witness: Key
    first: RawCosign
    sig1: Seal
    second: RawCosign
    sig2: Seal


class MessageAndHeader(Wire, frozen=True, array_like=True):
    """A16: a sealed tick or bid, and a header of the same feed that gives the lie to its time."""

    rule: Literal[16]
    message: SealedQuote
    hdr: RawHeader
    sig: Seal


def prove_broken_bid(bid: bytes, grant: Entry) -> bytes:
    """Evidence from a sealed exclusive bid and the GRANT that breaks it."""
    return encode(BidAndGrant(8, bid, grant.raw))


def prove_bad_reveal(commit: bytes, reveal: bytes) -> bytes:
    """Evidence from a sealed commit and the sealed reveal that does not fit it."""
    return encode(CommitAndReveal(9, commit, reveal))


def prove_cosigned_twice(
    witness: PublicKey, one: tuple[bytes, Signature], other: tuple[bytes, Signature]
) -> bytes:
    """Evidence from two encoded cosignatures of one witness, each with its signature."""
    first, second = sorted((one, other))
    return encode(TwoCosigns(13, witness, *first, *second))


def prove_false_time(message: bytes, entry: Entry) -> bytes:
    """Evidence from a sealed tick or bid, and an entry of the same feed."""
    return encode(MessageAndHeader(16, message, entry.draft.hdr, entry.signature))


def check_broken_bid(raw: bytes, net: NetId) -> Offence:
    """The broken bid that this A8 proves. Raises PeerFault."""
    evidence = read_shape(raw, BidAndGrant)
    bid, granted = unpack(evidence.bid, net, Bid), judged(evidence.grant, net)
    if not isinstance(granted.body, Grant):
        raise void("not a GRANT")
    promised = [(each.unit, each.ctr) for each in bid.body.units]
    given = [(turn.unit, turn.ctr) for turn in granted.body.units]
    renter, _ = requested(granted.body)
    is_broken = (
        bid.signer == granted.feed
        and bid.body.exclusive is not UNSET
        and any(turn in given for turn in promised)
        and renter != bid.body.renter
        and bid.body.issued_ms <= granted.entry.header.ts_ms <= bid.body.valid_until_ms
    )
    if not is_broken:
        raise void("the bid was kept, or did not promise this")
    key = BROKEN_BID + bid.digest
    return Offence(rule="A8", offender=bid.signer, key=key)


def check_bad_reveal(raw: bytes, net: NetId) -> Offence:
    """The bad reveal that this A9 proves. Raises PeerFault."""
    evidence = read_shape(raw, CommitAndReveal)
    commit = unpack(evidence.commit, net, BidCommit)
    reveal = unpack(evidence.reveal, net, BidReveal)
    if commit.signer != reveal.signer or reveal.body.commit != commit.digest:
        raise void("not of each other")
    if hidden_bid(reveal.body.salt, reveal.body.bid) == commit.body.hidden:
        raise void("it is what was hidden")
    key = BAD_REVEAL + commit.digest
    return Offence(rule="A9", offender=commit.signer, key=key)


def check_two_cosigns(raw: bytes, net: NetId) -> Offence:
    """The double cosignature that this A13 proves. Raises PeerFault."""
    evidence = read_shape(raw, TwoCosigns)
    one = _cosigned(evidence.witness, evidence.first, evidence.sig1, net)
    other = _cosigned(evidence.witness, evidence.second, evidence.sig2, net)
    is_proved = (
        (one.owner, one.unit, one.ctr) == (other.owner, other.unit, other.ctr)
        and one.grant != other.grant
        and evidence.first < evidence.second
    )
    if not is_proved:
        raise void("not two grants of one turn, or in the wrong order")
    return Offence(rule="A13", offender=evidence.witness, key=cosigned_twice_key(one))


def cosigned_twice_key(said: Cosign) -> bytes:
    """Names an A13 by its turn."""
    return COSIGNED_TWICE + said.owner + said.unit + number(said.ctr)


def _cosigned(witness: PublicKey, raw: bytes, by: Signature, net: NetId) -> Cosign:
    said = read_cosign(raw)
    if not is_signed(witness, COSIGN_DOMAIN, net, raw, by=by):
        raise PeerFault("evidence.seal")
    return said


def check_false_time(raw: bytes, net: NetId) -> Offence:
    """The false time that this A16 proves. Raises PeerFault."""
    evidence = read_shape(raw, MessageAndHeader)
    signer, height, at_ms, is_durable = _timed(evidence.message, net)
    header = signed_header(evidence.hdr, evidence.sig, net)
    if header.feed != signer:
        raise void("two authors")
    is_backdated_message = header.seq <= height and header.ts_ms > at_ms
    # A bid is not kept by who makes it, so an honest owner may forget its time in a crash.
    is_backdated_entry = is_durable and header.seq > height and header.ts_ms < at_ms
    if not (is_backdated_message or is_backdated_entry):
        raise void("the times fit")
    key = FALSE_TIME + number(header.seq)
    return Offence(rule="A16", offender=signer, key=key)


def _timed(message: bytes, net: NetId) -> tuple[PublicKey, int, Millis, bool]:
    """Who sealed it, at what height of its feed, when, and whether it is kept by its author."""
    kind = decode(message, Envelope, size_max=QUOTE_BYTES_MAX + SEAL_BYTES).t
    if kind == "tick":
        tick = unpack(message, net, Tick)
        return tick.signer, tick.body.head_seq, tick.body.at_ms, True
    bid = unpack(message, net, Bid)
    return bid.signer, bid.body.head_seq, bid.body.issued_ms, False
