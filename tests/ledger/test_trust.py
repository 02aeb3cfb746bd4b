"""Credit and reliability over made-up trades; tests/ledger/test_standing.py has real entries."""

import random
from dataclasses import replace
from decimal import Decimal, localcontext
from itertools import pairwise
from typing import TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.reasons import explain
from ledger.trades import Facts, Risk, Trade
from ledger.trust import Trust, lower_bound_ppm
from ledger.view import Failure, view_of
from protocol.rules import BUNDLE
from tests.make_standing import (
    MONEY,
    OPEN,
    TODAY,
    failure,
    peer,
    risk,
    trade,
    trust,
)

T = TypeVar("T")
HONEST = 12
FIRST_SYBIL = 100
UNIT = BUNDLE.period_micro
VOICE = BUNDLE.voice_micro_max
PERIODS = VOICE // UNIT
"""As many fill a voice."""


def credit(of: Trust, number: int) -> int:
    return of.credit(peer(number), MONEY)


def reliability(of: Trust, number: int) -> int:
    return of.reliability(peer(number), MONEY)


def honest_trades(seed: int) -> list[Trade]:
    dice = random.Random(seed)
    pairs = [dice.sample(range(HONEST), 2) for _ in range(30)]
    return [trade(one, other, dice.randrange(1, 100)) for one, other in pairs]


def wash_trades(sybils: int) -> list[Trade]:
    """A ring in which everybody pays the next a million."""
    names = [FIRST_SYBIL + n for n in range(sybils)]
    return [trade(one, other, 1_000_000) for one, other in pairwise([*names, names[0]])]


def test_a_direct_trade_gives_credit_both_ways_and_a_stranger_has_none() -> None:
    both = trade(0, 1, 40)
    assert credit(trust(both), 1) == credit(trust(both, ego=1), 0) == 40
    assert credit(trust(both), 2) == 0


def test_phi_and_the_caps_are_the_bundles() -> None:
    trades = [trade(0, 1, 10**9, age=age) for age in range(10)]
    assert credit(trust(trades[0], bundle=BUNDLE), 1) == BUNDLE.settled_micro_max // 2
    assert credit(trust(*trades, bundle=BUNDLE), 1) == BUNDLE.credit_micro_max


def test_what_two_trade_in_one_epoch_is_capped_together_both_ways() -> None:
    bundle = msgspec.structs.replace(OPEN, settled_micro_max=50)
    assert credit(trust(trade(0, 1, 40), trade(1, 0, 40), bundle=bundle), 1) == 50
    assert credit(trust(trade(0, 1, 40), trade(1, 0, 40, age=1), bundle=bundle), 1) == 80


def test_trades_halve_with_each_half_life_and_those_of_the_future_wait() -> None:
    half = OPEN.half_life_epochs
    ages = [(half - 1, 40), (half, 20), (2 * half, 10), (6 * half, 0), (-1, 0)]
    assert [credit(trust(trade(0, 1, 40, age=age)), 1) for age, _ in ages] == [
        left for _, left in ages
    ]


def test_money_of_different_units_never_meets() -> None:
    one = trust(trade(0, 1, 40, money="EUR"), trade(1, 2, 40, money="USD"))
    assert one.credit(peer(2), "USD") == one.credit(peer(2), "EUR") == 0
    assert one.credit(peer(1), "EUR") == 40


def test_what_is_at_risk_is_set_aside_also_for_others_behind_the_same_peer() -> None:
    trades = (trade(0, 1, 100), trade(1, 2, 100), trade(1, 3, 100))
    assert [credit(trust(*trades), n) for n in (1, 2, 3)] == [100, 100, 100]
    at_risk = trust(*trades, risks=(risk(0, 2, 70),))
    assert [credit(at_risk, n) for n in (1, 2, 3)] == [30, 30, 30]
    assert at_risk.finance(peer(3), MONEY).reserved_micro == 70


def test_a_lease_of_which_nothing_is_stated_is_at_risk_until_it_is_overdue() -> None:
    late = OPEN.overdue_epochs
    for age, left in ((late, 30), (late + 1, 100)):
        assert credit(trust(trade(0, 1, 100), risks=(risk(0, 1, 70, age=age),)), 1) == left


def test_the_risk_of_others_is_their_own_and_risk_in_other_money_is_another_matter() -> None:
    foreign = replace(risk(0, 1, 70), money="EUR")
    assert credit(trust(trade(0, 1, 100), risks=(risk(5, 1, 70), foreign)), 1) == 100


