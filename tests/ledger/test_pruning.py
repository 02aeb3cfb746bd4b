"""Bodies that are dropped below a checkpoint, and all that stays as it was (I11)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.bodies import read_body
from ledger.capability_bodies import Challenge
from ledger.checkpoints import CheckpointPart
from ledger.continuity_bodies import Checkpoint
from ledger.entry import link_of, read_entry
from ledger.frontier import Frontier
from ledger.ledger import Ledger, Taken
from ledger.pruning import Pruned, is_complete
from ledger.rules import BUNDLES, read_case
from ledger.trades import facts_of
from ledger.trust import Trust
from ledger.view import epoch_of, look
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
    Feed,
    at,
    ledger,
    opened_ledger,
    statement,
)
from tests.make_sync import agree, replica

DAY = 24 * HOUR


def prune(here: Ledger, before: Millis) -> Pruned:
    done = Pruned(entries=0, size=0)
    for head in here.heads():
        done += here.prune_feed(head.feed, before)
    here.forget_pruned()
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
    reopened = ledger(STRANGER, store=market.store, guard=market.guard)
    assert reopened.state == here.state


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
