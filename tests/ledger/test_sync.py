"""Two replicas over lists of frames: union, bounds, losses, and peers that lie."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import sync as module
from ledger.entry import Entry
from ledger.fork_evidence import prove_fork
from ledger.limits import CONFLICTS_MAX, WANTS_MAX
from ledger.pulls import Claims
from protocol.codec import encode_plain
from protocol.limits import FRAME_BYTES_MAX
from protocol.signing import Signer
from protocol.units import Digest
from tests.make_ledger import Feed, signer, statement
from tests.make_sync import Replica, agree, feed_of, forked_feed, replica, step, sync, talk

BRANCHES = [
    [feed_of(101, 6)],
    [feed_of(102, 3)],
    forked_feed(103, 1, (3, 2, 1)),
    forked_feed(104, 3, (4, 4)),
    forked_feed(105, 20, (3, 1)),
]


@st.composite
def holdings(draw: st.DrawFn) -> list[list[Entry]]:
    """What a replica may have: of some feeds, some branches, up to some place."""
    found: list[list[Entry]] = []
    for branches in BRANCHES:
        chosen = draw(st.lists(st.sampled_from(branches), max_size=2, unique_by=id))
        found += [branch[: draw(st.integers(0, len(branch)))] for branch in chosen]
    return found


def filled(name: int, held: list[list[Entry]]) -> Replica:
    here = replica(name)
    for branch in held:
        here.take(*branch)
    return here


def clones(one: Replica, two: Replica) -> list[Digest]:
    return sorted({*one.ids(), *two.ids()})


@settings(max_examples=50)
@given(holdings(), holdings())
def test_any_two_sets_become_their_union(
    ours: list[list[Entry]], theirs: list[list[Entry]]
) -> None:
    one, two = filled(50, ours), filled(51, theirs)
    union = clones(one, two)
    assert len(sync(one, two).frames) <= 24
    agree(one, two)
    assert one.ids() == two.ids() == union
    assert one.ledger.state == two.ledger.state
    assert one.ledger.evidence() == two.ledger.evidence()
    for here in (one, two):
        assert here.ledger.verify().broken is None


@settings(max_examples=50)
@given(holdings(), holdings(), st.integers(0, 20))
def test_a_lost_connection_harms_nothing(
    ours: list[list[Entry]], theirs: list[list[Entry]], cut: int
) -> None:
    one, two = filled(50, ours), filled(51, theirs)
    union = clones(one, two)
    assert len(sync(one, two, cut_after=cut).frames) <= cut
    for here in (one, two):
        assert here.ledger.verify().broken is None
    agree(two, one)
    assert one.ids() == two.ids() == union


@settings(max_examples=30)
@given(holdings(), holdings(), holdings())
def test_three_replicas_agree_in_a_ring(
    first: list[list[Entry]], second: list[list[Entry]], third: list[list[Entry]]
) -> None:
    ring = [filled(50, first), filled(51, second), filled(52, third)]
    for _ in range(2):
        for here, there in zip(ring, ring[1:] + ring[:1], strict=True):
            agree(here, there)
    assert len({here.roots() for here in ring}) == 1
    assert ring[0].ledger.state == ring[1].ledger.state == ring[2].ledger.state


def test_equal_sets_take_one_exchange_of_few_bytes() -> None:
    one, two = replica(50), replica(51)
    for here in (one, two):
        here.take(*feed_of(101, 5))
    log = sync(one, two)
    assert len(log.frames) == 2
    assert log.size <= 400


def test_a_long_feed_comes_in_bounded_runs() -> None:
    one, two = replica(50), replica(51)
    entries = feed_of(101, 1_500)
    one.take(*entries)
    log = sync(two, one)
    assert one.ids() == two.ids()
    assert all(len(frame) <= FRAME_BYTES_MAX for frame in log.frames)
    assert log.size <= sum(len(entry.raw) for entry in entries) * 102 // 100


@pytest.mark.parametrize("turns", [0, 3, 100])
def test_two_sessions_with_one_peer_bring_nothing_twice(turns: int) -> None:
    """Both open one; the first one has so many frames of its own before they alternate."""
    one, two = replica(50), replica(51)
    entries = feed_of(101, 1_500)
    one.take(*entries)
    claims = Claims()
    ends = [
        (two.session(is_opener=True, claims=claims), one.session(is_opener=False)),
        (one.session(is_opener=True), two.session(is_opener=False, claims=claims)),
    ]
    left = [[(server, opener.hello())] for opener, server in ends]
    came = 0
    while any(left):
        which = 0 if left[0] and (turns > 0 or not left[1]) else 1
        turns = turns - 1 if turns > 0 else which
        to, frame = left[which].pop(0)
        frames, brought = step(to, frame)
        came += brought
        [other] = [each for each in ends[which] if each is not to]
        left[which] += [(other, each) for each in frames]
    assert came == len(entries)
    assert one.ids() == two.ids()


def test_what_a_lost_session_was_bringing_is_left_to_another() -> None:
    one, two = replica(50), replica(51)
    one.take(*feed_of(101, 1_500))
    claims = Claims()
    lost = two.session(is_opener=True, claims=claims)
    talk(lost, one.session(is_opener=False), cut_after=4)
    assert len(claims) == 1
    lost.end()
    assert not claims
    talk(two.session(is_opener=True, claims=claims), one.session(is_opener=False))
    assert one.ids() == two.ids()


def test_more_feeds_than_one_turn_asks_for_all_come() -> None:
    one, two = replica(50), replica(51)
    for n in range(150):
        one.take(Feed(signer(100 + n)).open())
    sync(two, one)
    assert one.ids() == two.ids()


FEED = feed_of(101, 4)
OTHER = feed_of(102, 3)
AUTHOR = FEED[0].feed


def test_conflicting_heads_are_answered_with_the_entries() -> None:
    one, two = replica(50), replica(51)
    ours, theirs = forked_feed(103, 2, (1, 1))
    one.take(*ours)
    two.take(*theirs)
    sync(one, two)
    for here in (one, two):
        assert [(each.rule, each.seq) for each in here.ledger.offences()] == [("A1", 2)]
        assert len(here.ids()) == 4


@pytest.mark.slow
def test_forks_with_more_branches_than_are_kept_end_the_asking_all_the_same() -> None:
    one, two = replica(50), replica(51)
    branches = forked_feed(103, 1, (1,) * (CONFLICTS_MAX + 20))
    for number, branch in enumerate(branches):
        (one if number % 2 else two).take(*branch)
    agree(one, two)
    assert one.roots() == two.roots()
    assert len(one.ledger.conflicts(branches[0][0].feed)) == CONFLICTS_MAX


def accuse_many(here: Replica, count: int) -> None:
    """So many forks."""
    for n in range(count):
        feed = Feed(Signer(n.to_bytes(32, "big")))
        feed.open()
        raw = prove_fork(feed.branch().add(statement(used=1)), feed.branch().add(statement()))
        assert raw is not None
        here.ledger.accuse(raw)


def test_much_evidence_travels_in_several_turns() -> None:
    one, two = replica(50), replica(51)
    accuse_many(one, WANTS_MAX + 10)
    agree(two, one)
    assert two.ledger.evidence() == one.ledger.evidence()


def test_entries_do_not_wait_for_all_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVIDENCE_TURNS_MAX", 2)
    one, two = replica(50), replica(51)
    accuse_many(one, 2 * WANTS_MAX)
    one.take(*FEED)
    sync(two, one, cut_after=10)
    assert {entry.id for entry in FEED} <= {*two.ids()}
    assert len(two.ledger.evidence()) < 2 * WANTS_MAX


def test_large_evidence_leaves_room_for_the_rest() -> None:
    one, two = replica(50), replica(51)
    for n in range(20):
        author = Signer((1_000 + n).to_bytes(32, "big"))
        feed = Feed(author)
        feed.open()
        entries = [
            feed.branch().take(feed.draft_raw(77, encode_plain({0: bytes([x]) * 8_000})))
            for x in (1, 2)
        ]
        one.take(Feed(author).open(), *entries)
    agree(two, one)
    assert two.ids() == one.ids()


def test_a_session_about_some_feeds_brings_no_others_but_all_evidence() -> None:
    one, two = replica(50), replica(51)
    branches = forked_feed(104, 1, (1, 1))
    one.take(*FEED, *OTHER, *branches[0], branches[1][1])
    for opener, server in ((two, one), (one, two)):
        ours = opener.session(is_opener=True, only=(AUTHOR,) if opener is two else None)
        theirs = server.session(is_opener=False, only=(AUTHOR,) if server is two else None)
        talk(ours, theirs)
        assert two.ids() == sorted(entry.id for entry in FEED)
        assert two.ledger.evidence() == one.ledger.evidence() != []
    again = talk(two.session(is_opener=True, only=(AUTHOR,)), one.session(is_opener=False))
    assert len(again.frames) == 2


def test_kinds_that_nobody_knows_yet_are_kept_and_passed_on() -> None:
    one, two, three = replica(50), replica(51), replica(52)
    feed = Feed(signer(101))
    first = feed.open()
    unknown = feed.take(feed.draft_raw(77, b"\xa0"))
    one.take(first, unknown, feed.add(statement()))
    for here, there in ((two, one), (three, two)):
        sync(here, there)
        assert here.ids() == one.ids()
        assert list(here.ledger.entries(unknown.feed, 1, 2)) == [unknown.raw]
        assert here.ledger.verify().broken is None
    assert three.roots() == one.roots()
    assert three.ledger.state == one.ledger.state


@pytest.mark.slow
@pytest.mark.parametrize("stem", [2, 40])
def test_long_branches_end_the_asking_all_the_same(stem: int) -> None:
    one, two = replica(50), replica(51)
    ours, theirs = forked_feed(103, stem, (70, 90))
    one.take(*ours)
    two.take(*theirs)
    agree(one, two)
    assert one.ledger.state.fork_of(ours[0].feed) == stem
    assert one.ledger.evidence() == two.ledger.evidence()


def test_a_second_fork_far_behind_the_first_ends_the_asking_all_the_same() -> None:
    one, two = replica(50), replica(51)
    ours, theirs = forked_feed(103, 200, (2, 3))
    stub = forked_feed(103, 3, (0, 1))[1]
    one.take(*ours, stub[-1])
    two.take(*theirs[:50], stub[-1])
    agree(one, two)
    two.take(*theirs, stub[-1])
    agree(one, two)
