"""Offenders: for each rule what proves it, and what an honest author would have signed instead."""

from dataclasses import dataclass
from typing import Final

import msgspec
import pytest
from msgspec import UNSET

from ledger.bodies import Grant, Release, Statement, consent_bytes
from ledger.capability_bodies import (
    ROWS_WORK,
    Capacity,
    CapacityUnit,
    Claim,
    Response,
    RowAnswer,
)
from ledger.continuity_bodies import (
    SUCCESSOR_DOMAIN,
    AccountRow,
    Checkpoint,
    Successor,
    SuccessorUnit,
    UnitRow,
    successor_bytes,
)
from ledger.entry import Entry
from ledger.entry_evidence import (
    prove_alias,
    prove_false_account,
    prove_false_checkpoint,
    prove_two_verdicts,
    prove_wrong_answer,
)
from ledger.evidence import check
from ledger.fork_evidence import prove_fork, prove_fork_by_path
from ledger.message_evidence import (
    prove_bad_reveal,
    prove_broken_bid,
    prove_cosigned_twice,
    prove_false_time,
)
from ledger.row_work import row_digest
from ledger.unit_evidence import (
    prove_bad_turn,
    prove_broken_chain,
    prove_early_release,
    prove_same_counter,
)
from ledger.witness_bodies import Cosign, Probe, Verdict, sign_cosign
from protocol.auction import Bid, BidCommit, BidReveal, hidden_bid
from protocol.codec import encode
from protocol.errors import PeerFault
from protocol.lease import LeaseRequest, Terms, UnitTurn
from protocol.rail import RailReceipt
from protocol.signing import Signer
from protocol.tick import Tick
from protocol.units import Digest, Micros, MillisSpan, Signature
from protocol.wire import pack, unpack
from tests.make_ledger import (
    HOUR,
    NET,
    OWNER,
    RENTER,
    STRANGER,
    UNIT,
    UNIT2,
    Feed,
    at,
    certificate,
    grant,
    release,
    root_of,
    sealed,
    signer,
    statement,
    turn_of,
)

changed: Final = msgspec.structs.replace
SEED: Final = Digest(b"s" * 32)
DEVICE: Final = Digest(b"d" * 32)
LEASE: Final = Digest(b"l" * 32)


def feed(of: Signer = OWNER) -> Feed:
    """A feed with its entry 0."""
    new = Feed(of)
    new.open()
    return new


def leased(request: LeaseRequest | None = None) -> tuple[Feed, Entry, Grant]:
    """A feed in which UNIT is leased for an hour from 1,000 on."""
    by = feed()
    body = grant()
    if request is not None:
        body = changed(body, request=sealed(request))
    return by, by.add(body), body


def ended(granted: Entry, body: Grant, **fields: object) -> Release:
    """A RELEASE of that lease at 2,000, with these fields otherwise."""
    return changed(release(turn_of(granted, body), granted, at_ms=2_000), **fields)


def consent(grant_id: Digest, at_ms: int, *, by: Signer = RENTER) -> Signature:
    return by.sign("release-consent", NET, consent_bytes(grant_id, ((UNIT, 0),), at(at_ms)))


def tick(lease: Digest, *, used: int = 0, at_ms: int = 2_000, height: int = 1) -> Tick:
    return Tick(
        lease=lease,
        n=1,
        used_ms=MillisSpan(used),
        amount_micro=Micros(0),
        at_ms=at(at_ms),
        head_seq=height,
    )


def sealed_tick(said: Tick, *, by: Signer = OWNER) -> bytes:
    return pack(said, signer=by, net=NET)


