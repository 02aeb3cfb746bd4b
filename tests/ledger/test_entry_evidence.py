"""A10, A11, A12, A14 and A15: two entries of one author that contradict each other."""

import pytest

from ledger.bodies import Body
from ledger.capability_bodies import CapacityUnit, RowAnswer
from ledger.entry import Entry
from ledger.entry_evidence import (
    prove_alias,
    prove_false_account,
    prove_false_checkpoint,
    prove_two_verdicts,
    prove_wrong_answer,
)
from ledger.evidence import check
from ledger.row_work import row_digest
from protocol.errors import PeerFault
from protocol.units import Digest
from tests.make_evidence import (
    DEVICE,
    SEED,
    answer,
    capacity,
    changed,
    claim,
    feed,
    past,
    probe,
)
from tests.make_ledger import (
    HOUR,
    NET,
    OWNER,
    STRANGER,
    UNIT,
    UNIT2,
    grant,
    statement,
    turn_of,
)


def void(raw: bytes) -> None:
    with pytest.raises(PeerFault) as caught:
        check(raw, NET)
    assert caught.value.rule == "evidence.void"


def pair(one: Body, other: Body) -> tuple[Entry, Entry]:
    by = feed()
    return by.add(one), by.add(other)


@pytest.mark.parametrize(
    ("ctr", "used", "rule"),
    [(1, 50, "A10"), (2, 49, "A10"), (1, 49, "A10"), (2, 50, None), (2, 51, None), (0, 51, None)],
)
def test_a10_halves_of_one_account(ctr: int, used: int, rule: str | None) -> None:
    one, other = pair(statement(ctr=1, used=50), statement(ctr=ctr, used=used))
    if one.draft.hdr > other.draft.hdr and ctr == 1:
        one, other = other, one
    raw = prove_false_account(one, other)
    if rule is None or (ctr == 1 and used == 50):
        void(raw)
    else:
        assert check(raw, NET).rule == rule


def test_a10_other_accounts_have_counters_of_their_own() -> None:
    mine = statement(ctr=2, used=50)
    for other in (
        statement(STRANGER, ctr=3, used=1),
        statement(ctr=3, used=1, money="EUR"),
        changed(statement(ctr=3, used=1), half=DEVICE),
    ):
        void(prove_false_account(*pair(mine, other)))
    fallen = changed(statement(ctr=3, used=50), amount_micro=49)
    assert check(prove_false_account(*pair(mine, fallen)), NET).rule == "A10"


def test_a11_two_wrong_rows_and_not_one() -> None:
    by = feed()
    claimed = by.add(claim())
    wrong = by.add(answer(claimed, wrong=(1, 3)))
    assert check(prove_wrong_answer(claimed, wrong, (1, 3)), NET).rule == "A11"
    void(prove_wrong_answer(claimed, wrong, (0, 1)))
    void(prove_wrong_answer(claimed, wrong, (3, 1)))
    void(prove_wrong_answer(claimed, wrong, (3, 3)))
    void(prove_wrong_answer(claimed, wrong, (3, 4)))
    void(prove_wrong_answer(claimed, by.add(answer(claimed, wrong=(1,))), (1, 3)))


def test_a11_a_row_that_the_work_does_not_have_is_wrong() -> None:
    by = feed()
    claimed = by.add(claim())
    rows = (RowAnswer(16, DEVICE), RowAnswer(17, DEVICE))
    beyond = by.add(changed(answer(claimed), rows=rows))
    assert check(prove_wrong_answer(claimed, beyond, (0, 1)), NET).rule == "A11"


def test_a11_other_claims_and_work_that_nobody_knows_prove_nothing() -> None:
    by = feed()
    claimed, other = by.add(claim()), by.add(claim())
    wrong = by.add(answer(claimed, wrong=(1, 2)))
    void(prove_wrong_answer(other, wrong, (1, 2)))
    void(prove_wrong_answer(wrong, claimed, (1, 2)))
    unknown = by.add(claim(work="rows-9"))
    void(prove_wrong_answer(unknown, by.add(answer(unknown, wrong=(1, 2))), (1, 2)))
    theirs = feed(STRANGER).add(answer(claimed, wrong=(1, 2)))
    void(prove_wrong_answer(claimed, theirs, (1, 2)))


