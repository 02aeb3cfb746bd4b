"""What offences cost, and trades read off real entries."""

import random

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from ledger.bodies import Statement, read_body
from ledger.entry import Entry
from ledger.evidence import prove_bad_turn, prove_fork, prove_same_counter
from ledger.fold import State
from ledger.rules import (
    APART,
    BUNDLES,
    Verdict,
    bundle_of,
    judge,
    prefix_of,
    read_case,
    table_of,
)
from ledger.trades import facts_of
from ledger.trust import Trust
from ledger.view import epoch_of, look
from protocol.codec import decode, encode
from protocol.rules import BUNDLE, RULES, RULES_DIGEST, Bundle, Penalty
from protocol.signing import Signer
from protocol.units import Digest, PublicKey
from tests.make_ledger import (
    HOUR,
    NET,
    OWNER,
    RENTER,
    STRANGER,
    UNIT,
    Feed,
    at,
    grant,
    signer,
    statement,
    turn_of,
)
from tests.make_standing import DAY, MONEY, TODAY, Story
from tests.standing_vectors import busy

SECOND = msgspec.structs.replace(
    BUNDLE,
    half_life_epochs=BUNDLE.half_life_epochs + 1,
    penalties={
        **BUNDLE.penalties,
        "A4": Penalty(kept_ppm=900_000, epochs=1),
        "A1": Penalty(kept_ppm=0),
    },
)
"""Another bundle: milder on double leases, harder on forks."""


def opened(rules: bytes = prefix_of(BUNDLE)) -> Feed:
    feed = Feed(OWNER, rules=rules)
    feed.open()
    return feed


def fork(feed: Feed) -> bytes:
    """Two statements at one place: no grant is in it."""
    other = feed.branch()
    raw = prove_fork(feed.add(statement(used=1)), other.add(statement(used=2)))
    assert raw is not None
    return raw


def two_grants(feed: Feed, *, start: int = 5) -> tuple[Entry, Entry]:
    """One counter twice; the second reservation begins at `start` ms."""
    first = grant()
    other = grant(start=start, end=start + HOUR, nonce=1)
    branch = feed.branch()
    return feed.add(first), branch.add(other)


def double_lease(feed: Feed, *, start: int = 5) -> bytes:
    return prove_same_counter(UNIT, *two_grants(feed, start=start))


def verdict(raw: bytes, *bundles: Bundle, state: State | None = None) -> Verdict:
    known = table_of(*(bundles or (BUNDLE,)))
    [found] = judge((read_case(raw, NET),), state or State(), bundles=known)
    return found


def test_a_bundle_is_named_by_the_digest_of_its_only_encoding() -> None:
    assert encode(decode(RULES, Bundle, size_max=4_096)) == RULES
    assert bundle_of(RULES_DIGEST[:8]) == BUNDLE
    assert bundle_of(bytes(8)) is None
    assert len(table_of(BUNDLE, SECOND)) == 2


def test_each_offence_of_the_list_has_its_row() -> None:
    assert {f"A{n}" for n in range(1, 17)} | {APART} == set(BUNDLE.penalties)
    for penalty in BUNDLE.penalties.values():
        assert penalty.kept_ppm < 1_000_000
        assert penalty.ends_standing == (penalty.kept_ppm == 0 and penalty.epochs is UNSET)


def test_a_double_lease_ends_standing_and_a_fork_without_one_does_not() -> None:
    fraud, accident = verdict(double_lease(opened())), verdict(fork(opened()))
    assert (fraud.name, accident.name) == ("A4", "A1")
    assert fraud.ends_standing
    assert not accident.ends_standing
    assert fraud.kept_ppm(TODAY) == fraud.kept_ppm(TODAY + 10**6) == 0
    assert 0 < accident.kept_ppm(TODAY) < 1_000_000


def test_one_counter_for_reservations_that_do_not_meet_is_punished_like_a_fork() -> None:
    restored = verdict(double_lease(opened(), start=2 * HOUR))
    assert restored.name == APART
    assert restored.penalties == verdict(fork(opened())).penalties


def test_a_third_grant_that_meets_one_of_two_makes_it_fraud() -> None:
    """The evidence that is kept is the smallest, not the worst."""
    feed = opened()
    branch = feed.branch()
    raw, state = double_lease(feed, start=2 * HOUR), State()
    state.apply(branch.add(grant(start=500, end=2_000, nonce=2)))
    assert verdict(raw).name == APART
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


def test_offences_under_an_unknown_bundle_are_inert_but_forks_break_the_feed_all_the_same() -> None:
    unknown = prefix_of(SECOND)
    assert verdict(double_lease(opened(unknown))).penalties == ()
    assert verdict(fork(opened(unknown))).penalties == (BUNDLE.penalties["A1"],)
    # Once it is known, its own row counts.
    assert verdict(fork(opened(unknown)), BUNDLE, SECOND).ends_standing


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