def bid(**fields: object) -> Bid:
    """An exclusive bid of UNIT's first turn to STRANGER, valid for a second."""
    made = Bid(
        rfq=Digest(b"r" * 32),
        renter=STRANGER.public,
        group=bytes(16),
        units=(UnitTurn(unit=UNIT, ctr=0),),
        tier="bronze",
        start_ms=at(1_000),
        end_ms=at(1_000 + HOUR),
        micro_per_gpu_hour=Micros(250_000),
        money="USD",
        period_ms=MillisSpan(60_000),
        notice_ms=MillisSpan(30_000),
        lapse_ms=MillisSpan(60_000),
        terms=Terms(isolation="container"),
        gpu="nvml",
        head_seq=0,
        issued_ms=at(0),
        valid_until_ms=at(1_000),
        exclusive="yes",
    )
    return changed(made, **fields)


def sealed_bid(**fields: object) -> bytes:
    return pack(bid(**fields), signer=OWNER, net=NET)


def commit(salt: bytes, hidden: bytes) -> bytes:
    return pack(
        BidCommit(
            rfq=Digest(b"r" * 32),
            hidden=hidden_bid(salt, hidden),
            issued_ms=at(0),
        ),
        signer=OWNER,
        net=NET,
    )


def reveal(committed: Digest, salt: bytes, shown: bytes, *, by: Signer = OWNER) -> bytes:
    return pack(BidReveal(commit=committed, bid=shown, salt=salt), signer=by, net=NET)


def capacity(unit: bytes = UNIT, device: Digest = DEVICE) -> Capacity:
    return Capacity(units=(CapacityUnit(unit, device, "card", 24_576),), gpu="nvml")


def claim(size: int = 16, work: str = ROWS_WORK) -> Claim:
    return Claim(unit=UNIT, work=work, size=size, time_ms=MillisSpan(1_000))


def answer(claimed: Entry, *, wrong: tuple[int, ...] = (), size: int = 16) -> Response:
    """An answer about the first four rows, of which those at these places are wrong."""
    rows = [
        RowAnswer(row, DEVICE if row in wrong else row_digest(SEED, size, row)) for row in range(4)
    ]
    return Response(claim=claimed.id, challenge=LEASE, seed=SEED, rows=tuple(rows))


def probe(verdict: Verdict = "ok", period: int = 3) -> Probe:
    return Probe(lease=LEASE, period=period, verdict=verdict)


def cosign(grant_id: bytes, *, ctr: int = 0) -> Cosign:
    return Cosign(OWNER.public, UNIT, ctr, Digest(grant_id), at(5))


