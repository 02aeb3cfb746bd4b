"""Trades read off real entries, and what they and offences make of a peer's weight."""

import random

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from ledger.bodies import Statement, read_body
from ledger.debts import debt_of
from ledger.fold import State
from ledger.reasons import explain
from ledger.rules import (
    BUNDLES,
    prefix_of,
    read_case,
    table_of,
)
from ledger.trades import WORTHLESS, facts_of
from ledger.trust import Trust
from ledger.view import epoch_of, look
from protocol.rules import BUNDLE, Bundle
from protocol.signing import Signer
from protocol.units import Digest, Micros, PublicKey
from tests.make_evidence import successor
from tests.make_ledger import (
    NET,
    OWNER,
    RENTER,
    STRANGER,
    Feed,
    at,
    certificate,
    genesis,
    grant,
    root_of,
    signer,
    statement,
)
from tests.make_standing import DAY, MONEY, SECOND, TODAY, Story, double_lease, fork, opened
from tests.standing_vectors import busy


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


def test_what_is_not_paid_is_at_risk_and_when_overdue_its_owner_vouches_no_more() -> None:
    story, (owner, renter, _) = traders()
    before = flow(story.state(), owner, renter)
    half, _ = story.settle(owner, renter, 1_000, is_paid=False)
    state = story.state()
    [(at_risk, by, amount)] = seen(state, owner).view.exposures(MONEY)
    assert (at_risk, by, amount) == (half.id, renter.public, 1_000)
    assert flow(state, owner, renter) < before + 1_000
    late = TODAY + BUNDLE.overdue_epochs
    assert flow(state, owner, renter, epoch=late) > 0
    assert flow(state, owner, renter, epoch=late + 1) == 0
    assert flow(state, renter, owner, epoch=late + 1) > 0
    story.claim(owner, renter, 0)
    assert seen(story.state(), owner).view.facts.owed == ()
    assert flow(story.state(), owner, renter, epoch=late + 1) > 0


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
    why = {finding.name: finding for finding in explain(trust, owner.public, MONEY)}
    for name in ("kept_ppm", "credit_micro", "flow_micro", "reliability_ppm"):
        assert why[name].proofs == (read_case(raw, NET).id,)


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
    [(_, _, unpaid)] = seen(story.state(), OWNER).view.exposures(MONEY)
    assert unpaid == 9
    story.sums[OWNER.public, RENTER.public] = 5_000_009
    story.claim(OWNER, RENTER, 0)
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
        told.append([(explain(trust, peer, MONEY), trust.digest(peer, MONEY)) for peer in peers])
    assert told[0] == told[1]


def test_all_feeds_of_an_account_answer_for_what_one_has_done() -> None:
    story, (owner, renter, _) = traders()
    account = root_of(owner)
    other = signer(77)
    new = Feed(other, rules=prefix_of(BUNDLE))
    body = msgspec.structs.replace(genesis(other), certificate=certificate(other, root=account))
    story.entries.append(new.add(body))
    state = story.state()
    assert state.feeds_of_account(owner.public) == sorted([owner.public, other.public])
    assert state.feeds_of_account(renter.public) == [renter.public]
    raw = double_lease(opened())
    here, case = seen(state, renter, raw), read_case(raw, NET)
    for feed in (owner.public, other.public):
        assert here.view.kept_ppm(feed) == 0
        assert here.view.barred_by(feed) == here.view.verdicts_of(feed)[0]
        kept = explain(here, feed, MONEY)[0]
        assert (kept.name, kept.proofs, kept.entries) == ("kept_ppm", (case.id,), case.entries)
    assert here.view.kept_ppm(renter.public) == 1_000_000
    assert here.view.barred_by(renter.public) is None
    assert here.view.verdicts_of(renter.public) == ()


def test_what_a_feed_gave_its_author_ends_where_its_account_says() -> None:
    story = Story()
    story.settle(RENTER, OWNER, 10)
    ending = story.feed(RENTER).last
    assert ending is not None
    story.settle(RENTER, OWNER, 32)
    state = story.state()
    assert flow(state, OWNER, RENTER) == 42
    said = successor(RENTER, STRANGER, ended=ending.seq + 1)
    state.apply(story.feed(STRANGER).add(said))
    assert flow(state, OWNER, RENTER) == 10


def test_a_second_first_entry_frees_no_feed_of_the_account_of_what_another_has_done() -> None:
    story, (owner, _, _) = traders()
    account, made_up = root_of(owner), signer(78)
    for by, root in ((signer(77), account), (owner, made_up), (signer(79), made_up)):
        body = msgspec.structs.replace(genesis(by), certificate=certificate(by, root=root))
        story.entries.append(Feed(by, rules=prefix_of(BUNDLE)).add(body))
    state = story.state()
    feeds = sorted([owner.public, signer(77).public, signer(79).public])
    here = seen(state, signer(3), double_lease(opened()))
    for feed in feeds:
        assert state.feeds_of_account(feed) == feeds
        assert here.view.kept_ppm(feed) == 0


def account(said: list[tuple[int, int, bool]], money: str = "USD") -> State:
    """One of OWNER's with RENTER, of halves: amount, what is paid, whether it is answered."""
    story = Story()
    for ctr, (amount, paid, is_answered) in enumerate(said):
        body = msgspec.structs.replace(
            statement(RENTER, ctr=ctr, used=amount), paid_micro=Micros(paid), money=money
        )
        half = story.feed(OWNER).add(body)
        story.entries.append(half)
        if is_answered:
            story.answer(RENTER, half, OWNER)
    return story.state()


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.booleans()), max_size=5))
@example([(3, 0, True), (1, 0, True), (2, 0, False)])
def test_what_is_owed_is_what_is_due_also_of_an_owner_whose_sums_fall(
    said: list[tuple[int, int, bool]],
) -> None:
    state = account([(0, 0, True), *said])
    facts = facts_of(state, bundles=BUNDLES, home=BUNDLE)
    debt = debt_of(state, OWNER.public, RENTER.public, "USD")
    assert debt is not None
    assert sum(each.amount_micro for each in facts.owed) == debt.due_micro
    epochs = [] if debt.since_ms is None else [debt.since_ms // BUNDLE.epoch_ms]
    assert [each.epoch for each in facts.owed] == epochs
    claimed = sum(each.amount_micro for each in facts.claims)
    amounts = [amount for amount, _, _ in said]
    assert claimed <= debt.claimed_micro
    assert claimed == debt.claimed_micro or amounts != sorted(amounts)


def test_nothing_of_money_that_is_worth_nothing_is_owed_or_claimed() -> None:
    state = account([(1, 0, True), (2, 0, False)], WORTHLESS)
    facts = facts_of(state, bundles=BUNDLES, home=BUNDLE)
    assert [each.amount_micro for each in facts.trades] == [1]
    assert (facts.owed, facts.claims) == ((), ())
