"""What offences cost, by which bundle."""

from dataclasses import replace

import pytest
from msgspec import UNSET

from ledger.fold import State
from ledger.rules import (
    APART,
    BUNDLES,
    Verdict,
    judge,
    prefix_of,
    read_case,
    table_of,
)
from ledger.unit_evidence import prove_bad_turn, prove_broken_chain, prove_same_counter
from protocol.codec import decode, encode
from protocol.rules import BUNDLE, RULES, RULES_DIGEST, Bundle
from tests.make_evidence import proofs
from tests.make_ledger import (
    HOUR,
    NET,
    OWNER,
    UNIT,
    at,
    grant,
    release,
    turn_of,
)
from tests.make_standing import SECOND, TODAY, double_lease, fork, opened, two_grants

PROOFS = proofs()


def verdict(raw: bytes, *bundles: Bundle, state: State | None = None) -> Verdict:
    known = table_of(*(bundles or (BUNDLE,)))
    [found] = judge((read_case(raw, NET),), state or State(), bundles=known)
    return found


def test_a_bundle_is_named_by_the_digest_of_its_only_encoding() -> None:
    assert encode(decode(RULES, Bundle, size_max=4_096)) == RULES
    assert {RULES_DIGEST[:8]: BUNDLE} == BUNDLES
    assert len(table_of(BUNDLE, SECOND)) == 2


def test_each_offence_of_the_list_has_its_row() -> None:
    assert {f"A{n}" for n in range(1, 17)} | {APART} == set(BUNDLE.penalties)
    for penalty in BUNDLE.penalties.values():
        assert penalty.kept_ppm < 1_000_000
        assert penalty.ends_standing == (penalty.kept_ppm == 0 and penalty.epochs is UNSET)


@pytest.mark.parametrize("rule", PROOFS)
def test_each_offence_costs_something_on_the_day_on_which_it_was_done(rule: str) -> None:
    found = verdict(PROOFS[rule])
    assert found.penalties
    assert found.kept_ppm(TODAY) < 1_000_000


def test_a_double_lease_ends_standing_and_a_fork_without_one_does_not() -> None:
    fraud, accident = verdict(double_lease(opened())), verdict(fork(opened()))
    assert (fraud.name, accident.name) == ("A4", "A1")
    assert fraud.ends_standing
    assert not accident.ends_standing
    assert fraud.kept_ppm(TODAY) == fraud.kept_ppm(TODAY + 10**6) == 0
    assert 0 < accident.kept_ppm(TODAY) < 1_000_000


def test_one_counter_for_reservations_that_do_not_meet_is_punished_like_a_fork() -> None:
    raw = double_lease(opened(), start=2 * HOUR)
    restored = verdict(raw, state=forked_at(1))
    assert restored.name == APART
    assert restored.penalties == verdict(fork(opened())).penalties
    assert verdict(raw).ends_standing
    assert verdict(raw, state=forked_at(2)).ends_standing
    meeting = double_lease(opened())
    assert verdict(meeting, state=forked_at(1)).ends_standing


def test_one_interval_for_two_requests_is_fraud_and_for_one_request_an_accident() -> None:
    for nonce, name in ((0, APART), (1, "A4")):
        feed = opened()
        branch = feed.branch()
        branch.ts = 1
        pair = feed.add(grant()), branch.add(grant(nonce=nonce))
        raw = prove_same_counter(UNIT, *sorted(pair, key=lambda each: each.draft.hdr))
        assert verdict(raw, state=forked_at(1)).name == name
        # A replica that has the leases, and evidence that shows but one of them.
        state = forked_at(1)
        for entry in pair:
            state.apply(entry)
        case = replace(read_case(raw, NET), promised=())
        [found] = judge((case,), state)
        assert found.name == name


def test_what_a_fork_does_to_a_units_chain_costs_no_more_than_the_fork() -> None:
    feed = opened()
    branch = feed.branch()
    first, other = grant(), grant(start=2 * HOUR, end=3 * HOUR, nonce=1)
    here, there = feed.add(first), branch.add(other)
    after = grant(turn_of(there, other), start=4 * HOUR, end=5 * HOUR, nonce=2)
    later = branch.add(after)
    for raw in (prove_bad_turn(UNIT, here, later), prove_broken_chain(UNIT, here, later)):
        assert verdict(raw, state=forked_at(1)).name == APART
        assert verdict(raw).ends_standing


def forked_at(seq: int) -> State:
    state = State()
    state.fork(OWNER.public, seq)
    return state


