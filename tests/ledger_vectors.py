"""Writes ledger/vectors: `python -m tests.ledger_vectors`. A test fails when they would change."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from ledger.bodies import ACCEPT, Accept, Body, consent_bytes, encode_body
from ledger.capability_bodies import Challenge
from ledger.continuity_bodies import RulesSignal
from ledger.entry import Draft, Entry, Link, seal
from ledger.fold import State
from ledger.intervals import Interval
from ledger.rail_bodies import RailHold, RailVoid
from ledger.units_chain import apply
from ledger.witness_bodies import Cosigned, Cosigning, CosignLog
from protocol.codec import encode_plain
from protocol.signing import preimage
from protocol.units import Digest, Millis
from tests.evidence_vectors import evidence_vectors
from tests.export_vectors import export_vectors
from tests.make_evidence import (
    SEED,
    answer,
    capacity,
    changed,
    claim,
    cosign,
    feed,
    past,
    probe,
    sealed_receipt,
    successor,
)
from tests.make_ledger import (
    HOUR,
    NET,
    OWNER,
    RENTER,
    STRANGER,
    THREE,
    UNIT,
    UNIT2,
    Feed,
    at,
    certificate,
    cosigned,
    genesis,
    grant,
    lease_request,
    newest_half,
    release,
    sealed,
    statement,
    turn_of,
    witnessed,
)
from tests.receipt_vectors import receipt_vectors
from tests.standing_vectors import standing_vectors

FOLDER: Final = Path(__file__).parent.parent / "ledger" / "vectors"

Case = dict[str, Any]
Sealed = tuple[str, bytes, Link | None, str | None]
"""Name, bytes, what they follow, and the rule that refuses them."""


def link(after: Link | None) -> Case | None:
    if after is None:
        return None
    return {"seq": after.seq, "id": after.id.hex(), "ts_ms": after.ts_ms}


def signed(draft: Draft, after: Link | None, name: str, rule: str | None = None) -> Sealed:
    return name, seal(draft, signer=OWNER, net=NET).raw, after, rule


def body_case(name: str, body: Body, rule: str | None = None, *, ts: int = 0) -> Sealed:
    by = feed()
    return signed(by.draft(body, ts=ts), by.last, name, rule)


def frame_cases() -> Iterator[Sealed]:
    by = feed()
    after = by.last
    draft = by.draft(statement())
    good = seal(draft, signer=OWNER, net=NET)
    raw = good.raw
    yield "entry 1", raw, after, None
    yield "one byte behind", raw + b"\0", after, "entry.form"
    yield "array of indefinite length", b"\x9f" + raw[1:] + b"\xff", after, "entry.form"
    yield "header length in two bytes", raw[:1] + b"\x59\x00" + raw[2:], after, "entry.form"
    yield "longer than any entry", raw.ljust(8_409, b"\0"), after, "entry.size"
    text = replace(draft, hdr=encode_plain([1, "feed"]))
    yield signed(text, after, "a header of two fields", "entry.form")
    yield signed(replace(draft, body=draft.body + b"\0"), after, "a longer body", "entry.body")
    yield "another's signature", seal(draft, signer=STRANGER, net=NET).raw, after, "entry.seal"
    other_net = seal(draft, signer=OWNER, net=STRANGER_NET)
    yield "the signature of another network", other_net.raw, after, "entry.seal"
    assert after is not None
    yield "a gap", raw, replace(after, seq=1), "entry.seq"
    yield "another predecessor", raw, replace(after, id=Digest(bytes(32))), "entry.prev"
    yield "time runs back", raw, replace(after, ts_ms=at(1)), "entry.time"
    yield signed(by.draft(genesis(OWNER)), after, "a second genesis", "entry.kind")
    alone = Feed(OWNER)
    yield signed(alone.draft(statement()), None, "a feed without genesis", "entry.kind")
    yield signed(alone.draft(genesis(OWNER)), None, "entry 0")
    cross = changed(genesis(OWNER), certificate=certificate(STRANGER))
    yield signed(alone.draft(cross), None, "another's certificate", "genesis.feed")
    early = alone.draft(genesis(OWNER), ts=-1_001)
    yield signed(early, None, "before the certificate holds", "certificate.time")
    for name, body, rule in (
        ("an unknown kind", b"\xa1\x17\x00", None),
        ("an unknown kind with key 24", b"\xa1\x18\x18\x00", "body.form"),
        ("an unknown kind with true", b"\xa1\x00\xf5", "body.form"),
        ("an unknown kind with a negative number", b"\xa1\x00\x20", "body.form"),
        ("an unknown kind with a float", b"\xa1\x00\xf9\x00\x00", "body.form"),
        ("an unknown kind with keys out of order", b"\xa2\x01\x00\x00\x00", "body.form"),
        ("an unknown kind nested too deep", b"\xa1\x00\x81\x81\x81\x81\x81\x00", "body.form"),
        ("an unknown kind with a tag", b"\xa1\x00\xc1\x00", "codec.form"),
    ):
        yield signed(by.draft_raw(77, body), after, name, rule)
    null = by.draft_raw(ACCEPT, b"\xa1\x00\xf6")
    yield signed(null, after, "null for an id", "codec.shape")


STRANGER_NET: Final = type(NET)(bytes(32))


def kind_cases() -> Iterator[Sealed]:
    def turn(**fields: object) -> Body:
        return changed(grant(), units=(changed(grant().units[0], **fields),))

    def asking(name: str, rule: str, request: bytes) -> Sealed:
        return body_case(name, changed(grant(), request=request), rule)

    yield body_case("a grant", grant())
    named = witnessed(grant())
    yield body_case("a grant with witnesses", named)
    yield body_case("a quorum above all", witnessed(grant(), quorum=4), "grant.witness")
    half = witnessed(grant(), of=THREE[:2], quorum=1)
    yield body_case("a quorum of half", half, "grant.witness")
    other = changed(named, witnesses=(*THREE[:2], STRANGER.public))
    yield body_case("witnesses that nobody asked for", other, "grant.witness")
    yield body_case("a grant from now on", grant(start=0))
    yield body_case("a grant from before", grant(start=0), "grant.interval", ts=1)
    yield body_case("a grant not in its open intervals", grant(opens=()), "grant.open")
    yield asking("asked of another", "grant.owner", sealed(lease_request(owner=STRANGER)))
    yield asking("another unit", "grant.units", sealed(lease_request(((UNIT2, 0),))))
    yield asking("another counter", "grant.units", sealed(lease_request(((UNIT, 1),))))
    yield asking("another interval", "grant.interval", sealed(lease_request(end=HOUR)))
    yield asking("a request of long ago", "grant.late", sealed(lease_request(issued=-2_001)))
    yield asking("a request badly sealed", "seal.bad", sealed(lease_request(), net=STRANGER_NET))
    yield body_case("counter 0 after an entry", turn(gprev=Digest(b"p" * 32)), "turn.chain")
    yield body_case("counter 1 after nothing", turn(ctr=1), "turn.chain")
    twice = changed(grant(), units=grant().units * 2)
    yield body_case("a unit twice", twice, "turn.units")
    lease = (1_000, 1_000 + HOUR, 0)
    yield body_case("unsorted", grant(opens=(lease, (5, 6, 0))), "turn.open")
    yield body_case("an interval that is over", grant(opens=((-9, 0, 0), lease)), "turn.open")
    yield body_case(
        "overlapping intervals are for evidence", grant(opens=(lease, (1_500, 1_600, 0)))
    )
    by = feed()
    granted = by.add(grant())
    end = release(turn_of(granted, grant()), granted)
    yield signed(by.draft(end), by.last, "a release")
    later = changed(end, units=(changed(end.units[0], lctr=1),))
    yield signed(by.draft(later), by.last, "a release of a later lease", "release.counter")
    consent = RENTER.sign(
        "release-consent", NET, consent_bytes(granted.id, ((UNIT, 0),), end.at_ms)
    )
    agreed = changed(end, reason="consent", consent=consent)
    yield signed(by.draft(agreed), by.last, "a release with consent")
    bare = changed(end, reason="consent")
    yield signed(by.draft(bare), by.last, "consent without a signature", "release.consent")
    yield signed(by.draft(Accept(grant=granted.id)), by.last, "an acceptance")
    yield from accept_cases()
    yield signed(by.draft(statement()), by.last, "a statement")
    full = changed(statement(), lease=granted.id, tick=Digest(b"t" * 32), half=granted.id)
    yield signed(by.draft(full), by.last, "a statement with all that it may name")
    yield signed(by.draft(statement(OWNER)), by.last, "an account with oneself", "statement.peer")


def accept_cases() -> Iterator[Sealed]:
    by = feed()
    body = witnessed(grant())
    granted = by.add(body)
    signs = cosigned(granted, body)

    def case(name: str, *witnesses: Cosigning, rule: str | None = None) -> Sealed:
        shown = Cosigned(signs.owner, signs.turns, witnesses)
        return signed(by.draft(Accept(grant=granted.id, cosigned=shown)), by.last, name, rule)

    one, two, _ = signs.by
    yield case("an acceptance with cosignatures", *signs.by)
    yield case("an acceptance with one witness", two)
    yield case("witnesses out of order", two, one, rule="accept.witness")
    moved = Cosigning(one.witness, at(6), one.by)
    yield case("a cosignature of another time", moved, rule="accept.witness")
    doubled = Cosigning(one.witness, one.at_ms, one.by * 2)
    yield case("signatures for two turns", doubled, rule="accept.witness")


def other_kind_cases() -> Iterator[Sealed]:
    """One of each kind beside leases and accounts, and one that breaks a rule of it."""
    hist = past()
    after = hist.feed.last

    def case(name: str, body: Body, rule: str | None = None) -> Sealed:
        return signed(hist.feed.draft(body), after, name, rule)

    claimed = feed().add(claim())
    twice = changed(capacity(), units=capacity().units * 2)
    answered = answer(claimed)
    held = RailHold(receipt=sealed_receipt())
    wrong_act = RailVoid(receipt=sealed_receipt())
    bound = RailHold(receipt=sealed_receipt(hold=SEED))
    over = RailHold(receipt=sealed_receipt(expires_ms=at(0)))
    to_itself = RailHold(receipt=sealed_receipt(payer=OWNER.public))
    of_others = RailHold(receipt=sealed_receipt(payee=STRANGER.public))
    logged = CosignLog(items=(cosign(b"1" * 32),))
    yield case("a capacity", capacity())
    yield case("a capacity that names a unit twice", twice, "capacity.units")
    yield case("a claim", claim())
    yield case("a challenge", Challenge(claim=claimed.id, seed=SEED))
    yield case("a response", answered)
    repeated = changed(answered, rows=answered.rows[:1] * 2)
    yield case("a response with a row twice", repeated, "response.rows")
    yield case("a log of cosignatures", logged)
    yield case("a turn cosigned twice", changed(logged, items=logged.items * 2), "cosign.twice")
    yield case("a probe", probe())
    yield case("a hold", held)
    yield case("a hold called a void", wrong_act, "rail.act")
    yield case("a hold that names another", bound, "rail.hold")
    yield case("a hold that is over when sealed", over, "rail.span")
    yield case("a hold for oneself", to_itself, "rail.parties")
    yield case("a hold between others", of_others, "rail.parties")
    yield case("a checkpoint", hist.checkpoint())
    yield case("a checkpoint of itself", hist.checkpoint(upto=3), "checkpoint.place")
    beyond = hist.checkpoint(start=b"b")
    yield case("a checkpoint with rows outside its range", beyond, "checkpoint.rows")
    empty = hist.checkpoint(start=b"a", stop=b"a", units=(), accounts=())
    yield case("a checkpoint of an empty range", empty, "checkpoint.range")
    followed = successor()
    doubled = changed(followed, units=followed.units * 2)
    yield case("a successor", followed)
    yield case("a successor of itself", successor(OWNER), "successor.feed")
    yield case("a successor that names a unit twice", doubled, "successor.units")
    yield case("a successor that the root did not sign", successor(at_ms=at(1)), "successor.seal")
    yield case("a signal", RulesSignal(bundle=SEED))


def entry_vectors() -> Case:
    by = feed()
    shown = by.draft(Accept(grant=Digest(bytes(32))))
    return {
        "net": NET.hex(),
        "anatomy": {
            "hdr": shown.hdr.hex(),
            "body": shown.body.hex(),
            "signed": preimage("entry", NET, shown.hdr).hex(),
            "hashed": preimage("id", NET, shown.hdr).hex(),
            "id": shown.id.hex(),
            "entry": seal(shown, signer=OWNER, net=NET).raw.hex(),
        },
        "cases": [
            {"name": name, "bytes": raw.hex(), "after": link(after), "rule": rule}
            for name, raw, after, rule in (*frame_cases(), *kind_cases(), *other_kind_cases())
        ],
    }


def unit_case(name: str, before: list[list[int]], body: Body, *, ts: int = 0) -> Case:
    assert hasattr(body, "units")
    spans = tuple(Interval(Millis(start), Millis(end), ctr) for start, end, ctr in before)
    after = apply(spans, body, UNIT, at(ts))  # type: ignore[arg-type]
    return {
        "name": name,
        "before": before,
        "kind": "grant" if hasattr(body, "request") else "release",
        "body": encode_body(body).hex(),
        "unit": UNIT.hex(),
        "ts_ms": at(ts),
        "after": [[each.start_ms, each.end_ms, each.ctr] for each in after],
    }


def unit_vectors() -> Case:
    by = feed()
    granted = by.add(grant())
    end = release(turn_of(granted, grant()), granted)
    early, late = changed(end, at_ms=at(1_000)), changed(end, at_ms=at(9 * HOUR))
    lease = [[at(1_000), at(1_000 + HOUR), 0]]
    cases = [
        unit_case("a first grant", [], grant()),
        unit_case("a grant before another", [[at(9), at(10), 7]], grant(opens=())),
        unit_case("a grant when another is over", [[at(9), at(10), 7]], grant(), ts=10),
        unit_case("a release cuts", lease, end),
        unit_case("a release at the start drops", lease, early),
        unit_case("a release after the end changes nothing", lease, late),
        unit_case("a release of what is gone", [], end),
        unit_case("a release that is over when written", lease, end, ts=2_000),
    ]
    return {"cases": cases}


def story() -> list[Entry]:
    owner, renter = Feed(OWNER), Feed(RENTER)
    entries = [owner.open(), renter.open()]
    granted = owner.add(grant())
    fork = owner.branch()
    ended = owner.add(release(turn_of(granted, grant()), granted))
    owed = [owner.add(statement(ctr=n, used=n)) for n in range(2)]
    accepted = renter.add(Accept(grant=granted.id))
    other = fork.add(statement(ctr=0, used=9))
    return [*entries, granted, ended, *owed, accepted, other]


def fold_vectors() -> Case:
    state = State()
    for entry in story():
        state.apply(entry)
    state.fork(OWNER.public, 3)
    state.fork(OWNER.public, 2)
    turn = state.turn(OWNER.public, UNIT)
    assert turn is not None
    halves = state.halves(OWNER.public, RENTER.public, money="USD")
    newest = newest_half(state, OWNER.public, RENTER.public)
    return {
        "net": NET.hex(),
        "entries": [entry.raw.hex() for entry in story()],
        "forks": [[OWNER.public.hex(), 3], [OWNER.public.hex(), 2]],
        "leases": [
            {
                "id": lease.id.hex(),
                "owner": lease.owner.hex(),
                "renter": lease.renter.hex(),
                "is_accepted": lease.is_accepted,
                "ended_ms": lease.ended_ms,
                "reason": lease.reason,
                "is_forked": lease.is_forked,
            }
            for lease in state.leases()
        ],
        "turns": [
            {"owner": OWNER.public.hex(), "unit": UNIT.hex(), "ctr": turn.ctr, "id": turn.id.hex()}
        ],
        "halves": [half.id.hex() for half in halves],
        "newest_half": None if newest is None else newest.id.hex(),
    }


def vectors() -> dict[str, Case]:
    """Name of each file, and what it holds."""
    return {
        "entries.json": entry_vectors(),
        "evidence.json": evidence_vectors(),
        "units.json": unit_vectors(),
        "fold.json": fold_vectors(),
        "receipts.json": receipt_vectors(),
        "exports.json": export_vectors(),
        "standing.json": standing_vectors(),
    }


def text_of(document: Case) -> str:
    """One case a line, so that a change shows which."""
    parts = []
    for name, value in document.items():
        if isinstance(value, list):
            rows = ",\n".join(f"  {json.dumps(row)}" for row in value)
            parts.append(f" {json.dumps(name)}: [\n{rows}\n ]")
        else:
            parts.append(f" {json.dumps(name)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    for file_name, contents in vectors().items():
        (FOLDER / file_name).write_text(text_of(contents))
