"""What a peer may not say in a session of sync, and what comes of it: nothing."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, UnsetType

from ledger.entry import Entry, seal
from ledger.fork_evidence import prove_fork
from ledger.frontier import Frontier, HeadItem, head_key, proof_id
from ledger.ledger import Taken
from ledger.limits import LEAF_MAX, PUSH_MAX, TAIL_MAX, WANTS_MAX
from ledger.ranges import Leaf, Node, Part
from ledger.sync import Accuse, Session
from ledger.sync_messages import Run, SyncHello, Tail, Turn, Want
from protocol.codec import decode, encode
from protocol.errors import PeerFault
from protocol.limits import FRAME_BYTES_MAX
from protocol.units import Digest, NetId, PublicKey
from tests.make_ledger import NET, OWNER, Feed, signer
from tests.make_sync import Replica, agree, done, feed_of, forked_feed, replica, step


def item(number: int, seq: int = 0) -> HeadItem:
    feed = number.to_bytes(32, "big")
    return HeadItem(PublicKey(feed), seq, feed[16:], 0)


def greeted(
    here: Replica, *, only: tuple[PublicKey, ...] | None = None, is_opener: bool = False
) -> Session:
    """A session in which both have said HELLO, and the peer may say anything now.

    Whoever opened has not listed anything yet: the peer begins. Else we have listed what we have.
    """
    session = here.session(is_opener=is_opener, only=only)
    if is_opener:
        session.hello()
    session.handle(encode(hello()))
    session.reply()
    return session


def hello(net: NetId = NET, only: tuple[PublicKey, ...] | UnsetType = UNSET) -> SyncHello:
    empty = Digest(bytes(32))
    return SyncHello(net=net, uuid=bytes(16), feeds=0, root=empty, proofs=empty, only=only)


def begins(turn: Turn) -> bool:
    """Whether only a side that begins could say this."""
    parts = [part for part in (turn.heads, turn.offences) if part is not UNSET]
    return any(part.nodes or part.leaves for part in parts)


def told(here: Replica, *turns: Turn, only: tuple[PublicKey, ...] | None = None) -> Turn:
    """What we say to the last of these turns."""
    session = greeted(here, only=only, is_opener=begins(turns[0]))
    frames: list[bytes] = []
    for turn in turns:
        for effect in session.handle(encode(turn)):
            done(session, effect)
        frames = session.reply()
    return decode(frames[-1], Turn, size_max=FRAME_BYTES_MAX)


FEED = feed_of(101, 4)
OTHER = feed_of(102, 3)
AUTHOR = FEED[0].feed


def head_of(entry: Entry, forked: int = 0) -> HeadItem:
    return HeadItem(entry.feed, entry.seq, entry.id[:16], forked)


def listing(*items: HeadItem) -> Turn:
    """All that somebody has who has no more than this."""
    return Turn(heads=Part(leaves=(Leaf("", tuple(sorted(items, key=head_key))),)))


def telling(*items: HeadItem) -> Turn:
    """What somebody has in a range of which we have told all that we have."""
    return Turn(heads=Part(others=items))


def run(*entries: Entry, feed: PublicKey = AUTHOR) -> Turn:
    return Turn(runs=(Run(feed, tuple(entry.raw for entry in entries)),))


ASK = telling(head_of(FEED[2]))
NODE = Node("", bytes(256))

REFUSED = [
    ("sync.range", [Turn(heads=Part(nodes=(NODE, NODE)))]),
    ("sync.range", [Turn(heads=Part(nodes=(Node("abc", bytes(256)),)))]),
    ("sync.items", [Turn(heads=Part(leaves=(Leaf("", (item(1), item(1))),)))]),
    ("sync.items", [Turn(heads=Part(leaves=(Leaf(head_key(item(2))[:1], (item(1),)),)))]),
    ("sync.items", [telling(item(1)), telling(item(1))]),
    ("sync.items", [telling(item(1), item(1))]),
    ("sync.unasked", [run(*FEED[:2])]),
    ("sync.unasked", [ASK, run(*OTHER, feed=OTHER[0].feed)]),
    ("sync.unasked", [ASK, Turn(runs=(Run(AUTHOR, ()),) * 2)]),
    ("sync.unasked", [Turn(proofs=(b"proof",))]),
    ("sync.run", [ASK, run(*OTHER)]),
    ("sync.run", [ASK, run(FEED[1])]),
    ("sync.run", [ASK, run(*FEED)]),
    ("entry.form", [ASK, Turn(runs=(Run(AUTHOR, (b"garbage",)),))]),
    ("codec.shape", [Turn(wants=tuple(Want(AUTHOR, n, n) for n in range(WANTS_MAX + 1)))]),
]


@pytest.mark.parametrize(("rule", "turns"), REFUSED, ids=lambda value: str(value)[:12])
def test_a_turn_that_breaks_a_rule_is_refused_and_changes_nothing(
    rule: str, turns: list[Turn]
) -> None:
    here = replica()
    session = greeted(here, is_opener=begins(turns[0]))
    for turn in turns[:-1]:
        assert session.handle(encode(turn)) == []
        session.reply()
    with pytest.raises(PeerFault) as caught:
        session.handle(encode(turns[-1]))
    assert caught.value.rule == rule
    assert here.ids() == []


def test_what_is_told_outside_the_listed_ranges_is_refused() -> None:
    here = replica()
    for n in range(LEAF_MAX + 1):
        here.take(Feed(signer(100 + n)).open())
    with pytest.raises(PeerFault, match=r"sync\.items"):
        told(here, telling(item(1)))


def test_an_entry_that_does_not_hold_is_refused_and_what_came_before_it_stays() -> None:
    here = replica()
    false = seal(FEED[1].draft, signer=OWNER, net=NET)
    session = greeted(here)
    session.handle(encode(ASK))
    session.reply()
    [effect] = session.handle(encode(run(FEED[0], false)))
    result = session.perform(effect)
    assert result is not None
    assert result.taken == (Taken.NEW,)
    assert result.fault is not None
    assert result.fault.rule == "entry.seal"
    session.settle()
    assert here.ids() == [FEED[0].id]
    assert here.ledger.verify().broken is None
    other = replica(51)
    other.take(*FEED)
    agree(here, other)
    assert here.ids() == other.ids()


def test_an_entry_that_skips_its_predecessor_is_not_kept() -> None:
    here = replica()
    told(here, listing(head_of(FEED[0], forked=1)), run(FEED[2]))
    assert here.ids() == []


def test_a_peer_of_another_network_is_refused() -> None:
    session = replica().session(is_opener=False)
    with pytest.raises(PeerFault, match=r"sync\.net"):
        session.handle(encode(hello(NetId(bytes(32)))))


@given(st.binary(max_size=200))
def test_garbage_is_a_fault_of_the_peer_and_of_nobody_else(frame: bytes) -> None:
    with pytest.raises(PeerFault):
        replica().session(is_opener=False).handle(frame)
    if frame != encode(Turn()):  # which says that this was all
        with pytest.raises(PeerFault):
            greeted(replica()).handle(frame)


@settings(max_examples=100)
@given(st.data())
def test_a_damaged_frame_leaves_both_ledgers_valid(data: st.DataObject) -> None:
    one, two = replica(50), replica(51)
    one.take(*FEED)
    two.take(*forked_feed(103, 1, (3,))[0])
    opener, server = one.session(is_opener=True), two.session(is_opener=False)
    waiting = [(server, opener.hello())]
    with contextlib.suppress(PeerFault):
        while waiting:
            to, frame = waiting.pop(0)
            if data.draw(st.booleans()):
                place = data.draw(st.integers(0, len(frame) - 1))
                flipped = frame[place] ^ data.draw(st.integers(1, 255))
                frame = frame[:place] + bytes([flipped]) + frame[place + 1 :]
            frames, _ = step(to, frame)
            if to.is_over:
                break
            waiting += [(opener if to is server else server, each) for each in frames]
    for here in (one, two):
        assert here.ledger.verify().broken is None
        here.frontier = Frontier(here.ledger)
    union = sorted({*one.ids(), *two.ids()})
    agree(one, two)
    assert one.ids() == two.ids() == union


def test_a_peer_that_has_less_than_it_said_is_asked_once() -> None:
    here = replica()
    asked = told(here, ASK)
    assert asked.wants == (Want(AUTHOR, 0, 3),)
    assert told(here, ASK, run()).wants is UNSET
    assert told(here, ASK, Turn()).wants is UNSET
    assert told(here, ASK, run(*FEED[:2])).wants == (Want(AUTHOR, 2, 3),)
    assert here.ids() == sorted(entry.id for entry in FEED[:2])


def test_a_fork_that_only_the_peer_sees_is_asked_about_once() -> None:
    here = replica()
    here.take(*FEED)
    lie = listing(head_of(FEED[2], forked=1))
    assert told(here, lie).tails == (Tail(AUTHOR, 0, 0),)
    assert told(here, lie, run(*FEED)).tails == (Tail(AUTHOR, 0, 4),)
    assert told(here, lie, run(*FEED), run()).tails is UNSET
    with pytest.raises(PeerFault, match=r"sync\.run"):
        told(here, lie, *[run(*FEED)] * (TAIL_MAX // 4 + 1))


def test_evidence_is_asked_for_before_entries() -> None:
    feed, branches = Feed(signer(103)), forked_feed(103, 1, (1, 1))
    raw = prove_fork(branches[0][1], branches[1][1])
    assert raw is not None
    assert feed.by.public == branches[0][0].feed
    here = replica()
    proof = proof_id(raw)
    turn = Turn(
        heads=listing(head_of(branches[0][1])).heads,
        offences=Part(leaves=(Leaf("", (proof,)),)),
    )
    session = greeted(here, is_opener=True)
    session.handle(encode(turn))
    asked = decode(session.reply()[-1], Turn, size_max=FRAME_BYTES_MAX)
    assert asked.accuse == (proof,)
    assert asked.wants is UNSET
    [effect] = session.handle(encode(Turn(proofs=(raw,))))
    assert effect == Accuse(raw=raw)
    assert session.perform(effect) is None
    asked = decode(session.reply()[-1], Turn, size_max=FRAME_BYTES_MAX)
    assert asked.wants == (Want(feed.by.public, 0, 1),)


def test_what_a_session_is_not_about_is_refused_and_not_handed_out() -> None:
    here = replica()
    here.take(*FEED)
    only = (OTHER[0].feed,)
    with pytest.raises(PeerFault, match=r"sync\.scope"):
        told(here, listing(head_of(FEED[3])), only=only)
    answer = told(here, Turn(wants=(Want(AUTHOR, 0, 4),)), only=only)
    assert answer.runs == (Run(AUTHOR, ()),)


def test_evidence_is_taken_whichever_feeds_a_session_is_about() -> None:
    here = replica()
    here.take(*FEED)
    branches = forked_feed(103, 1, (1, 1))
    raw = prove_fork(branches[0][1], branches[1][1])
    assert raw is not None
    told(
        here,
        Turn(offences=Part(leaves=(Leaf("", (proof_id(raw),)),))),
        Turn(proofs=(raw,)),
        only=(OTHER[0].feed,),
    )
    assert here.ledger.evidence() == [raw]


def test_evidence_that_proves_nothing_is_refused() -> None:
    here, raw = replica(), b"\x80"
    with pytest.raises(PeerFault, match=r"evidence\.form"):
        told(
            here,
            Turn(offences=Part(leaves=(Leaf("", (proof_id(raw),)),))),
            Turn(proofs=(raw,)),
        )


def test_evidence_that_is_not_here_any_more_is_left_out() -> None:
    assert told(replica(), Turn(accuse=(Digest(bytes(32)),))).proofs is UNSET
    once = told(
        replica(), Turn(offences=Part(leaves=(Leaf("", (Digest(bytes(32)),)),))), Turn(wants=())
    )
    assert once.accuse is UNSET


def test_a_version_to_come_may_say_more() -> None:
    here = replica()
    session = greeted(here)
    session.handle(encode(Turn(x={"news": "none"})))
    session.reply()
    session.handle(encode(Turn(x={"news": "none"})))
    assert session.is_over


def behind() -> tuple[Replica, Replica]:
    """Two replicas of which the first lacks the last entries of a feed."""
    one, two = replica(50), replica(51)
    one.take(*FEED[:2])
    two.take(*FEED)
    return one, two


def test_what_follows_a_listed_head_may_come_unasked_once() -> None:
    here, _ = behind()
    session = greeted(here)
    session.handle(encode(Turn(runs=(Run(AUTHOR, (FEED[2].raw, FEED[3].raw)),))))
    session.reply()
    with pytest.raises(PeerFault, match=r"sync\.unasked"):
        session.handle(encode(Turn(runs=(Run(AUTHOR, (FEED[3].raw,)),))))


@pytest.mark.parametrize("seqs", [(1,), (3,), (2, 2), (3, 2)])
def test_nothing_but_what_follows_a_listed_head_may_come_unasked(seqs: tuple[int, ...]) -> None:
    here, _ = behind()
    session = greeted(here)
    with pytest.raises(PeerFault, match=r"sync\.run"):
        session.handle(encode(Turn(runs=(Run(AUTHOR, tuple(FEED[seq].raw for seq in seqs)),))))


def test_more_than_a_little_must_be_asked_for() -> None:
    here, long = replica(50), feed_of(104, PUSH_MAX + 3)
    here.take(long[0])
    session = greeted(here)
    raw = tuple(entry.raw for entry in long[1 : PUSH_MAX + 2])
    with pytest.raises(PeerFault, match=r"sync\.run"):
        session.handle(encode(Turn(runs=(Run(long[0].feed, raw),))))


def test_a_peer_that_is_far_behind_is_sent_what_it_asks_for_and_no_more() -> None:
    one, two = replica(50), replica(51)
    feed = feed_of(104, PUSH_MAX + 3)
    one.take(*feed[:2])
    two.take(*feed)
    item = one.frontier.heads.get(head_key(head_of(feed[1])))
    assert item is not None
    assert told(two, Turn(heads=Part(leaves=(Leaf("", (item,)),)))).runs is UNSET
    one.take(feed[2])
    item = one.frontier.heads.get(head_key(head_of(feed[2])))
    assert item is not None
    answer = told(two, Turn(heads=Part(leaves=(Leaf("", (item,)),))))
    assert answer.runs == (Run(item.feed, tuple(entry.raw for entry in feed[3:])),)


def test_a_peer_that_is_a_little_behind_is_sent_what_follows() -> None:
    here, there = behind()
    item = here.frontier.heads.get(head_key(head_of(FEED[1])))
    assert item is not None
    answer = told(there, Turn(heads=Part(leaves=(Leaf("", (item,)),))))
    assert answer.runs == (Run(AUTHOR, (FEED[2].raw, FEED[3].raw)),)
    other = HeadItem(AUTHOR, 1, bytes(16), 0)
    assert told(there, Turn(heads=Part(leaves=(Leaf("", (other,)),)))).runs is UNSET
    forked = HeadItem(AUTHOR, 1, item.id16, 1)
    assert told(there, Turn(heads=Part(leaves=(Leaf("", (forked,)),)))).runs is UNSET
