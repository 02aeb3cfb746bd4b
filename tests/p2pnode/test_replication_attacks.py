"""Peers that hang, lie or flood in sync: they harm nobody, and honest peers sync on."""

import pytest
import trio

from ledger.entry import seal
from ledger.frontier import HeadItem
from ledger.ranges import Leaf, Node, Part
from ledger.sync_messages import Run, SyncHello, Turn
from p2pnode.network.frames import FrameReader, write_frame
from p2pnode.replication import replication as module
from p2pnode.replication.conduct import (
    CONFLICT_ENTRIES,
    FAULTS_BURST,
    FAULTS_PER_S,
    STRANGERS_BURST,
    STRANGERS_PER_S,
)
from p2pnode.replication.conversation import TURN_S
from p2pnode.replication.replication import PROTOCOL, ROUND_S
from protocol.codec import encode
from protocol.errors import PeerFault, Unavailable
from protocol.units import Digest, NetId
from tests.make_ledger import NET, OWNER, Feed, signer, statement
from tests.make_replication import Member, Script, Town, peer

LIAR = 77
ZERO = Digest(bytes(32))


def hello(net: NetId = NET) -> bytes:
    return encode(SyncHello(net=net, uuid=bytes(16), feeds=9, root=ZERO, proofs=ZERO))


FEED = Feed(signer(90))
TRUE = [FEED.open(), FEED.add(statement())]
FALSE = seal(TRUE[1].draft, signer=OWNER, net=NET)
HEAD = HeadItem(TRUE[1].feed, 1, TRUE[1].id[:16], 0)
LISTING = Turn(heads=Part(leaves=(Leaf("", (HEAD,)),)))
UNASKED = Turn(runs=(Run(TRUE[0].feed, (TRUE[0].raw,)),))
FALSE_RUN = Turn(runs=(Run(TRUE[0].feed, (TRUE[0].raw, FALSE.raw)),))

SCRIPTS = {
    "codec.form": [b"garbage"],
    "sync.net": [hello(NetId(bytes(32)))],
    "sync.unasked": [hello(), encode(UNASKED)],
    "sync.range": [hello(), encode(Turn(heads=Part(nodes=(Node("", bytes(256)),) * 2)))],
    "entry.seal": [hello(), encode(LISTING), encode(FALSE_RUN)],
    "frame.size": [hello(), b"\0" * 300_000],
}


def say(frames: list[bytes]) -> Script:
    """Says this, a frame for each that comes, and then nothing more."""

    async def script(stream: trio.abc.Stream) -> None:
        reader = FrameReader(stream)
        await reader.next()
        for frame in frames:
            await stream.send_all(len(frame).to_bytes(4, "big") + frame)
            if frame is not frames[0] or len(frames) == 1:
                await reader.next()
        await trio.sleep_forever()

    return script


@pytest.fixture
def town(nursery: trio.Nursery) -> Town:
    return Town(nursery)


async def check_unharmed(town: Town, one: Member) -> None:
    """Another honest peer comes, and the two agree."""
    assert one.ledger.verify().broken is None
    other = await town.add()
    other.write(3)
    await town.join(one, other)
    await trio.sleep(1)
    assert other.feed in one.feeds()
    assert one.feed in other.feeds()


@pytest.mark.parametrize("rule", SCRIPTS)
async def test_a_peer_that_answers_with_lies_is_counted_and_left(
    town: Town, autojump_clock: trio.abc.Clock, rule: str
) -> None:
    one = await town.add()
    await town.outsider(LIAR, say(SCRIPTS[rule]))
    one.replication.meet(peer(LIAR))
    await trio.sleep(1)
    assert one.replication.statistics.refused == {rule: 1}
    assert one.replication.statistics.rounds == 0
    with pytest.raises(PeerFault):
        await one.replication.fetch(peer(LIAR), TRUE[0].feed, 1)
    await check_unharmed(town, one)


@pytest.mark.parametrize("rule", SCRIPTS)
async def test_a_peer_that_opens_with_lies_is_counted_and_left(
    town: Town, autojump_clock: trio.abc.Clock, rule: str
) -> None:
    one = await town.add()
    liar = await town.outsider(LIAR, None)
    stream = await liar.open_stream(one.peer, PROTOCOL)
    await stream.send_all(b"".join(len(f).to_bytes(4, "big") + f for f in SCRIPTS[rule]))
    await trio.sleep(1)
    assert sum(one.replication.statistics.refused.values()) == 1
    await check_unharmed(town, one)


async def test_who_breaks_rules_again_and_again_is_left_alone_for_a_while(
    town: Town, autojump_clock: trio.abc.Clock
) -> None:
    one = await town.add()
    await town.outsider(LIAR, say([b"garbage"]))
    for _ in range(FAULTS_BURST):
        with pytest.raises(PeerFault):
            await one.replication.fetch(peer(LIAR), TRUE[0].feed, 1)
    with pytest.raises(Unavailable, match="shunned"):
        await one.replication.fetch(peer(LIAR), TRUE[0].feed, 1)
    one.replication.meet(peer(LIAR))
    await trio.sleep(ROUND_S)
    assert one.replication.statistics.refused == {"codec.form": FAULTS_BURST}
    await trio.sleep(1 / FAULTS_PER_S)
    with pytest.raises(PeerFault):
        await one.replication.fetch(peer(LIAR), TRUE[0].feed, 1)


