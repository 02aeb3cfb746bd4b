"""ledger/vectors/standing.json replayed as another implementation would: from the file alone."""

import json
from typing import Any

import pytest

from ledger.entry import read_entry
from ledger.max_flow import Flow, graph_of
from ledger.rules import judge, prefix_of, read_case
from ledger.trust import Trust, lower_bound_ppm
from ledger.view import look
from protocol.codec import decode
from protocol.rules import BUNDLE, Bundle
from protocol.units import NetId, PublicKey
from tests.ledger_vectors import FOLDER
from tests.make_standing import peer
from tests.standing_vectors import forked, state_of

TOLD: Any = json.loads((FOLDER / "standing.json").read_text())
NET = NetId(bytes.fromhex(TOLD["net"]))


def told(name: str) -> Any:
    return [pytest.param(case, id=f"{number}") for number, case in enumerate(TOLD[name])]


def test_the_bundle_is_this_programs_and_is_named_by_its_prefix() -> None:
    bundle = decode(bytes.fromhex(TOLD["bundle"]), Bundle, size_max=4_096)
    assert (bundle, prefix_of(bundle).hex()) == (BUNDLE, TOLD["prefix"])


def test_pushes_one_after_the_other_flow_as_the_vectors_say() -> None:
    flow = Flow(graph_of((peer(a), peer(b), room) for a, b, room in TOLD["edges"]))
    for start, end, most, pushed in TOLD["pushes"]:
        assert flow.push(peer(start), peer(end), most) == pushed


@pytest.mark.parametrize("case", told("bounds"))
def test_bounds_are_as_the_vectors_say(case: list[int]) -> None:
    good, bad, ppm = case
    assert lower_bound_ppm(good, bad, BUNDLE) == ppm


@pytest.mark.parametrize("case", told("penalties"))
def test_penalties_are_as_the_vectors_say(case: dict[str, Any]) -> None:
    state = forked((PublicKey(bytes.fromhex(feed)), seq) for feed, seq in case["forks"])
    [verdict] = judge((read_case(bytes.fromhex(case["evidence"]), NET),), state)
    assert (verdict.name, verdict.epoch) == (case["row"], case["epoch"])
    assert verdict.ends_standing == bool(case["ends_standing"])
    for epoch, kept in case["kept_ppm"]:
        assert verdict.kept_ppm(epoch) == kept


def test_each_row_of_the_bundle_is_told() -> None:
    rows = {case["row"] for case in TOLD["penalties"]}
    assert rows == set(BUNDLE.penalties)


@pytest.mark.parametrize("case", told("numbers"))
def test_numbers_are_as_the_vectors_say(case: dict[str, Any]) -> None:
    entries = [read_entry(bytes.fromhex(raw), NET) for raw in TOLD["entries"]]
    proofs = TOLD["proofs"][: case["proofs"]]
    cases = tuple(read_case(bytes.fromhex(raw), NET) for raw in proofs)
    state = state_of(entries, cases)
    ego, one = (PublicKey(bytes.fromhex(text)) for text in (TOLD["ego"], case["peer"]))
    trust = Trust(look(state, cases, ego=ego, epoch=case["epoch"]))
    facts = trust.view.facts
    assert all((facts.trades, facts.claims, facts.risks, facts.owed, trust.view.failures))
    finance, record = trust.finance(one, TOLD["money"]), trust.record(one, TOLD["money"])
    assert trust.view.kept_ppm(one) == case["kept_ppm"]
    for numbers in (finance, record):
        for name in set(case) & set(numbers.__slots__):
            assert getattr(numbers, name) == case[name], name
    assert trust.digest(one, TOLD["money"]).hex() == case["digest"]
