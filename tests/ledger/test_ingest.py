"""Other peers' feeds: order of checks, forks, evidence, and what every replica agrees on."""

from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ledger import keys
from ledger.bodies import Accept
from ledger.entry import Entry, seal
from ledger.fork_evidence import prove_fork
from ledger.guard import MemoryGuard
from ledger.ledger import Ledger, Taken
from ledger.limits import CONFLICTS_MAX
from ledger.store import MemoryStore
from protocol.errors import LocalFault, PeerFault
from protocol.units import Digest
from tests.make_ledger import (
    HOUR,
    NET,
    OWNER,
    RENTER,
    STRANGER,
    UNIT,
    Feed,
    certificate,
    genesis,
    grant,
    ledger,
    opened_ledger,
    release,
    statement,
    turn_of,
)
from tests.make_ledger_faults import copy_of


def replica() -> Ledger:
    return ledger(STRANGER)


def take(into: Ledger, entries: Iterable[Entry]) -> list[Taken]:
    return [into.ingest(entry.raw) for entry in entries]


def refused(into: Ledger, entry: Entry, rule: str) -> None:
    before = into.heads()
    with pytest.raises(PeerFault) as caught:
        into.ingest(entry.raw)
    assert caught.value.rule == rule
    assert into.heads() == before
    assert into.evidence() == []


def test_a_feed_is_taken_in_order_and_once() -> None:
    here, feed = replica(), Feed(OWNER)
    entries = [feed.open(), feed.add(statement()), feed.add(statement(ctr=1))]
    assert here.ingest(entries[1].raw) is Taken.MISSING
    assert here.head(OWNER.public) is None
    assert take(here, entries) == [Taken.NEW] * 3
    assert take(here, entries) == [Taken.KNOWN] * 3
    assert list(here.entries(OWNER.public, 0, 2)) == [entry.raw for entry in entries[:2]]
    assert [head.seq for head in here.heads()] == [2]
    here.flush()


def test_an_entry_is_judged_before_it_is_kept() -> None:
    here, feed = replica(), Feed(OWNER, ts=5)
    take(here, [feed.open()])
    draft = feed.draft(statement())
    body = replace(draft, body=draft.body[:-1] + b"\1")
    cases = {
        "entry.time": seal(feed.draft(statement(), ts=4), signer=OWNER, net=NET),
        "entry.body": seal(body, signer=OWNER, net=NET),
        "entry.seal": seal(draft, signer=STRANGER, net=NET),
        "entry.kind": seal(feed.draft(genesis(OWNER)), signer=OWNER, net=NET),
        "statement.peer": seal(feed.draft(statement(OWNER)), signer=OWNER, net=NET),
        "body.form": seal(feed.draft_raw(77, b"\x01"), signer=OWNER, net=NET),
    }
    for rule, entry in cases.items():
        refused(here, entry, rule)
    assert here.ingest(seal(draft, signer=OWNER, net=NET).raw) is Taken.NEW


def test_a_feed_whose_certificate_is_anothers_is_refused() -> None:
    body = msgspec.structs.replace(genesis(OWNER), certificate=certificate(STRANGER))
    refused(replica(), Feed(OWNER).add(body), "genesis.feed")


def test_unknown_kinds_are_kept_and_found() -> None:
    here, feed = replica(), Feed(OWNER)
    first, unknown = feed.open(), feed.take(feed.draft_raw(77, b"\xa0"))
    assert take(here, [first, unknown]) == [Taken.NEW] * 2
    assert here.entry(unknown.id) == unknown
    assert here.entry(Digest(bytes(32))) is None


def test_what_names_an_entry_is_found() -> None:
    here, owner, renter = replica(), Feed(OWNER), Feed(RENTER)
    take(here, [owner.open(), renter.open()])
    granted = owner.add(grant())
    accepted = renter.add(Accept(grant=granted.id))
    half = msgspec.structs.replace(statement(OWNER), lease=granted.id, half=accepted.id)
    owed = renter.add(half)
    assert take(here, [accepted, granted, owed]) == [Taken.NEW] * 3
    assert here.referrers(granted.id) == sorted([accepted, owed], key=lambda entry: entry.id)
    assert here.referrers(accepted.id) == [owed]
    lease = here.lease(granted.id)
    assert lease is not None
    assert lease.is_accepted


