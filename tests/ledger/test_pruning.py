"""Bodies that are dropped below a checkpoint, and all that stays as it was (I11)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.attested import non_deliveries
from ledger.bodies import read_body
from ledger.capability_bodies import Challenge
from ledger.checkpoints import CheckpointPart
from ledger.continuity_bodies import Checkpoint
from ledger.entry import link_of, read_entry
from ledger.frontier import Frontier
from ledger.ledger import Ledger, Taken
from ledger.limits import PRUNE_AT_ONCE
from ledger.pruning import Pruned, is_complete
from ledger.rules import BUNDLES, read_case
from ledger.trades import facts_of
from ledger.trust import Trust
from ledger.view import epoch_of, look
from ledger.witness_bodies import Probe
from protocol.errors import LocalFault
from protocol.rules import BUNDLE
from protocol.units import Digest, Millis
from tests.make_evidence import changed
from tests.make_history import Market, share
from tests.make_ledger import (
    HOUR,
    NET,
    OWNER,
    RENTER,
    STRANGER,
    THREE,
    WITNESSES,
    Feed,
    at,
    ledger,
    opened_ledger,
    signer,
    statement,
)
from tests.make_sync import agree, replica

DAY = 24 * HOUR


def prune(here: Ledger, before: Millis) -> Pruned:
    done = Pruned(entries=0, size=0)
    for head in here.heads():
        for dropped in here.prune_feed(head.feed, before):
            done += dropped
    return done


def numbers(here: Ledger, day: int) -> list[Digest]:
    """Digests of all inputs and outputs of standing, for each pair, on this day."""
    cases = tuple(read_case(raw, NET) for raw in here.evidence())
    feeds = (OWNER.public, RENTER.public)
    found = []
    for ego in feeds:
        trust = Trust(look(here.state, cases, ego=ego, epoch=epoch_of(at(0), BUNDLE) + day))
        found += [trust.digest(peer, "USD") for peer in feeds]
    return found


def test_a_checkpoint_says_what_its_author_has_written_and_is_no_evidence() -> None:
    market = Market()
    for _ in range(6):
        market.lease()
    parts = market.owner.checkpoint(at(market.now))
    bodies = [read_body(entry.draft) for entry in parts]
    assert all(isinstance(body, Checkpoint) for body in bodies)
    market.publish()
    assert market.here.evidence() == []
    assert is_complete(market.here.state.checkpoints(OWNER.public))


def test_a_checkpoint_that_does_not_fit_comes_in_parts_that_cover_all() -> None:
    mine = opened_ledger()
    for number in range(200):
        peer = changed(statement(), peer=bytes([number]) * 32)
        mine.append(peer, at(0))
    parts = mine.checkpoint(at(0))
    assert len(parts) > 1
    bodies = [read_body(entry.draft) for entry in parts]
    assert sum(len(body.accounts) for body in bodies if isinstance(body, Checkpoint)) == 200
    assert is_complete(mine.state.checkpoints(OWNER.public))
    here = ledger(STRANGER)
    share(mine, here)
    assert here.evidence() == []


def test_parts_that_leave_something_out_are_no_checkpoint() -> None:
    def part(start: bytes, stop: bytes | None) -> CheckpointPart:
        return CheckpointPart(upto=1, start=start, stop=stop, ts_ms=at(0))

    assert is_complete([part(b"b", None), part(b"", b"b")])
    assert not is_complete([part(b"c", None), part(b"", b"b")])
    assert not is_complete([part(b"", b"b")])
    assert not is_complete([part(b"b", None)])
    assert not is_complete([])


@pytest.mark.parametrize("fork", [1, 10, 29])
def test_a_fork_at_a_pruned_place_leaves_replicas_equal(fork: int) -> None:
    feed, one, two = Feed(OWNER), replica(50), replica(51)
    entries, branches = [feed.open()], []
    for number in range(30):
        branches.append(feed.branch())
        entries.append(
            feed.add(Challenge(claim=Digest(bytes([number]) * 32), seed=Digest(bytes(32))))
        )
    blank = Checkpoint(upto=30, upto_id=entries[-1].id, start=b"", units=(), accounts=())
    entries.append(feed.add(blank))
    for each in (one, two):
        each.take(*entries)
    assert prune(one.ledger, at(10**9)).entries == 30
    late = branches[fork].add(Challenge(claim=Digest(b"z" * 32), seed=Digest(bytes(32))))
    two.take(late)
    assert agree(one, two) <= 2
    assert one.roots() == two.roots()
    assert one.ledger.conflicts(OWNER.public) == [late]


@settings(max_examples=15)
@given(st.integers(0, 2**32), st.integers(1, 8), st.integers(0, 4))
def test_i11_pruning_changes_no_digest_of_credit_or_evidence(
    seed: int, settled: int, open_ones: int
) -> None:
    market = Market(seed)
    for _ in range(settled):
        market.lease()
    for ledger_of in (market.owner, market.renter):
        ledger_of.checkpoint(at(market.now))
    before = market.day()
    for _ in range(open_ones):
        market.lease(is_settled=False)
    market.publish()
    here = market.here
    day = (market.now // DAY) + 1
    told = [numbers(here, day), numbers(here, day + 30), here.evidence(), here.heads()]
    facts = facts_of(here.state, bundles=BUNDLES, home=BUNDLE)
    root = Frontier(here).heads.root()
    done = prune(here, before)
    assert done.entries > 0
    assert done.size > 0
    assert facts_of(here.state, bundles=BUNDLES, home=BUNDLE) == facts
    again = [numbers(here, day), numbers(here, day + 30), here.evidence(), here.heads()]
    assert again == told
    assert Frontier(here).heads.root() == root
    report = here.verify()
    assert (report.broken, report.pruned) == (None, done.entries)
    assert prune(here, before).entries == 0
    reopened = market.reopened()
    assert facts_of(reopened.state, bundles=BUNDLES, home=BUNDLE) == facts
    anew = [numbers(reopened, day), numbers(reopened, day + 30), reopened.evidence()]
    assert [*anew, reopened.heads()] == told


def test_nothing_is_dropped_without_an_old_checkpoint_nor_of_a_lease_that_is_not_billed() -> None:
    market = Market()
    open_lease = market.lease(is_settled=False)
    market.lease()
    market.publish()
    assert prune(market.here, at(market.now)).entries == 0
    written = at(market.now)
    market.owner.checkpoint(written)
    market.publish()
    assert prune(market.here, Millis(written - 1)).entries == 0
    assert prune(market.here, written).entries == 1  # The billed GRANT; its RELEASE is the newest.
    assert market.here.lease(open_lease) is not None


def test_of_a_lease_that_was_probed_all_is_kept_so_that_reliability_stays() -> None:
    market = Market()
    lease = market.lease(witnesses=THREE)
    for witness in WITNESSES[:2]:
        theirs = opened_ledger(witness)
        theirs.append(Probe(lease=lease, period=0, verdict="fail"), at(30_000))
        share(theirs, market.here)
    for _ in range(4):
        market.lease()
    for ledger_of in (market.owner, market.renter):
        ledger_of.checkpoint(at(market.now))
    market.publish()
    [fact] = non_deliveries(market.here.state)
    assert fact.is_enough
    told = numbers(market.here, 1)
    assert prune(market.here, market.day()).entries > 0
    reopened = market.reopened()
    assert non_deliveries(reopened.state) == [fact]
    assert numbers(reopened, 1) == told


def test_of_a_lease_that_its_owner_has_not_billed_everything_is_kept_whatever_others_say() -> None:
    market = Market()
    lease = market.lease(is_settled=False)
    market.lease()
    market.owner.checkpoint(at(market.now))
    market.publish()
    liar = opened_ledger(signer(9))
    liar.append(changed(statement(), lease=lease), at(0))
    share(liar, market.here)
    facts = facts_of(market.here.state, bundles=BUNDLES, home=BUNDLE)
    prune(market.here, market.day())
    assert facts_of(market.reopened().state, bundles=BUNDLES, home=BUNDLE) == facts


def test_an_entry_whose_body_is_gone_is_known_and_proves_forks() -> None:
    market = Market()
    for _ in range(4):
        market.lease()
    written = at(market.now)
    market.owner.checkpoint(written)
    market.publish()
    here = market.here
    raws = list(market.owner.entries(OWNER.public, 0, 99))
    prune(here, written)
    [seq, *_] = [seq for seq in range(len(raws)) if here.stub(OWNER.public, seq) is not None]
    assert here.ingest(raws[seq]) is Taken.KNOWN
    before = read_entry(raws[seq - 1], NET)
    other = Feed(OWNER)
    other.last = link_of(before.draft)
    forged = other.add(statement(STRANGER), ts=before.header.ts_ms - at(0))
    assert here.ingest(forged.raw) is Taken.CONFLICT
    assert [(each.rule, each.seq) for each in here.offences()] == [("A1", seq)]
    assert list(here.entries(OWNER.public, seq, seq + 1)) == []


def test_an_export_leaves_dropped_entries_out_and_who_imports_it_keeps_what_is_before_them() -> (
    None
):
    market = Market()
    for _ in range(4):
        market.lease()
    written = at(market.now)
    market.owner.checkpoint(written)
    market.publish()
    prune(market.here, written)
    stubs = [seq for seq in range(99) if market.here.stub(OWNER.public, seq) is not None]
    other = ledger(RENTER)
    taken = [other.ingest(record.raw) for record in market.here.begin_export(OWNER.public)]
    assert taken[: stubs[0]] == [Taken.NEW] * stubs[0]
    assert set(taken[stubs[0] :]) == {Taken.MISSING}
    head = other.head(OWNER.public)
    assert head is not None
    assert head.seq == stubs[0] - 1


def long_feed() -> tuple[Market, Millis]:
    """More leases than are dropped in one step, and an instant at which all are old."""
    market = Market()
    for _ in range(PRUNE_AT_ONCE):
        market.lease()
    written = at(market.now)
    market.owner.checkpoint(written)
    market.publish()
    return market, written


def test_a_long_feed_is_pruned_in_steps_between_which_others_write() -> None:
    market, written = long_feed()
    steps = []
    for dropped in market.here.prune_feed(OWNER.public, written):
        steps.append(dropped.entries)
        market.lease()
        market.publish()
    assert len(steps) > 1
    assert max(steps) == PRUNE_AT_ONCE
    assert sum(steps) >= 2 * PRUNE_AT_ONCE - 2  # But for what is the newest turn of a unit then.
    assert len(market.here.state.leases()) == PRUNE_AT_ONCE + len(steps)
    assert market.here.verify().broken is None


def test_of_a_feed_that_forks_while_it_is_pruned_the_rest_is_kept() -> None:
    market, written = long_feed()
    steps = market.here.prune_feed(OWNER.public, written)
    assert next(steps).entries == PRUNE_AT_ONCE
    branch = Feed(OWNER)
    branch.open()
    market.here.ingest(branch.add(statement(STRANGER)).raw)
    assert [each.rule for each in market.here.offences()] == ["A1"]
    assert list(steps) == []


def test_of_an_offender_and_of_ourselves_everything_is_kept() -> None:
    market = Market()
    for _ in range(3):
        market.lease()
    written = at(market.now)
    market.owner.checkpoint(written)
    market.publish()
    assert prune(market.owner, written).entries == 0
    branch = Feed(OWNER)
    branch.open()
    market.here.ingest(branch.add(statement(STRANGER)).raw)
    assert [each.rule for each in market.here.offences()] == ["A1"]
    assert prune(market.here, written).entries == 0


def test_a_new_ledger_has_nothing_to_sum_up() -> None:
    with pytest.raises(LocalFault, match="nothing to sum up"):
        ledger().checkpoint(at(0))