def test_what_is_at_risk_takes_flow_rounded_up_and_credit_is_rounded_down() -> None:
    bundle = msgspec.structs.replace(OPEN, phi=(2, 3))
    assert credit(trust(trade(0, 1, 100), bundle=bundle), 1) == 66
    at_risk = trust(trade(0, 1, 100), risks=(risk(0, 1, 1),), bundle=bundle)
    assert at_risk.finance(peer(1), MONEY).reserved_micro == 2


@pytest.mark.parametrize("sybils", [0, 1, 50])
def test_sybils_with_wash_trades_get_no_more_than_was_really_traded(sybils: int) -> None:
    """ledger-measurements' table: 2,000 honest nodes there, 12 here; five real trades of 50."""
    attacker = FIRST_SYBIL
    real = [trade(honest, attacker, 50) for honest in range(5)]
    # Among honest peers so much was traded that only the attacker's own edges bound it.
    honest = [trade(one, other, 10_000) for one in range(HONEST) for other in range(one)]
    all_of_them = range(attacker, attacker + max(1, sybils + 1))
    ring = [
        trade(one, other, 1_000_000) for one in all_of_them for other in all_of_them if one < other
    ]
    seen = trust(*honest, *real, *ring, ego=9)
    assert [credit(seen, sybil) for sybil in all_of_them] == [250] * len(all_of_them)
    assert sum(each.amount_micro for each in (*real, *ring)) == 250 + 1_000_000 * len(ring)
    last = all_of_them[-1]
    spent = trust(*honest, *real, *ring, ego=9, risks=(risk(9, last, 250),))
    assert [credit(spent, sybil) for sybil in all_of_them] == [0] * len(all_of_them)


@given(
    st.integers(0, 10**6),
    st.lists(
        st.tuples(st.integers(0, HONEST - 1), st.integers(0, 49), st.integers(1, 200)), max_size=8
    ),
    st.lists(st.tuples(st.integers(0, 49), st.integers(0, 49), st.integers(1, 10**6)), max_size=30),
    st.lists(st.integers(0, 60), min_size=1, max_size=12),
)
def test_i9_a_coalition_gets_no_more_credit_in_all_than_its_edges_to_honest_peers_weigh(
    seed: int,
    attacks: list[tuple[int, int, int]],
    inside: list[tuple[int, int, int]],
    asks: list[int],
) -> None:
    """Each that asks is given all that it may have; numbers above 49 are fresh ids."""
    real = [trade(honest, FIRST_SYBIL + sybil, amount) for honest, sybil, amount in attacks]
    fake = [trade(FIRST_SYBIL + a, FIRST_SYBIL + b, w) for a, b, w in inside if a != b]
    trades = [*honest_trades(seed), *real, *wash_trades(50), *fake]
    cut = sum(each.amount_micro for each in {each.halves: each for each in real}.values())
    risks: list[Risk] = []
    for number, sybil in enumerate(asks):
        given_out = credit(trust(*trades, risks=tuple(risks)), FIRST_SYBIL + sybil)
        risks.append(risk(0, FIRST_SYBIL + sybil, given_out, number=number))
    assert sum(each.amount_micro for each in risks) <= cut


@given(st.integers(0, 10**6), st.integers(0, 200), st.integers(1, 30), st.integers(0, 30))
def test_i9_a_coalition_is_believed_no_more_in_all_than_its_edges_to_honest_peers_weigh(
    seed: int, real: int, done: int, failed: int
) -> None:
    subject, sybils = 500, range(FIRST_SYBIL, FIRST_SYBIL + 50)
    bundle = msgspec.structs.replace(OPEN, period_micro=1)
    trades = [*honest_trades(seed), *wash_trades(50), trade(3, FIRST_SYBIL, real)]
    praise = [trade(subject, sybil, 1_000_000, used=done * 60_000) for sybil in sybils]
    slander = tuple(failure(sybil, subject, failed) for sybil in sybils)
    record = trust(*trades, *praise, failures=slander, bundle=bundle).record(peer(subject), MONEY)
    assert record.good_micro + record.bad_micro <= real


@given(st.integers(0, 10**6), st.integers(0, HONEST - 1), st.integers(1, 50))
def test_wash_trades_and_strangers_complaints_change_nobody_elses_numbers(
    seed: int, subject: int, periods: int
) -> None:
    trades = honest_trades(seed)
    slander = tuple(failure(FIRST_SYBIL + n, subject, periods) for n in range(50))
    quiet, loud = trust(*trades), trust(*trades, *wash_trades(50), failures=slander)
    assert credit(quiet, subject) == credit(loud, subject)
    assert reliability(quiet, subject) == reliability(loud, subject)
    assert credit(loud, FIRST_SYBIL) == 0