def test_a_third_grant_that_meets_one_of_two_makes_it_fraud() -> None:
    """The evidence that is kept is the smallest, not the worst."""
    feed = opened()
    branch = feed.branch()
    raw, state = double_lease(feed, start=2 * HOUR), forked_at(1)
    assert verdict(raw, state=state).name == APART
    for lease in (grant(), grant(start=500, end=2_000, nonce=2)):
        state.apply(branch.branch().add(lease))
    assert verdict(raw, state=state).ends_standing


def test_a_penalty_for_some_epochs_ends_with_them() -> None:
    accident = verdict(fork(opened()))
    epochs = BUNDLE.penalties["A1"].epochs
    assert isinstance(epochs, int)
    kept = [accident.kept_ppm(TODAY + n) for n in (-1, 0, epochs - 1, epochs)]
    assert kept == [250_000, 250_000, 250_000, 1_000_000]


def test_an_offence_is_judged_by_the_bundle_that_its_author_named_and_nothing_is_retroactive() -> (
    None
):
    old, new = double_lease(opened()), double_lease(opened(prefix_of(SECOND)))
    assert verdict(old) == verdict(old, BUNDLE, SECOND)
    assert verdict(old, BUNDLE, SECOND).ends_standing
    assert not verdict(new, BUNDLE, SECOND).ends_standing
    assert verdict(new, BUNDLE, SECOND).kept_ppm(TODAY) == 900_000


def test_who_names_an_unknown_bundle_is_judged_by_that_of_the_network() -> None:
    for name in (prefix_of(SECOND), b"unknown!"):
        assert verdict(double_lease(opened(name))).penalties == (BUNDLE.penalties["A4"],)
        assert verdict(double_lease(opened(name))).ends_standing
        assert verdict(fork(opened(name))).penalties == (BUNDLE.penalties["A1"],)
    # Once it is known, its own rows count.
    unknown = prefix_of(SECOND)
    assert verdict(fork(opened(unknown)), BUNDLE, SECOND).ends_standing
    assert not verdict(double_lease(opened(unknown)), BUNDLE, SECOND).ends_standing


def test_who_names_an_unknown_bundle_beside_a_known_one_is_judged_by_the_known_one() -> None:
    feed = opened()
    branch = feed.branch()
    branch.rules = b"whatever"
    pair = feed.add(grant()), branch.add(grant(start=5, end=HOUR, nonce=1))
    pair = pair if pair[0].draft.hdr < pair[1].draft.hdr else pair[::-1]
    assert verdict(prove_same_counter(UNIT, *pair)).ends_standing


def test_a_case_names_the_entries_and_the_time_of_the_offender() -> None:
    feed = opened()
    feed.ts = 7
    one, other = two_grants(feed, start=5_000)
    case = read_case(prove_same_counter(UNIT, one, other), NET)
    assert case.entries == tuple(sorted((one.id, other.id)))
    assert (case.ts_ms, case.named) == (at(7), (prefix_of(BUNDLE),))


def test_evidence_without_an_entry_of_the_offender_is_judged_by_the_networks_bundle() -> None:
    case = replace(read_case(double_lease(opened()), NET), named=())
    [found] = judge((case,), State(), bundles={}, home=SECOND)
    assert found.penalties == (SECOND.penalties["A4"],)


def test_overlap_in_one_entry_ends_standing() -> None:
    feed, body = opened(), grant()
    after = turn_of(feed.add(body), body)
    opens = ((5, 5 + HOUR, 1), (1_000, 1_000 + HOUR, 0))
    bad = feed.add(grant(after, start=5, end=5 + HOUR, opens=opens))
    assert verdict(prove_bad_turn(UNIT, bad)).ends_standing


def test_a_lease_that_was_given_back_before_the_fork_came_to_light_meets_nothing() -> None:
    """As after a restored backup that has forgotten a GRANT and its RELEASE."""
    feed = opened()
    branch = feed.branch()
    first, again = grant(end=HOUR), grant(start=2_000, end=HOUR, nonce=1)
    granted = feed.add(first)
    freed = feed.add(release(turn_of(granted, first), granted, at_ms=2_000))
    later = branch.add(again)
    raw, state = prove_same_counter(UNIT, granted, later), forked_at(1)
    assert verdict(raw, state=state).ends_standing
    for entry in (granted, freed, later):
        state.apply(entry)
    assert verdict(raw, state=state).name == APART
