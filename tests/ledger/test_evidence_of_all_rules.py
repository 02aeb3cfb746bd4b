"""What holds for each of the sixteen proofs, whatever it is about."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.evidence import check
from ledger.limits import EVIDENCE_BYTES_MAX
from protocol.errors import PeerFault
from protocol.units import NetId
from tests.make_evidence import proofs
from tests.make_ledger import NET, OWNER, STRANGER

PROOFS = proofs()
FORKS = ("A1", "A2", "A3")


@pytest.mark.parametrize("rule", PROOFS)
def test_each_rule_has_a_proof_that_accuses_who_signed(rule: str) -> None:
    offence = check(PROOFS[rule], NET)
    assert offence.rule == rule
    assert offence.offender == (STRANGER if rule == "A13" else OWNER).public
    assert (offence.seq is None) == (rule not in FORKS)
    assert len(PROOFS[rule]) <= EVIDENCE_BYTES_MAX


def test_offences_of_one_author_have_keys_of_their_own() -> None:
    found = {rule: check(raw, NET) for rule, raw in PROOFS.items()}
    keys = {rule: (each.offender, each.key) for rule, each in found.items()}
    assert keys["A1"] == keys["A2"] == keys["A3"]
    others = [key for rule, key in keys.items() if rule not in {"A2", "A3"}]
    assert len(dict.fromkeys(others)) == len(others) == 14


@pytest.mark.parametrize("rule", PROOFS)
def test_no_proof_holds_in_another_network(rule: str) -> None:
    with pytest.raises(PeerFault):
        check(PROOFS[rule], NetId(bytes(32)))


@given(st.data())
def test_i3_changed_evidence_accuses_nobody_else(data: st.DataObject) -> None:
    rule = data.draw(st.sampled_from(list(PROOFS)))
    raw = bytearray(PROOFS[rule])
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        offence = check(bytes(raw), NET)
    except PeerFault:
        return
    assert offence.offender == check(PROOFS[rule], NET).offender


@given(st.data())
def test_i3_parts_of_proofs_put_together_anew_accuse_only_who_signed(data: st.DataObject) -> None:
    """Checking is total: any cut of one proof before any end of another is judged."""
    one, other = (PROOFS[data.draw(st.sampled_from(list(PROOFS)))] for _ in range(2))
    cut, rest = data.draw(st.integers(0, len(one))), data.draw(st.integers(0, len(other)))
    try:
        offence = check(one[:cut] + other[rest:], NET)
    except PeerFault:
        return
    assert offence.offender in {OWNER.public, STRANGER.public}