def test_a_fork_is_kept_proved_and_counts_from_its_place() -> None:
    here, feed = replica(), Feed(OWNER)
    first = feed.open()
    branch = feed.branch()
    one, other = feed.add(statement()), branch.add(statement(ctr=1))
    assert take(here, [first, one, other, other]) == [
        Taken.NEW, Taken.NEW, Taken.CONFLICT, Taken.KNOWN,
    ]  # fmt: skip
    assert here.entry(other.id) == other
    assert here.conflicts(OWNER.public) == [other]
    [offence] = here.offences()
    assert (offence.rule, offence.seq) == ("A1", 1)
    head = here.head(OWNER.public)
    assert head is not None
    assert (head.seq, head.id, head.fork) == (1, one.id, 1)
    assert here.verify().broken is None


def test_a_branch_is_followed() -> None:
    here, feed = replica(), Feed(OWNER)
    take(here, [feed.open()])
    branch = feed.branch()
    take(here, [feed.add(statement(used=1)), branch.add(statement(used=2))])
    assert here.ingest(branch.add(statement(ctr=1)).raw) is Taken.CONFLICT
    assert here.ingest(branch.add(statement(ctr=2)).raw) is Taken.CONFLICT
    assert here.ingest(feed.add(statement(ctr=3)).raw) is Taken.NEW
    assert len(here.conflicts(OWNER.public)) == 3
    branch.ts = -1
    with pytest.raises(PeerFault, match=r"entry\.time"):
        here.ingest(branch.add(statement(ctr=9)).raw)


def test_a_link_to_an_entry_that_we_have_otherwise_is_a_fork() -> None:
    here, feed = replica(), Feed(OWNER)
    take(here, [feed.open()])
    branch = feed.branch()
    take(here, [feed.add(statement(used=1))])
    branch.add(statement(used=2))
    assert here.ingest(branch.add(statement(ctr=1)).raw) is Taken.CONFLICT
    assert [(each.rule, each.seq) for each in here.offences()] == [("A2", 1)]


def test_an_entry_of_a_branch_stays_known_when_its_predecessor_becomes_the_head() -> None:
    here, feed = replica(), Feed(OWNER)
    take(here, [feed.open()])
    one, two = feed.branch(), feed.branch()
    take(here, [one.add(statement(used=1)), two.add(statement(used=2))])
    other_branch = one.branch()
    third = other_branch.add(statement(ctr=1, used=3))
    # It stands beside nothing yet: only an entry of the other branch is at the place before.
    stray = two.branch()
    stray.add(statement(ctr=1, used=4))
    after_stray = stray.add(statement(ctr=2, used=5))
    take(here, [two.add(statement(ctr=1, used=6)), after_stray])
    follower = other_branch.add(statement(ctr=2, used=7))
    assert here.ingest(follower.raw) is Taken.CONFLICT
    assert here.ingest(third.raw) is Taken.NEW
    assert here.ingest(follower.raw) is Taken.KNOWN
    report = here.verify()
    assert (report.entries, report.conflicts, report.broken) == (3, 4, None)


def test_two_entries_0_are_a_fork() -> None:
    here = replica()
    body = msgspec.structs.replace(genesis(OWNER), incarnation=2)
    assert take(here, [Feed(OWNER).open(), Feed(OWNER).add(body)]) == [
        Taken.NEW, Taken.CONFLICT,
    ]  # fmt: skip
    assert here.offences()[0].seq == 0


def test_conflicts_are_kept_up_to_a_bound() -> None:
    here, feed = replica(), Feed(OWNER)
    take(here, [feed.open()])
    branches = [feed.branch() for _ in range(CONFLICTS_MAX + 2)]
    for n, branch in enumerate(branches):
        here.ingest(branch.add(statement(ctr=n, used=n)).raw)
    assert len(here.conflicts(OWNER.public)) == CONFLICTS_MAX
    assert len(here.evidence()) == 1


