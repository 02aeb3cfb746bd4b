"""Class B: what k of n named witnesses say of a lease, apart from all proof."""

import random

import pytest

from ledger.attested import Attested, attested, non_deliveries
from ledger.bodies import Accept
from ledger.entry import Entry
from ledger.evidence import check
from ledger.fold import State
from ledger.rail_bodies import RailHold
from ledger.trust import Trust
from ledger.view import attested_failures, look
from ledger.witness_bodies import Probe, Verdict
from protocol.errors import PeerFault
from protocol.rules import BUNDLE
from protocol.signing import Signer
from protocol.units import PublicKey
from tests.make_evidence import sealed_receipt
from tests.make_ledger import (
    HOUR,
    NET,
    OWNER,
    RENTER,
    STRANGER,
    WITNESSES,
    Feed,
    cosigned,
    grant,
    release,
    state_of,
    turn_of,
    witnessed,
)
from tests.make_standing import TODAY, Story

PERIOD = 60_000
"""That of `lease_request`; the lease starts at 1,000."""


class Past:
    """An accepted lease with three witnesses, of whom two are enough; and PROBEs about it."""

    def __init__(self, *, is_accepted: bool = True, end: int = 1_000 + HOUR) -> None:
        self.feeds: dict[PublicKey, Feed] = {}
        self.entries: list[Entry] = []
        body = witnessed(grant())
        self.granted = self.write(OWNER, body)
        self.lease = self.granted.id
        if is_accepted:
            self.write(RENTER, Accept(grant=self.lease, cosigned=cosigned(self.granted, body)))
        if end < 1_000 + HOUR:
            self.write(OWNER, release(turn_of(self.granted, body), self.granted, at_ms=end))

    def write(self, by: Signer, body: object, *, ts: int = 0) -> Entry:
        if by.public not in self.feeds:
            self.feeds[by.public] = Feed(by)
            self.entries.append(self.feeds[by.public].open())
        feed = self.feeds[by.public]
        feed.ts = max(feed.ts, ts)
        entry = feed.add(body)  # type: ignore[arg-type]
        self.entries.append(entry)
        return entry

    def probe(
        self, by: Signer, verdict: Verdict = "fail", *, period: int = 0, ts: int | None = None
    ) -> Entry:
        said = Probe(lease=self.lease, period=period, verdict=verdict)
        return self.write(by, said, ts=1_000 + period * PERIOD if ts is None else ts)

    def state(self) -> State:
        return state_of(self.entries)

    def fact(self, period: int = 0) -> Attested | None:
        return attested(self.state(), self.lease, period)


def test_k_of_n_named_witnesses_stand_for_a_period_in_which_nothing_was_delivered() -> None:
    past = Past()
    one, two, three = WITNESSES
    probes = [past.probe(one), past.probe(two)]
    past.probe(three, "ok")
    fact = past.fact()
    assert fact is not None
    assert (fact.k, fact.n, fact.quorum, fact.is_enough) == (2, 3, 2, True)
    assert (fact.owner, fact.renter) == (OWNER.public, RENTER.public)
    assert fact.by == tuple(sorted(probe.id for probe in probes))
    assert fact.text == "non-delivery in period 0, attested 2 of 3"


def test_fewer_than_the_quorum_are_shown_and_count_nothing() -> None:
    past = Past()
    past.probe(WITNESSES[0])
    fact = past.fact()
    assert fact is not None
    assert (fact.k, fact.is_enough) == (1, False)
    assert attested_failures(past.state(), BUNDLE) == ()


def test_what_strangers_and_parties_probe_counts_nothing() -> None:
    past = Past()
    for by in (STRANGER, RENTER, OWNER):
        past.probe(by)
    assert past.fact() is None


def test_a_witness_counts_once_for_a_period_however_often_it_says_so() -> None:
    past = Past()
    past.probe(WITNESSES[0])
    past.probe(WITNESSES[0], ts=2_000)
    fact = past.fact()
    assert fact is not None
    assert (fact.k, len(fact.by)) == (1, 2)


def test_a_witness_that_says_both_attests_neither() -> None:
    past = Past()
    past.probe(WITNESSES[0])
    past.probe(WITNESSES[0], "ok")
    assert past.fact() is None