def traders() -> tuple[Story, list[Signer]]:
    """Owner, renter and stranger in a row: the first two and the last two trade."""
    story = Story()
    story.settle(OWNER, RENTER, 5_000_000)
    story.settle(RENTER, STRANGER, 3_000_000)
    return story, [OWNER, RENTER, STRANGER]


def seen(
    state: State,
    ego: Signer,
    *proofs: bytes,
    epoch: int = TODAY,
    known: tuple[Bundle, ...] = (BUNDLE,),
) -> Trust:
    cases = tuple(read_case(raw, NET) for raw in proofs)
    return Trust(
        look(state, cases, ego=ego.public, epoch=epoch, bundles=table_of(*known), bundle=BUNDLE)
    )


def flow(state: State, ego: Signer, peer: Signer, *proofs: bytes, epoch: int = TODAY) -> int:
    return seen(state, ego, *proofs, epoch=epoch).finance(peer.public, MONEY).flow_micro


def test_what_both_sides_have_signed_is_settled() -> None:
    story, _ = traders()
    assert flow(story.state(), OWNER, RENTER) == 5_000_000
    assert flow(story.state(), OWNER, STRANGER) == 3_000_000
    assert epoch_of(at(0), BUNDLE) == TODAY


def test_an_epoch_has_what_the_cumulative_amount_grew_by_in_it() -> None:
    story = Story()
    for day, amount in enumerate((7, 20, 4)):
        story.settle(OWNER, RENTER, amount, ts=day * DAY)
    facts = facts_of(story.state(), bundles=BUNDLES, home=BUNDLE)
    grown = [(each.epoch - TODAY, each.amount_micro, each.used_ms) for each in facts.trades]
    assert grown == [(0, 7, 7), (1, 20, 20), (2, 4, 4)]


def test_what_one_side_claims_is_settled_for_nobody() -> None:
    story = Story()
    story.feed(RENTER)
    story.claim(OWNER, RENTER, 40)
    assert flow(story.state(), OWNER, RENTER) == flow(story.state(), RENTER, OWNER) == 0
    facts = facts_of(story.state(), bundles=BUNDLES, home=BUNDLE)
    assert (facts.trades, [each.amount_micro for each in facts.claims]) == ((), [40])


def test_an_answer_that_says_something_else_settles_nothing() -> None:
    story = Story()
    half = story.claim(OWNER, RENTER, 40)
    wrong = msgspec.structs.replace(statement(OWNER, ctr=1, used=39), half=half.id)
    story.entries.append(story.feed(RENTER).add(wrong))
    assert flow(story.state(), OWNER, RENTER) == 0


def test_a_half_that_its_author_contradicts_settles_nothing() -> None:
    story = Story()
    half, _ = story.settle(OWNER, RENTER, 40)
    assert flow(story.state(), OWNER, RENTER) == 40
    said = read_body(half.draft)
    assert isinstance(said, Statement)
    again = msgspec.structs.replace(said, tick=Digest(bytes(32)))
    story.entries.append(story.feed(OWNER).add(again))
    assert flow(story.state(), OWNER, RENTER) == 0


def test_halves_from_a_fork_on_settle_nothing() -> None:
    story = Story()
    story.settle(OWNER, RENTER, 40)
    story.settle(OWNER, RENTER, 2)
    for place, left in ((3, 42), (2, 40), (1, 0)):
        state = story.state()
        state.fork(OWNER.public, place)
        assert flow(state, OWNER, RENTER) == left


def test_a_claim_that_is_overdue_ends_what_its_owner_vouches_for_and_nothing_else() -> None:
    story, _ = traders()
    story.claim(OWNER, RENTER, 1)
    state, late = story.state(), TODAY + BUNDLE.overdue_epochs
    assert flow(state, OWNER, RENTER, epoch=late) == 4_999_998
    assert flow(state, OWNER, RENTER, epoch=late + 1) == 0
    assert flow(state, RENTER, OWNER, epoch=late + 1) == 5_000_000
    assert flow(state, STRANGER, RENTER, epoch=late + 1) == 3_000_000


def test_halves_under_an_unknown_bundle_settle_nothing_and_those_after_them_only_their_own() -> (
    None
):
    story = Story()
    story.settle(OWNER, RENTER, 40)
    for of in (OWNER, RENTER):
        story.feed(of).rules = prefix_of(SECOND)
    story.settle(OWNER, RENTER, 10**6)
    for of in (OWNER, RENTER):
        story.feed(of).rules = prefix_of(BUNDLE)
    story.settle(OWNER, RENTER, 2)
    assert flow(story.state(), OWNER, RENTER) == 42
    both = seen(story.state(), OWNER, known=(BUNDLE, SECOND))
    assert both.finance(RENTER.public, MONEY).flow_micro == 42 + 10**6


def test_a_pair_of_which_one_half_names_an_unknown_bundle_settles_nothing() -> None:
    for unknown in (OWNER, RENTER):
        story = Story()
        story.feed(unknown).rules = b"whatever"
        story.settle(OWNER, RENTER, 40)
        assert flow(story.state(), OWNER, RENTER) == 0