def test_a_double_lease_is_proved_when_the_second_grant_comes() -> None:
    here, feed = replica(), Feed(OWNER)
    take(here, [feed.open(), feed.add(grant())])
    assert here.evidence() == []
    assert take(here, [feed.add(grant(start=2_000, nonce=1))]) == [Taken.NEW]
    [offence] = here.offences()
    assert (offence.rule, offence.offender) == ("A4", OWNER.public)
    head = here.head(OWNER.public)
    assert head is not None
    assert head.fork is None


def test_overlapping_leases_are_proved() -> None:
    here, feed = replica(), Feed(OWNER)
    body = grant()
    take(here, [feed.open()])
    granted = feed.add(body)
    take(here, [granted, feed.add(grant(turn_of(granted, body), start=2_000))])
    assert [each.rule for each in here.offences()] == ["A5"]


def test_a_lease_left_out_is_proved_from_either_side() -> None:
    feed = Feed(OWNER)
    first = feed.open()
    body = grant()
    granted = feed.add(body)
    hiding = grant(turn_of(granted, body), start=2_000, opens=((2_000, 1_000 + HOUR, 1),))
    here = replica()
    take(here, [first, granted, feed.add(hiding)])
    assert [each.rule for each in here.offences()] == ["A5"]
    # The other order: counter 1 stands in the feed before counter 0.
    here, early = replica(), Feed(OWNER)
    take(here, [early.open(), early.add(statement())])
    late = msgspec.structs.replace(hiding.units[0], gseq=1)
    take(here, [early.add(msgspec.structs.replace(hiding, units=(late,)))])
    assert [each.rule for each in here.offences()] == ["A6"]
    take(here, [early.add(body)])
    assert [each.rule for each in here.offences()] == ["A5", "A6"]


def test_honest_leases_prove_nothing() -> None:
    here, owner = replica(), opened_ledger()
    feed = Feed(OWNER)
    body = grant()
    entries = [feed.open(), feed.add(body)]
    end = release(turn_of(entries[1], body), entries[1], at_ms=2_000)
    entries.append(feed.add(end))
    entries.append(feed.add(grant(turn_of(entries[2], end), start=2_000, nonce=1)))
    assert take(here, entries) == [Taken.NEW] * 4
    assert here.evidence() == owner.evidence() == []
    turn = here.state.turn(OWNER.public, UNIT)
    assert turn is not None
    assert turn.ctr == 2


def fork_at(feed: Feed, used: int = 0) -> bytes:
    one = feed.branch().add(statement(used=used + 1))
    raw = prove_fork(one, feed.branch().add(statement(used=used + 2)))
    assert raw is not None
    return raw


def test_evidence_from_a_peer_is_kept_and_the_lowest_fork_counts() -> None:
    here, feed = replica(), Feed(OWNER)
    feed.open()
    low = fork_at(feed)
    feed.add(statement())
    high = fork_at(feed)
    assert here.accuse(high).seq == 2
    assert here.state.fork_of(OWNER.public) == 2
    assert here.accuse(low).seq == 1
    assert here.accuse(high).seq == 2
    assert here.evidence() == [low]
    assert here.state.fork_of(OWNER.public) == 1
    with pytest.raises(PeerFault, match=r"evidence\.form"):
        here.accuse(b"\0")


def test_of_two_proofs_of_one_offence_the_smaller_is_kept() -> None:
    feed = Feed(OWNER)
    feed.open()
    proofs = [fork_at(feed), fork_at(feed, used=7)]
    for order in (proofs, proofs[::-1]):
        here = replica()
        for raw in order:
            here.accuse(raw)
        assert here.evidence() == [min(proofs)]


def test_what_is_known_survives_reopening() -> None:
    store, guard = MemoryStore(), MemoryGuard()
    here = ledger(STRANGER, store=store, guard=guard)
    feed = Feed(OWNER)
    take(here, [feed.open()])
    branch = feed.branch()
    take(here, [feed.add(grant()), branch.add(grant(nonce=1))])
    again = ledger(STRANGER, store=store, guard=guard)
    assert again.state == here.state
    assert again.heads() == here.heads()
    assert again.state.fork_of(OWNER.public) == 1
    assert len(again.offences()) == 2