async def silent(_stream: trio.abc.Stream) -> None:
    await trio.sleep_forever()


async def test_a_hung_peer_keeps_nobody_waiting(town: Town, autojump_clock: trio.abc.Clock) -> None:
    one = await town.add()
    await town.outsider(LIAR, silent)
    one.replication.meet(peer(LIAR))
    await check_unharmed(town, one)
    began = trio.current_time()
    with pytest.raises(Unavailable, match="in time"):
        await one.replication.fetch(peer(LIAR), TRUE[0].feed, 1)
    assert trio.current_time() - began == pytest.approx(TURN_S)


async def test_a_caller_who_does_not_want_to_wait_is_let_go(
    town: Town, autojump_clock: trio.abc.Clock
) -> None:
    one = await town.add()
    await town.outsider(LIAR, silent)
    with pytest.raises(trio.TooSlowError), trio.fail_after(2):
        await one.replication.fetch(peer(LIAR), TRUE[0].feed, 1)
    assert trio.current_time() == pytest.approx(2)


async def test_a_peer_that_says_nothing_for_ever_is_let_go(
    town: Town, autojump_clock: trio.abc.Clock
) -> None:
    async def chatter(stream: trio.abc.Stream) -> None:
        reader = FrameReader(stream)
        await reader.next()
        await write_frame(stream, hello())
        while True:
            await write_frame(stream, encode(Turn(wants=())))
            await reader.next()

    one = await town.add()
    await town.outsider(LIAR, chatter)
    one.replication.meet(peer(LIAR))
    await trio.sleep(module.SESSION_S / 2)
    await check_unharmed(town, one)
    await trio.sleep(module.SESSION_S)
    assert one.replication.statistics.refused == {}


async def test_one_peer_has_a_few_sessions_at_once(
    town: Town, autojump_clock: trio.abc.Clock
) -> None:
    one = await town.add()
    liar = await town.outsider(LIAR, None)
    streams = [
        await liar.open_stream(one.peer, PROTOCOL) for _ in range(module.ANSWERED_PER_PEER_MAX + 1)
    ]
    await trio.sleep(1)
    with pytest.raises(trio.BrokenResourceError):
        await streams[-1].receive_some()
    with trio.move_on_after(1) as scope:
        await streams[0].receive_some()
    assert scope.cancelled_caught
    await check_unharmed(town, one)
    await trio.sleep(TURN_S)
    assert one.replication._answered == {}


async def test_more_neighbours_than_can_wait_are_no_fault(
    town: Town, autojump_clock: trio.abc.Clock
) -> None:
    one = await town.add()
    for number in range(2 * module.WAITING_MAX):
        one.replication.meet(peer(number % 200) + number.to_bytes(2, "big"))  # type: ignore[arg-type]
    await trio.sleep(1)
    await check_unharmed(town, one)


async def test_a_peer_that_dies_within_a_frame_is_only_unavailable(
    town: Town, autojump_clock: trio.abc.Clock
) -> None:
    async def die(stream: trio.abc.Stream) -> None:
        await FrameReader(stream).next()
        await stream.send_all(len(hello()).to_bytes(4, "big") + hello()[:-1])

    one = await town.add()
    await town.outsider(LIAR, die)
    for _ in range(2 * FAULTS_BURST):
        with pytest.raises(Unavailable, match="lost within a frame"):
            await one.replication.fetch(peer(LIAR), TRUE[0].feed, 1)
    assert one.replication.statistics.refused == {}


async def test_a_peer_that_leaves_in_the_middle_is_only_unavailable(
    town: Town, autojump_clock: trio.abc.Clock
) -> None:
    async def leave(stream: trio.abc.Stream) -> None:
        await FrameReader(stream).next()
        await write_frame(stream, hello())

    one = await town.add()
    await town.outsider(LIAR, leave)
    with pytest.raises(Unavailable, match="ended the session"):
        await one.replication.fetch(peer(LIAR), TRUE[0].feed, 1)
    assert one.replication.statistics.refused == {}


async def test_entries_that_give_evidence_are_charged_like_conflicts(
    town: Town, autojump_clock: trio.abc.Clock
) -> None:
    one, other, feed = await town.add(), await town.add(), Feed(signer(90))
    for entry in (feed.open(), *(feed.add(statement(ctr=0, used=n)) for n in range(40))):
        other.ledger.ingest(entry.raw)
    for _ in range(STRANGERS_BURST // CONFLICT_ENTRIES):
        await one.replication._conduct.wait_conflict(other.peer)
    began = trio.current_time()
    await one.replication.fetch(other.peer, signer(90).public, 40)
    assert trio.current_time() - began >= 39 * CONFLICT_ENTRIES / STRANGERS_PER_S - 0.1
