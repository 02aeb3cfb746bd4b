"""Cases of ledger/vectors/evidence.json: each rule proved, and near misses that prove nothing."""

from typing import Any

from ledger.entry import Entry
from ledger.evidence import check
from ledger.fork_evidence import prove_fork
from ledger.unit_evidence import prove_bad_turn, prove_same_counter
from protocol.errors import PeerFault
from tests.make_evidence import feed, proofs
from tests.make_ledger import HOUR, NET, UNIT, UNIT2, grant, statement, turn_of

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
    ]
    return {"net": NET.hex(), "cases": cases}