@pytest.mark.parametrize(("ts", "counts"), [
    (999, False), (1_000, True), (60_999, True), (61_000, False),
])  # fmt: skip
def test_a_probe_is_written_within_its_period(ts: int, counts: bool) -> None:
    past = Past()
    past.probe(WITNESSES[0], ts=ts)
    assert (past.fact() is not None) == counts


def test_a_period_begins_while_the_lease_lasts() -> None:
    past = Past(end=1_000 + PERIOD)
    past.probe(WITNESSES[0])
    past.probe(WITNESSES[0], period=1)
    assert past.fact(0) is not None
    assert past.fact(1) is None
    assert [each.period for each in non_deliveries(past.state())] == [0]


def test_a_lease_that_was_not_accepted_can_fail_nobody() -> None:
    past = Past(is_accepted=False)
    past.probe(WITNESSES[0])
    assert past.fact() is None


def test_from_its_fork_on_a_witness_attests_nothing_and_an_owner_is_attested_nothing() -> None:
    past = Past()
    entry = past.probe(WITNESSES[0])
    state = past.state()
    state.fork(entry.feed, entry.seq)
    assert attested(state, past.lease, 0) is None
    state = past.state()
    state.fork(OWNER.public, past.granted.seq)
    assert attested(state, past.lease, 0) is None


def test_the_order_of_entries_changes_nothing() -> None:
    past = Past()
    for by in WITNESSES:
        past.probe(by)
        past.probe(by, period=1)
    past.write(OWNER, RailHold(receipt=sealed_receipt(lease=past.lease)))
    whole = past.state()
    for seed in range(20):
        random.Random(seed).shuffle(past.entries)
        again = past.state()
        assert again == whole
        assert non_deliveries(again) == non_deliveries(whole)
        assert again.witnessed(past.lease) == whole.witnessed(past.lease) != ()


def test_attested_failures_are_in_the_renters_mouth_one_for_each_period() -> None:
    past = Past()
    for by in WITNESSES[:2]:
        past.probe(by)
        past.probe(by, period=1)
    failures = attested_failures(past.state(), BUNDLE)
    assert [(each.reporter, each.subject, each.periods) for each in failures] == [
        (RENTER.public, OWNER.public, 1)
    ] * 2
    assert [len(each.by) for each in failures] == [2, 2]


def story_with(past: Past) -> tuple[State, State]:
    """STRANGER has traded with RENTER, and RENTER's lease with OWNER failed; and without that."""
    story = Story()
    story.settle(STRANGER, RENTER, 1_000_000)
    plain, with_failures = State(), State()
    for entry in story.entries:
        plain.apply(entry)
        with_failures.apply(entry)
    for entry in past.entries:
        with_failures.apply(entry)
    return plain, with_failures


def test_it_weighs_in_reliability_as_far_as_the_renter_is_believed_and_in_nothing_else() -> None:
    past = Past()
    for by in WITNESSES:
        past.probe(by)
    plain, failed = story_with(past)
    money = "USD"

    def seen_by(ego: Signer, state: State) -> Trust:
        return Trust(look(state, (), ego=ego.public, epoch=TODAY))

    believer, outsider = seen_by(STRANGER, failed), seen_by(WITNESSES[0], failed)
    before = seen_by(STRANGER, plain).reliability(OWNER.public, money)
    assert believer.reliability(OWNER.public, money) < before
    # Whom no flow reaches from the renter believes nothing of it, were it a witness itself.
    assert outsider.reliability(OWNER.public, money) == before
    for view in (believer.view, outsider.view):
        assert view.kept_ppm(OWNER.public) == 1_000_000
        assert view.barred_by(OWNER.public) is None
        assert view.verdicts == ()
    credit = believer.credit(OWNER.public, money)
    assert credit == seen_by(STRANGER, plain).credit(OWNER.public, money)


def test_what_is_attested_is_never_read_as_proof() -> None:
    past = Past()
    probes = [past.probe(by).raw for by in WITNESSES]
    for raw in probes:
        with pytest.raises(PeerFault, match=r"evidence\.form"):
            check(raw, NET)