def test_the_rows_of_a_work_are_those_of_a_plain_product() -> None:
    from hashlib import sha256, shake_256

    size, row = 5, 3
    stream = shake_256(b"p2pnode/rows-b/1\0" + SEED).digest(size * size)
    factors = shake_256(b"p2pnode/rows-a/1\0" + SEED + row.to_bytes(8, "big")).digest(size)
    sums = [sum(factors[k] * stream[k * size + j] for k in range(size)) for j in range(size)]
    packed = b"".join(each.to_bytes(4, "little") for each in sums)
    said = b"p2pnode/rows/1\0" + SEED + row.to_bytes(8, "big") + packed
    assert row_digest(SEED, size, row) == sha256(said).digest()


def test_a12_one_device_under_two_names() -> None:
    one, other = pair(capacity(), capacity(UNIT2))
    assert prove_alias(one, other) == prove_alias(other, one)
    offence = check(prove_alias(one, other), NET)
    assert (offence.rule, offence.key[1:]) == ("A12", DEVICE)
    void(prove_alias(*pair(capacity(), capacity(UNIT2, Digest(b"e" * 32)))))
    void(prove_alias(*pair(capacity(), capacity())))
    void(prove_alias(*pair(capacity(), statement())))
    more = changed(
        capacity(), units=(CapacityUnit(UNIT2, DEVICE, "a", 1), CapacityUnit(UNIT, SEED, "b", 1))
    )
    assert check(prove_alias(*pair(capacity(), more)), NET).key[1:] == DEVICE


def test_a14_one_period_found_well_and_failed() -> None:
    one, other = pair(probe(), probe("fail"))
    assert prove_two_verdicts(one, other) == prove_two_verdicts(other, one)
    assert check(prove_two_verdicts(one, other), NET).rule == "A14"
    void(prove_two_verdicts(*pair(probe(), probe())))
    void(prove_two_verdicts(*pair(probe(), probe("fail", period=4))))
    void(prove_two_verdicts(*pair(probe(), changed(probe("fail"), lease=DEVICE))))
    void(prove_two_verdicts(*pair(probe(), statement())))


def test_a15_a_checkpoint_that_tells_the_truth_is_contradicted_by_nothing() -> None:
    hist = past()
    said = hist.feed.add(hist.checkpoint())
    later_body = grant(turn_of(hist.granted, hist.grant), start=2 * HOUR, end=3 * HOUR, nonce=1)
    later = hist.feed.add(later_body)
    owed = hist.feed.add(statement(ctr=2, used=70_000))
    for other in (hist.granted, hist.owed, later, owed):
        void(prove_false_checkpoint(said, other))


@pytest.mark.parametrize(
    ("changes", "shown_by"),
    [
        ({"units": ()}, "granted"),
        ({"accounts": ()}, "owed"),
        ({"upto_id": DEVICE}, "owed"),
        ({"unit": {"ctr": 1}}, "granted"),
        ({"unit": {"open": ()}}, "granted"),
        ({"unit": {"id": DEVICE}}, "granted"),
        ({"unit": {"seq": 2}}, "granted"),
        ({"unit": {"unit": UNIT2}}, "granted"),
        ({"account": {"ctr": 0}}, "owed"),
        ({"account": {"ctr": 9}}, "owed"),
        ({"account": {"amount_micro": 9}}, "owed"),
        ({"account": {"used_ms": 9}}, "owed"),
        ({"account": {"money": "EUR"}}, "owed"),
        ({"account": {"seq": 1}}, "granted"),
    ],
)
def test_a15_each_false_row_is_shown_by_one_entry(
    changes: dict[str, object], shown_by: str
) -> None:
    hist = past()
    true = hist.checkpoint()
    fields = dict(changes)
    if isinstance(unit := fields.pop("unit", None), dict):
        fields["units"] = (changed(true.units[0], **unit),)
    if isinstance(account := fields.pop("account", None), dict):
        fields["accounts"] = (changed(true.accounts[0], **account),)
    said = hist.feed.add(hist.checkpoint(**fields))
    offence = check(prove_false_checkpoint(said, getattr(hist, shown_by)), NET)
    assert (offence.rule, offence.offender) == ("A15", OWNER.public)


def test_a15_a_part_says_nothing_of_what_is_outside_its_range() -> None:
    hist = past()
    units_only = hist.feed.add(hist.checkpoint(start=b"u", accounts=()))
    accounts_only = hist.feed.add(hist.checkpoint(stop=b"u", units=()))
    for said in (units_only, accounts_only):
        void(prove_false_checkpoint(said, hist.owed))
        void(prove_false_checkpoint(said, hist.granted))


def test_two_authors_prove_nothing() -> None:
    one = feed().add(probe())
    void(prove_two_verdicts(one, feed(STRANGER).add(probe("fail"))))
    void(prove_two_verdicts(one, one))
