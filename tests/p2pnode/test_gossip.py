import trio

from p2pnode.network import gossip
from p2pnode.network.gossip import Feed
from p2pnode.network.transport import Verdict
from protocol.errors import PeerFault
from protocol.units import PeerId

A, B = PeerId(b"a"), PeerId(b"b")


def take(_publisher: PeerId, payload: bytes) -> bool:
    if payload == b"bad":
        raise PeerFault("seal.bad")
    if payload == b"expired":
        raise PeerFault("advert.expired")
    return payload == b"news"


async def test_news_is_forwarded_the_late_is_not_and_the_bad_is_held_against_the_forwarder() -> (
    None
):
    feed = Feed(take)
    verdicts = [feed.judge(A, B, payload) for payload in (b"news", b"late", b"bad")]
    assert verdicts == [Verdict.ACCEPT, Verdict.IGNORE, Verdict.REJECT]
    assert (feed.taken, feed.late, feed.refused) == (1, 1, {"seal.bad": 1})


async def test_what_depends_on_the_clock_is_not_held_against_the_forwarder() -> None:
    feed = Feed(take)
    assert feed.judge(A, B, b"expired") is Verdict.IGNORE
    assert feed.refused == {"advert.expired": 1}


async def test_a_flood_is_dropped_unread_and_costs_other_forwarders_nothing(
    autojump_clock: trio.abc.Clock,
) -> None:
    read: list[bytes] = []

    def note(_publisher: PeerId, payload: bytes) -> bool:
        read.append(payload)
        return True

    feed = Feed(note)
    for number in range(gossip.MESSAGES_BURST * 3):
        feed.judge(A, PeerId(b"%d" % number), b"x")
    assert len(read) == gossip.MESSAGES_BURST
    assert feed.over_budget == gossip.MESSAGES_BURST * 2
    assert feed.judge(B, A, b"y") is Verdict.ACCEPT
    await trio.sleep(1)
    assert feed.judge(A, B, b"z") is Verdict.ACCEPT


async def test_a_publisher_in_haste_is_not_passed_on_whoever_forwards_it(
    autojump_clock: trio.abc.Clock,
) -> None:
    feed = Feed(take)
    verdicts = [
        feed.judge(PeerId(b"%d" % (number % 10)), B, b"news")
        for number in range(gossip.PUBLISHED_BURST + 1)
    ]
    assert verdicts == [Verdict.ACCEPT] * gossip.PUBLISHED_BURST + [Verdict.IGNORE]
    assert feed.judge(A, PeerId(b"other"), b"news") is Verdict.ACCEPT
    await trio.sleep(1)
    assert feed.judge(A, B, b"news") is Verdict.ACCEPT