def test_a_peer_does_not_vouch_for_those_who_praise_it() -> None:
    seen = trust(trade(0, 1, 10**6), trade(1, 2, 10**6), bundle=BUNDLE)
    ego_alone = trust(trade(1, 0, 10**6), bundle=BUNDLE)
    assert seen.record(peer(1), MONEY).good_micro == 0
    assert ego_alone.record(peer(1), MONEY).good_micro == UNIT


def test_a_complaint_counts_as_far_as_flow_reaches_its_reporter() -> None:
    friends = (trade(1, 0, 3 * UNIT), trade(2, 0, 10**6))
    served = trade(9, 2, 10**6, used=600_000)
    told = [
        trust(*friends, served, failures=(failure(n, 9, 10),), bundle=BUNDLE).record(peer(9), MONEY)
        for n in (0, 1, 2, 3)
    ]
    assert [each.bad_micro for each in told] == [10 * UNIT, 3 * UNIT, 10 * UNIT, 0]
    assert told[0].reliability_ppm < told[1].reliability_ppm < told[3].reliability_ppm


@pytest.mark.parametrize(
    ("good", "bad", "believed"),
    [
        (PERIODS - 1, 0, (VOICE - UNIT, 0)),
        (PERIODS, 0, (VOICE, 0)),
        (PERIODS + 1, 0, (VOICE, 0)),
        (0, 1_000 * PERIODS, (0, VOICE)),
        (3 * PERIODS, PERIODS, (VOICE * 3 // 4, VOICE // 4)),
    ],
)
@pytest.mark.parametrize("reporter", [0, 1], ids=["ego", "another"])
def test_one_reporter_is_believed_for_so_much_however_much_it_tells(
    reporter: int, good: int, bad: int, believed: tuple[int, int]
) -> None:
    served = trade(9, reporter, 1, used=good * BUNDLE.period_ms)
    seen = trust(
        trade(0, 1, 10 * VOICE), served, failures=(failure(reporter, 9, bad),), bundle=BUNDLE
    )
    record = seen.record(peer(9), MONEY)
    assert (record.good_micro, record.bad_micro) == believed


def test_each_reporter_has_a_voice_of_its_own() -> None:
    friends = [trade(0, one, 10 * VOICE) for one in (1, 2, 3)]
    praise = [trade(9, one, 1, used=2 * PERIODS * BUNDLE.period_ms) for one in (0, 1, 2, 3)]
    for heard in range(5):
        seen = trust(*friends, *praise[:heard], bundle=BUNDLE)
        assert seen.record(peer(9), MONEY).good_micro == heard * VOICE


@pytest.fixture
def few_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundredth of the looks, so that a small crowd could use them up."""
    monkeypatch.setattr("ledger.max_flow.FLOW_LOOKS_MAX", 20_000)
    monkeypatch.setattr("ledger.max_flow.FLOW_EDGE_LOOKS_MAX", 20_000 // 16)


LATE = 9_000
"""An honest peer whose key is above those of all Sybils."""
CROWD = range(FIRST_SYBIL, FIRST_SYBIL + 60)
FRIENDS = range(300, 400)
"""So many that a search from ego's end is the longer one."""


@pytest.mark.usefixtures("few_looks")
@pytest.mark.parametrize("friend", [LATE, 9], ids=["alone", "with the owner"])
def test_a_crowd_without_an_edge_silences_no_complaint(friend: int) -> None:
    honest = [trade(0, one, VOICE) for one in (LATE, friend, *FRIENDS)]
    crowd = [trade(one, other, VOICE) for one in CROWD for other in CROWD if one < other]
    praise = [trade(9, one, VOICE) for one in CROWD]
    complaint = (failure(LATE, 9, 10**6),)
    before = trust(*honest, failures=complaint, bundle=BUNDLE)
    after = trust(*honest, *crowd, *praise, failures=complaint, bundle=BUNDLE)
    assert before.record(peer(9), MONEY).bad_micro == VOICE
    assert after.record(peer(9), MONEY) == before.record(peer(9), MONEY)


@pytest.mark.usefixtures("few_looks")
def test_a_crowd_behind_an_edge_uses_up_the_looks_of_that_edge_alone() -> None:
    gate, ends, middle = FIRST_SYBIL, range(200, 220), range(300, 400)
    fans = [trade(one, other, 1) for one in middle for other in (gate, *ends)]
    praise = [trade(9, one, 1, used=10**12) for one in ends]
    seen = trust(
        trade(0, LATE, VOICE),
        trade(0, gate, VOICE),
        *fans,
        *praise,
        failures=(failure(LATE, 9, 10**6),),
        bundle=BUNDLE,
    )
    record = seen.record(peer(9), MONEY)
    assert 0 < record.good_micro < 100, "given up"
    assert record.bad_micro == VOICE


@pytest.mark.usefixtures("few_looks")
def test_what_is_at_risk_with_a_crowd_without_an_edge_takes_nobodys_credit() -> None:
    crowd = [trade(one, other, 40) for one in CROWD for other in CROWD if one < other]
    honest = [trade(0, one, 40) for one in (LATE, *FRIENDS)]
    risks = tuple(risk(0, one, 5, number=one) for one in CROWD)
    assert credit(trust(*honest, *crowd, risks=risks), LATE) == 40


def test_an_owner_without_history_has_one_half() -> None:
    assert reliability(trust(bundle=BUNDLE), 9) == 500_000 == lower_bound_ppm(0, 0, BUNDLE)


def test_reliability_rises_with_good_periods_and_falls_with_bad_ones() -> None:
    bounds = [lower_bound_ppm(good * UNIT, 0, BUNDLE) for good in (0, 1, 5, 50, 5_000)]
    assert bounds == sorted(set(bounds))
    assert lower_bound_ppm(0, UNIT, BUNDLE) < bounds[0] < 999_000 < bounds[-1]


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_reliability_is_mean_less_deviations_of_a_beta_distribution(good: int, bad: int) -> None:
    with localcontext(prec=80):
        fine, poor = Decimal(good) / UNIT + 3, Decimal(bad) / UNIT + 1
        mean = fine / (fine + poor)
        variance = mean * (1 - mean) / (fine + poor + 1)
        bound = int((mean - (variance * 5 / 3).sqrt()) * 1_000_000)
    assert lower_bound_ppm(good, bad, BUNDLE) in {bound, bound - 1}


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.integers(0, 10**9))
def test_more_good_never_lowers_reliability_and_more_bad_never_raises_it(
    good: int, bad: int, more: int
) -> None:
    here = lower_bound_ppm(good, bad, BUNDLE)
    assert 0 <= lower_bound_ppm(good, bad + more, BUNDLE) <= here
    assert here <= lower_bound_ppm(good + more, bad, BUNDLE) < 1_000_000


@given(st.integers(0, 10**6), st.randoms(use_true_random=False), st.integers(0, HONEST - 1))
def test_order_and_repetition_change_no_number_no_reason_and_no_digest(
    seed: int, dice: random.Random, subject: int
) -> None:
    trades = [*honest_trades(seed), *wash_trades(5), trade(1, FIRST_SYBIL, 30)]
    risks = [risk(0, n, 5, number=n) for n in range(1, 6)]
    failures = [failure(n, subject) for n in range(4)]

    def told(of: list[Trade], at_risk: list[Risk], failed: list[Failure]) -> object:
        seen = trust(*of, risks=tuple(at_risk), failures=tuple(failed))
        return explain(seen, peer(subject), MONEY), seen.digest(peer(subject), MONEY)

    def mixed(of: list[T]) -> list[T]:
        return dice.sample([*of, *of[:2]], len(of) + 2)

    first = told(trades, risks, failures)
    assert told(mixed(trades), mixed(risks), mixed(failures)) == first


def test_a_digest_covers_what_the_numbers_come_from() -> None:
    one = trust(trade(0, 1, 40), bundle=BUNDLE)
    others = [
        trust(trade(0, 1, 41), bundle=BUNDLE),
        trust(trade(0, 1, 40), bundle=OPEN),
        trust(trade(0, 1, 40), bundle=BUNDLE, epoch=TODAY + 1),
        trust(trade(0, 1, 40), bundle=BUNDLE, failures=(failure(5, 1),)),
    ]
    digests = {each.digest(peer(1), MONEY) for each in (one, *others)}
    assert len(digests) == 5


def test_facts_are_a_set() -> None:
    one, other = trade(0, 1, 1), trade(1, 2, 2)
    both = Facts(trades=(other, one)).merged(Facts(trades=(one,)))
    assert both == Facts(trades=(one, other))
    view = view_of(Facts(trades=(other, one, one)), (), ego=peer(0), epoch=TODAY)
    assert replace(view, facts=both) == view


def test_among_two_thousand_honest_peers_a_query_looks_at_little() -> None:
    dice = random.Random(1)
    trades = [
        trade(one, other, dice.randrange(1, 1_000))
        for one in range(2_000)
        for other in dice.sample(range(2_000), 10)
        if one != other
    ]
    from ledger.limits import FLOW_LOOKS_MAX
    from ledger.max_flow import Flow, graph_of

    flow = Flow(graph_of(trust(*trades).view.edges(MONEY)))
    assert flow.push(peer(3), peer(4), 10**18) > 0
    assert FLOW_LOOKS_MAX - flow._looks < 60_000