def test_a_trade_is_of_the_epoch_of_its_later_half() -> None:
    for owners, renters in ((0, 2), (2, 0)):
        story = Story()
        half = story.claim(OWNER, RENTER, 40, ts=owners * DAY)
        story.answer(RENTER, half, OWNER, ts=renters * DAY)
        [traded] = facts_of(story.state(), bundles=BUNDLES, home=BUNDLE).trades
        assert traded.epoch == TODAY + 2


def test_an_agreed_amount_that_falls_gives_nothing_and_takes_nothing() -> None:
    story = Story()
    story.settle(OWNER, RENTER, 40)
    story.settle(OWNER, RENTER, -30)
    story.settle(OWNER, RENTER, 32)
    trades = facts_of(story.state(), bundles=BUNDLES, home=BUNDLE).trades
    assert sorted((each.amount_micro, each.used_ms) for each in trades) == [
        (0, 0),
        (2, 2),
        (40, 40),
    ]


def test_evidence_without_an_entry_of_the_offender_is_judged_by_the_networks_bundle() -> None:
    case = replace(read_case(double_lease(opened()), NET), named=())
    [found] = judge((case,), State(), bundles={}, home=SECOND)
    assert found.penalties == (SECOND.penalties["A4"],)


def test_an_offender_gets_nothing_and_nothing_flows_through_it() -> None:
    story, (owner, renter, stranger) = traders()
    raw = double_lease(opened())
    state = story.state()
    assert flow(state, renter, owner) > 0
    trust = seen(state, renter, raw)
    assert trust.credit(owner.public, MONEY) == trust.reliability(owner.public, MONEY) == 0
    assert trust.view.barred_by(owner.public) is not None
    assert trust.view.barred_by(stranger.public) is None
    assert trust.credit(stranger.public, MONEY) > 0
    why = trust.explain(owner.public, MONEY)
    assert all(finding.proofs == (read_case(raw, NET).id,) for finding in why)


def test_a_forked_peer_keeps_a_part_of_its_weight_for_a_while() -> None:
    story, (owner, renter, _) = traders()
    state, raw = story.state(), fork(opened())
    here = seen(state, renter, raw)
    assert here.finance(owner.public, MONEY).flow_micro == 5_000_000 // 4
    assert (
        here.reliability(owner.public, MONEY)
        == seen(state, renter).reliability(owner.public, MONEY) // 4
    )


def test_a_fresh_key_of_an_offender_has_the_standing_of_any_newcomer() -> None:
    story, (_, renter, _) = traders()
    fresh = seen(story.state(), renter, double_lease(opened()))
    assert fresh.credit(signer(9).public, MONEY) == 0
    assert fresh.reliability(signer(9).public, MONEY) == 500_000


def test_a_grant_is_at_risk_until_its_owner_has_stated_what_came_of_it() -> None:
    story = Story()
    story.settle(OWNER, RENTER, 5_000_000)
    granted = story.feed(OWNER).add(grant())
    story.entries.append(granted)
    price = 250_000
    assert seen(story.state(), OWNER).view.exposures(MONEY) == [(granted.id, RENTER.public, price)]
    assert flow(story.state(), OWNER, RENTER) == 5_000_000 - 2 * price
    said = msgspec.structs.replace(statement(RENTER, ctr=7, used=5_000_009), lease=granted.id)
    other = msgspec.structs.replace(statement(OWNER, ctr=7, used=9), lease=granted.id)
    story.entries.append(story.feed(STRANGER).add(other))
    assert seen(story.state(), OWNER).view.exposures(MONEY)[0][0] == granted.id
    half = story.feed(OWNER).add(said)
    story.entries.append(half)
    assert seen(story.state(), OWNER).view.exposures(MONEY) == [(half.id, RENTER.public, 9)]
    story.answer(RENTER, half, OWNER)
    assert seen(story.state(), OWNER).view.exposures(MONEY) == []


BUSY, PROOFS = busy()


@given(st.randoms(use_true_random=False))
def test_whatever_order_entries_come_in_and_however_often_all_numbers_are_the_same(
    dice: random.Random,
) -> None:
    mixed = [*BUSY, *dice.sample(BUSY, 3)]
    dice.shuffle(mixed)
    told = []
    for entries, proofs in ((BUSY, PROOFS), (mixed, (*PROOFS[::-1], PROOFS[0]))):
        state = State()
        for entry in entries:
            state.apply(entry)
        trust = seen(state, signer(3), *proofs)
        peers: list[PublicKey] = [signer(n).public for n in range(1, 7)]
        told.append([(trust.explain(peer, MONEY), trust.digest(peer, MONEY)) for peer in peers])
    assert told[0] == told[1]


def test_overlap_in_one_entry_ends_standing() -> None:
    feed, body = opened(), grant()
    after = turn_of(feed.add(body), body)
    opens = ((5, 5 + HOUR, 1), (1_000, 1_000 + HOUR, 0))
    bad = feed.add(grant(after, start=5, end=5 + HOUR, opens=opens))
    assert verdict(prove_bad_turn(UNIT, bad)).ends_standing