def signed_cosign(said: Cosign, *, by: Signer = STRANGER) -> tuple[bytes, Signature]:
    return encode(said), sign_cosign(said, signer=by, net=NET)


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A feed with a lease of UNIT at entry 1 and a statement to RENTER at entry 2."""

    feed: Feed
    granted: Entry
    grant: Grant
    owed: Entry
    statement: Statement

    def checkpoint(self, **fields: object) -> Checkpoint:
        """What is true of entries 0 to 2, with these fields otherwise."""
        turn = self.grant.units[0]
        unit = UnitRow(UNIT, turn.ctr, self.granted.seq, self.granted.id, turn.open)
        said = self.statement
        account = AccountRow(
            said.peer, said.money, 0, said.ctr, self.owed.seq, self.owed.id,
            said.used_ms, said.amount_micro,
        )  # fmt: skip
        whole = Checkpoint(
            upto=self.owed.seq,
            upto_id=self.owed.id,
            start=b"",
            stop=UNSET,
            units=(unit,),
            accounts=(account,),
        )
        return changed(whole, **fields)


def past() -> Past:
    by, granted, body = leased()
    said = statement(ctr=1, used=60_000)
    return Past(feed=by, granted=granted, grant=body, owed=by.add(said), statement=said)


def forked_by_path() -> tuple[Entry, tuple[Entry, ...]]:
    """An entry, and a branch of three that parts at its place."""
    by = feed()
    other = by.branch()
    one = by.add(statement(ctr=1))
    branch = tuple(other.add(statement(ctr=n)) for n in (2, 3, 4))
    return one, branch


def double_grant() -> tuple[Entry, Entry]:
    """Two GRANTs of one turn that stand one behind the other."""
    by, first, _ = leased()
    return first, by.add(grant(start=2 * HOUR, end=3 * HOUR, nonce=1))


def proofs() -> dict[str, bytes]:
    """One proof of each offence by OWNER, A13 by STRANGER."""
    by = feed()
    other = by.branch()
    one, two = by.add(statement(ctr=1)), other.add(statement(ctr=2))
    after_two = other.add(statement(ctr=3))
    fork, link = prove_fork(one, two), prove_fork(one, after_two)
    assert fork is not None
    assert link is not None
    parted, branch = forked_by_path()
    hist = past()
    again = feed()
    claimed = again.add(claim())
    mine, granted, body = leased()
    early = mine.add(ended(granted, body, reason="end"))
    broken = grant(turn_of(granted, body), start=2 * HOUR, end=3 * HOUR)
    turn = changed(broken.units[0], gprev=Digest(b"x" * 32))
    salt = bytes(16)
    committed = commit(salt, b"one")
    return {
        "A1": fork,
        "A2": link,
        "A3": prove_fork_by_path(parted, tuple(e.draft for e in branch[:-1]), branch[-1]),
        "A4": prove_same_counter(UNIT, *double_grant()),
        "A5": prove_bad_turn(UNIT, feed().add(grant(opens=((1, 9, 0), (1_000, 1_000 + HOUR, 0))))),
        "A6": prove_broken_chain(UNIT, granted, mine.add(changed(broken, units=(turn,)))),
        "A7": prove_early_release(granted, early),
        "A8": prove_broken_bid(sealed_bid(), granted),
        "A9": prove_bad_reveal(committed, reveal(digest_of(committed), salt, b"two")),
        "A10": prove_false_account(hist.owed, hist.feed.add(statement(ctr=2, used=1))),
        "A11": prove_wrong_answer(claimed, again.add(answer(claimed, wrong=(1, 2))), (1, 2)),
        "A12": prove_alias(again.add(capacity()), again.add(capacity(UNIT2))),
        "A13": prove_cosigned_twice(
            STRANGER.public,
            signed_cosign(cosign(b"1" * 32)),
            signed_cosign(cosign(b"2" * 32)),
        ),
        "A14": prove_two_verdicts(again.add(probe()), again.add(probe("fail"))),
        "A15": prove_false_checkpoint(hist.feed.add(hist.checkpoint(units=())), hist.granted),
        "A16": prove_false_time(sealed_tick(tick(granted.id, at_ms=-1)), granted),
    }


def digest_of(committed: bytes) -> Digest:
    """What a reveal names a sealed commit by."""
    return unpack(committed, NET, BidCommit).digest


def rail_receipt(**fields: object) -> RailReceipt:
    """A hold of OWNER's lease, paid by RENTER, of a rail that moves no money."""
    made = RailReceipt(
        rail="test",
        act="hold",
        lease=LEASE,
        payer=RENTER.public,
        payee=OWNER.public,
        amount_micro=Micros(5),
        money="USD",
        issued_ms=at(0),
        expires_ms=at(9),
        simulated="yes",
    )
    return changed(made, **fields)


def sealed_receipt(**fields: object) -> bytes:
    return pack(rail_receipt(**fields), signer=signer(9), net=NET)


def successor(
    old: Signer = RENTER, into: Signer = OWNER, *, ended: int = 7, **fields: object
) -> Successor:
    """`into` goes on where `old` ended; signed by the root key that `old` has."""
    plain = Successor(
        certificate=certificate(old),
        ended=ended,
        at_ms=at(0),
        units=(SuccessorUnit(UNIT, 3, LEASE, ()),),
        by=Signature(bytes(64)),
    )
    said = successor_bytes(plain, into.public)
    by = root_of(old).sign(SUCCESSOR_DOMAIN, NET, said)
    return changed(changed(plain, by=by), **fields)


def void(raw: bytes, rule: str = "evidence.void") -> None:
    """It is refused as evidence, by this rule."""
    with pytest.raises(PeerFault) as caught:
        check(raw, NET)
    assert caught.value.rule == rule
