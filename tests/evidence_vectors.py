"""Cases of ledger/vectors/evidence.json: each rule proved, and near misses that prove nothing."""

from typing import Any

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
from ledger.unit_evidence import (
    prove_bad_turn,
    prove_broken_chain,
    prove_early_release,
    prove_same_counter,
)
from protocol.errors import PeerFault
from tests.make_evidence import (
    SEED,
    answer,
    capacity,
    changed,
    claim,
    commit,
    cosign,
    digest_of,
    ended,
    feed,
    forked_by_path,
    leased,
    past,
    probe,
    proofs,
    reveal,
    sealed_bid,
    sealed_tick,
    signed_cosign,
    tick,
)
from tests.make_ledger import (
    HOUR,
    NET,
    RENTER,
    STRANGER,
    UNIT,
    UNIT2,
    at,
    grant,
    statement,
    turn_of,
)

Case = dict[str, Any]


def evidence_case(name: str, raw: bytes) -> Case:
    case: Case = {"name": name, "bytes": raw.hex()}
    try:
        offence = check(raw, NET)
    except PeerFault as fault:
        return case | {"rule": fault.rule}
    return case | {
        "rule": None,
        "offence": offence.rule,
        "offender": offence.offender.hex(),
        "key": offence.key.hex(),
        "fork": offence.seq,
    }


def two_grants(**fields: Any) -> tuple[Entry, Entry]:
    by = feed()
    granted = by.add(grant())
    after = turn_of(granted, grant())
    return granted, by.add(grant(after, **{"start": 2 * HOUR, "end": 3 * HOUR, **fields}))


def leases_that_were_kept() -> list[Case]:
    """A6, A7 and A8 as an honest owner's bytes would be."""
    by, granted, body = leased()
    after = by.add(grant(turn_of(granted, body), start=2 * HOUR, end=3 * HOUR, nonce=1))
    in_time = by.branch().add(ended(granted, body, reason="end", at_ms=at(1_000 + HOUR)))
    kept = sealed_bid(renter=RENTER.public)
    return [
        evidence_case("A6, honest neighbours", prove_broken_chain(UNIT, granted, after)),
        evidence_case("A7, a lease that ends in time", prove_early_release(granted, in_time)),
        evidence_case("A8, a bid that was kept", prove_broken_bid(kept, granted)),
    ]


def messages_that_fit() -> list[Case]:
    """A9, A13 and A16 as an honest author's bytes would be."""
    salt = bytes(16)
    committed = commit(salt, b"one")
    shown = reveal(digest_of(committed), salt, b"one")
    signed = signed_cosign(cosign(b"1" * 32))
    again = signed_cosign(changed(cosign(b"1" * 32), at_ms=at(6)))
    twice = prove_cosigned_twice(STRANGER.public, signed, again)
    _, granted, _ = leased()
    fitting = prove_false_time(sealed_tick(tick(granted.id, at_ms=0)), granted)
    return [
        evidence_case("A9, what was hidden is shown", prove_bad_reveal(committed, shown)),
        evidence_case("A13, one grant cosigned at two times", twice),
        evidence_case("A16, times that fit", fitting),
    ]


def entries_that_agree() -> list[Case]:
    """A3, A10, A11, A12, A14 and A15 as an honest author's bytes would be, or of too little."""
    parted, (first, _, last) = forked_by_path()
    hist, by = past(), feed()
    owed = hist.feed.branch().add(statement(ctr=2, used=60_001))
    claimed = by.add(claim())
    wrong = by.add(answer(claimed, wrong=(1,)))
    devices = by.add(capacity()), by.add(capacity(UNIT2, SEED))
    verdicts = by.add(probe()), by.add(probe("fail", period=4))
    true = hist.feed.add(hist.checkpoint())
    return [
        evidence_case("A3, a path with a gap", prove_fork_by_path(parted, (first.draft,), last)),
        evidence_case("A10, an account that goes on", prove_false_account(hist.owed, owed)),
        evidence_case("A11, one wrong row", prove_wrong_answer(claimed, wrong, (1, 2))),
        evidence_case("A12, two devices", prove_alias(*devices)),
        evidence_case("A14, verdicts on two periods", prove_two_verdicts(*verdicts)),
        evidence_case("A15, a true checkpoint", prove_false_checkpoint(true, hist.granted)),
    ]


def evidence_vectors() -> Case:
    by = feed()
    branch = by.branch()
    one, other = by.add(statement(used=1)), branch.add(statement(used=2))
    broken = branch.add(statement(ctr=1))
    fork, cut = prove_fork(one, other), prove_fork(one, broken)
    assert fork is not None
    assert cut is not None
    same = feed()
    pair = same.add(grant()), same.add(grant(nonce=1))
    hidden = two_grants(start=2_000, opens=((2_000, 3 * HOUR, 1),))
    made_up = feed().add(grant(opens=((5, 6, 0), (1_000, 1_000 + HOUR, 0))))
    cases = [
        *(evidence_case(rule, raw) for rule, raw in proofs().items()),
        evidence_case("A4 of two grants for one time", prove_same_counter(UNIT, *pair)),
        evidence_case(
            "A5, one entry that overlaps", prove_bad_turn(UNIT, *two_grants(start=5)[1:])
        ),
        evidence_case("A5, a first entry with a lease from nowhere", prove_bad_turn(UNIT, made_up)),
        evidence_case("A5, a lease left out", prove_bad_turn(UNIT, *hidden)),
        evidence_case("A5, honest neighbours", prove_bad_turn(UNIT, *two_grants())),
        evidence_case("A5, an honest entry", prove_bad_turn(UNIT, two_grants()[0])),
        evidence_case("A4, honest neighbours", prove_same_counter(UNIT, *two_grants())),
        evidence_case("A4, one entry twice", prove_same_counter(UNIT, pair[0], pair[0])),
        evidence_case("A4, of another unit", prove_same_counter(UNIT2, *pair)),
        evidence_case("A1 called A2", fork[:1] + b"\x02" + fork[2:]),
        evidence_case("A2 called A1", cut[:1] + b"\x01" + cut[2:]),
        evidence_case("a signature changed", fork[:-1] + bytes([fork[-1] ^ 1])),
        evidence_case("no known rule", fork[:1] + b"\x17" + fork[2:]),
        evidence_case("one byte behind", fork + b"\0"),
        evidence_case("longer than any evidence", fork.ljust(18_065, b"\0")),
        *entries_that_agree(),
        *leases_that_were_kept(),
        *messages_that_fit(),
    ]
    return {"net": NET.hex(), "cases": cases}
