"""Every number is told with the entries and proofs that it comes from."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import reasons
from ledger.reasons import Finding, explain
from ledger.rules import read_case
from ledger.trades import Trade
from ledger.trust import Trust
from ledger.view import look
from protocol.units import Digest
from tests.make_ledger import NET, OWNER, RENTER, STRANGER
from tests.make_standing import (
    MONEY,
    OPEN,
    TODAY,
    Story,
    claim,
    entry_id,
    failure,
    fork,
    opened,
    peer,
    risk,
    trade,
    trust,
)

LATE = OPEN.overdue_epochs + 1
PROBES = (entry_id(7), entry_id(8))


def told(of: Trust, number: int) -> dict[str, Finding]:
    return {each.name: each for each in explain(of, peer(number), MONEY)}


def halves(*trades: Trade) -> list[Digest]:
    return [half for each in trades for half in each.halves]


def test_each_number_is_explained_by_the_entries_that_it_comes_from() -> None:
    way = (trade(0, 1, 40), trade(1, 2, 30))
    aside, served = trade(0, 3, 10), trade(2, 0, 5)
    why = told(trust(*way, aside, served, risks=(risk(0, 3, 10),)), 2)
    at_risk = entry_id(0, 3, 0)
    assert why["credit_micro"].value == why["flow_micro"].value == 35
    for name in ("credit_micro", "flow_micro"):
        lent = (*halves(*way, aside, served), at_risk)
        assert why[name].entries == tuple(sorted(lent))
    assert why["reserved_micro"].value == 10
    assert why["reserved_micro"].entries == tuple(sorted((*halves(aside), at_risk)))
    for name in ("good_micro", "reliability_ppm"):
        assert why[name].entries == tuple(sorted(served.halves))
        assert why[name].said_by == (peer(0),)
    assert why["kept_ppm"].value == 1_000_000
    assert {name: each.note for name, each in why.items() if each.note} == {
        "kept_ppm": reasons.UNPROVED,
        "bad_micro": reasons.UNSAID,
        "failures_seen": reasons.UNSEEN,
    }


def test_of_a_stranger_it_is_said_that_nothing_is_known() -> None:
    seen = trust(trade(0, 1, 40), risks=(risk(0, 1, 5),), claims=(claim(0, 1, 7, age=LATE),))
    why = told(seen, 9)
    del why["reserved_micro"]  # It is about others.
    assert {name: (each.value, each.note) for name, each in why.items()} == {
        "kept_ppm": (1_000_000, reasons.UNPROVED),
        "credit_micro": (0, reasons.UNSETTLED),
        "flow_micro": (0, reasons.UNSETTLED),
        "good_micro": (0, reasons.UNSAID),
        "bad_micro": (0, reasons.UNSAID),
        "reliability_ppm": (500_000, reasons.UNHEARD),
        "failures_seen": (0, reasons.UNSEEN),
    }
    for each in why.values():
        assert (each.entries, each.proofs, each.overdue, each.said_by) == ((), (), (), ())
    assert told(trust(), 9)["reserved_micro"].note == reasons.NOT_AT_RISK


def test_an_overdue_half_that_stops_an_edge_is_named() -> None:
    mine, theirs = claim(0, 1, 7, age=LATE), claim(1, 2, 8, age=LATE)
    elsewhere, fresh = claim(3, 4, 9, age=LATE), claim(1, 2, 9, age=LATE - 1)
    others = (trade(3, 4, 50), trade(0, 3, 50))
    for late in (mine, theirs):
        seen = trust(
            trade(0, 1, 40), trade(1, 2, 30), *others, claims=(late, elsewhere, fresh), bundle=OPEN
        )
        why = told(seen, 2)
        for name in ("credit_micro", "flow_micro"):
            assert (why[name].value, why[name].overdue) == (0, (late.half,))
            assert why[name].note == reasons.NO_WAY
    # Who has never traded with us has no edge that could be stopped.
    assert told(trust(trade(1, 2, 30), claims=(mine,)), 2)["flow_micro"].overdue == ()


def test_an_overdue_half_that_hushes_a_reporter_is_named() -> None:
    late = claim(0, 1, 7, age=LATE)
    seen = trust(trade(0, 1, 40), trade(9, 1, 5), claims=(late,))
    why = told(seen, 9)
    for name, note in (("good_micro", reasons.UNSAID), ("reliability_ppm", reasons.UNHEARD)):
        assert (why[name].overdue, why[name].entries, why[name].note) == ((late.half,), (), note)
    # A peer does not vouch for its own renters: that edge is of no account.
    about = trust(trade(9, 0, 5), trade(9, 1, 5), claims=(claim(0, 9, 7, age=LATE),))
    assert told(about, 9)["good_micro"].overdue == ()
    assert told(about, 9)["flow_micro"].overdue != ()


def test_what_nobody_can_be_asked_for_is_at_risk_all_the_same() -> None:
    found = told(trust(risks=(risk(0, 3, 10),)), 2)["reserved_micro"]
    assert (found.value, found.entries) == (0, (entry_id(0, 3, 0),))
    assert found.note == reasons.NO_WAY_AT_RISK


def test_who_is_believed_is_named_with_what_it_says() -> None:
    friend, served = trade(0, 1, 10**9), trade(9, 1, 5)
    attested = replace(failure(1, 9), by=PROBES)
    why = told(trust(friend, served, failures=(attested, failure(2, 9))), 9)
    assert why["good_micro"].entries == tuple(sorted(halves(friend, served)))
    assert why["bad_micro"].entries == tuple(sorted((*halves(friend), *PROBES)))
    assert why["reliability_ppm"].entries == tuple(sorted((*halves(friend, served), *PROBES)))
    for name in ("good_micro", "bad_micro", "reliability_ppm"):
        assert why[name].said_by == (peer(1),)


def test_what_this_node_saw_itself_is_said_to_be_in_no_entry() -> None:
    own = failure(0, 9, 3)
    why = told(trust(failures=(own,)), 9)
    assert (why["failures_seen"].value, why["failures_seen"].note) == (3, reasons.OWN)
    for name in ("bad_micro", "reliability_ppm"):
        assert (why[name].entries, why[name].note) == ((), reasons.OWN)
        assert why[name].said_by == (peer(0),)
    attested = replace(failure(0, 9), by=PROBES)
    both = told(trust(trade(9, 0, 5), failures=(own, attested)), 9)
    assert (both["failures_seen"].value, both["good_micro"].note) == (3, "")
    assert (both["bad_micro"].entries, both["bad_micro"].note) == (
        tuple(sorted(PROBES)),
        reasons.OWN_TOO,
    )


@pytest.mark.parametrize("days", [0, 10**3])
def test_the_proof_against_one_on_the_way_is_named_while_it_costs_something(days: int) -> None:
    story, raw = Story(), fork(opened())
    story.settle(OWNER, RENTER, 5_000_000)
    story.settle(OWNER, STRANGER, 5_000_000)
    case = read_case(raw, NET)
    view = look(story.state(), (case,), ego=RENTER.public, epoch=TODAY + days)
    why = {each.name: each for each in explain(Trust(view), STRANGER.public, MONEY)}
    assert why["flow_micro"].proofs == (() if days else (case.id,))
    assert why["kept_ppm"].proofs == ()
    of_owner = explain(Trust(view), OWNER.public, MONEY)[0]
    assert of_owner.proofs == (case.id,)
    assert of_owner.note == (reasons.SPENT if days else "")


FEW = st.integers(0, 4)


@given(
    st.lists(st.tuples(FEW, FEW, st.integers(0, 9), st.integers(0, 70)), max_size=8),
    st.lists(st.tuples(FEW, st.integers(0, 9)), max_size=3),
    st.lists(st.tuples(FEW, FEW, st.integers(1, 9), st.integers(0, 9)), max_size=3),
    st.lists(st.tuples(FEW, FEW, st.booleans()), max_size=4),
)
def test_no_number_is_without_a_reason(
    trades: list[tuple[int, int, int, int]],
    risks: list[tuple[int, int]],
    claims: list[tuple[int, int, int, int]],
    failures: list[tuple[int, int, bool]],
) -> None:
    seen = trust(
        *(trade(one, two, amount, age=age) for one, two, amount, age in trades if one != two),
        risks=tuple(risk(0, renter, amount) for renter, amount in risks if renter),
        claims=tuple(claim(one, two, n, age=age) for one, two, n, age in claims if one != two),
        failures=tuple(
            replace(failure(one, two), by=PROBES if one or is_attested else ())
            for one, two, is_attested in failures
            if one != two
        ),
    )
    for number in range(5):
        why = told(seen, number)
        finance, record = (of(peer(number), MONEY) for of in (seen.finance, seen.record))
        for name in ("credit_micro", "flow_micro", "reserved_micro"):
            assert why[name].value == getattr(finance, name)
        for name in ("good_micro", "bad_micro", "reliability_ppm"):
            assert why[name].value == getattr(record, name)
        assert why["kept_ppm"].value == seen.view.kept_ppm(peer(number))
        assert why["failures_seen"].value == seen.failures_seen(peer(number))
        for each in why.values():
            assert each.note or each.entries, each