def forked_feed() -> list[Entry]:
    """Three branches that differ in what they grant, with a link that leads nowhere."""
    feed = Feed(OWNER)
    entries = [feed.open(), feed.add(statement(used=1))]
    two, three = feed.branch(), feed.branch()
    body = grant()
    granted = feed.add(body)
    entries += [granted, feed.add(release(turn_of(granted, body), granted))]
    entries += [two.add(grant(nonce=1)), two.add(statement(ctr=1, used=2))]
    entries += [three.add(grant(nonce=2, start=2_000))]
    three.add(statement(ctr=5))
    entries += [three.add(statement(ctr=6))]
    return entries


ENTRIES = forked_feed()


def deliver(order: list[Entry]) -> Ledger:
    """Hands everything in until nothing new comes of it, as replication does."""
    here, left = replica(), list(order)
    while left:
        missing = [entry for entry in left if here.ingest(entry.raw) is Taken.MISSING]
        if len(missing) == len(left):
            break
        left = missing
    return here


@settings(max_examples=60)
@given(st.permutations(ENTRIES), st.lists(st.sampled_from(ENTRIES), max_size=4))
def test_replicas_agree_whatever_the_order(order: list[Entry], again: list[Entry]) -> None:
    here, there = deliver([*order, *again]), deliver(ENTRIES)
    assert ids(here) == ids(there) == sorted(entry.id for entry in ENTRIES)
    assert here.state == there.state
    assert here.evidence() == there.evidence()
    assert here.verify().broken is None


def ids(here: Ledger) -> list[Digest]:
    return sorted(entry.id for entry in here._records.all_entries())


def audited(changes: dict[bytes, bytes]) -> str:
    here = Ledger(store=MemoryStore(), guard=MemoryGuard(), signer=STRANGER, net=NET, rules=b"")
    here._store.write(changes, sync=True)
    broken = here.verify().broken
    return "" if broken is None else broken.rule


def test_verify_walks_everything_and_names_what_is_broken() -> None:
    store = MemoryStore()
    here = ledger(STRANGER, store=store)
    feed = Feed(OWNER)
    one, two = feed.open(), feed.add(statement())
    branch = feed.branch()
    three, other = feed.add(statement(ctr=1)), branch.add(statement(ctr=2))
    take(here, [one, two, three, other, Feed(RENTER).open()])
    report = here.verify()
    assert (report.feeds, report.entries, report.conflicts, report.evidence) == (2, 4, 1, 1)
    assert report.broken is None

    kept = copy_of(store)
    whole = dict(kept.range(b"\0", b"\xff"))
    assert audited(whole) == ""
    feed_key = OWNER.public
    [evidence] = [key for key in whole if key.startswith(b"v")]
    wrong = {
        "entry.form": {keys.entry(feed_key, 1): b"\0"},
        "store.key": {keys.entry(feed_key, 1): three.raw},
        "codec.shape": {keys.head(feed_key): b"\0"},
        "store.head": {keys.head(feed_key): whole[keys.head(RENTER.public)]},
        "entry.size": {keys.conflict(feed_key, 2, other.id): bytes(9_999)},
        "evidence.form": {evidence: b"\0"},
    }
    for rule, change in wrong.items():
        assert audited(whole | change) == rule
    assert audited(whole | {keys.conflict(feed_key, 3, other.id): other.raw}) == "store.key"
    assert audited(whole | {evidence + b"\0": whole[evidence]}) == "store.key"
    del whole[keys.entry(feed_key, 1)]
    assert audited(whole) == "entry.seq"


def test_a_store_that_cannot_be_read_is_told_to_our_user() -> None:
    store = MemoryStore()
    here = ledger(STRANGER, store=store)
    first = Feed(OWNER).open()
    take(here, [first])
    store.write({keys.entry(OWNER.public, 0): b"\0"}, sync=True)
    with pytest.raises(LocalFault, match="cannot be read"):
        here.entry(first.id)
    store.write({keys.head(OWNER.public): b"\0"}, sync=True)
    with pytest.raises(LocalFault, match="cannot be read"):
        ledger(STRANGER, store=store)


def test_turns_below_the_first_are_none() -> None:
    assert replica()._records.turns(OWNER.public, UNIT, -1) == []
