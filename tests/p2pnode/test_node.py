"""Whole nodes over a hub in memory, on virtual time: adverts spread, heal, end."""

from itertools import pairwise
from pathlib import Path

import pytest
import trio

from p2pnode.matching.search import Wish
from p2pnode.network.memory_transport import MemoryHub
from p2pnode.ports import advert_topics
from protocol.units import Micros, PeerId
from tests.make_node import Party, stop


@pytest.fixture
def party(tmp_path: Path, nursery: trio.Nursery) -> Party:
    return Party(tmp_path, nursery, MemoryHub())


async def test_every_node_sees_every_offer(party: Party, autojump_clock: trio.abc.Clock) -> None:
    nodes = [await party.add(ask=ask) for ask in (300_000, 310_000, 320_000)]
    await trio.sleep(3)
    assert [node.asks() for node in nodes] == [[300_000, 310_000, 320_000]] * 3


async def test_a_light_renter_finds_offers_without_joining_the_mesh(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner = await party.add(ask=300_000)
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(5)
    assert renter.asks() == []
    await renter.node.look_around(Wish())
    assert renter.asks() == [300_000]
    assert renter.node.is_light
    assert renter.node.feed.taken == 0
    [topic] = advert_topics(owner.node.genesis)
    assert renter.peer not in owner.node.ports.transport.mesh(topic)


async def test_a_price_change_reaches_all_at_once(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner = await party.add(ask=300_000)
    other = await party.add(ask=310_000)
    await trio.sleep(3)
    owner.node.provider.set_ask(Micros(290_000))
    await trio.sleep(1.1)
    assert other.asks() == [290_000, 310_000]


async def test_owners_that_start_together_do_not_speak_together_for_ever(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    nodes = [await party.add(ask=ask) for ask in (300_000, 310_000, 320_000)]
    await trio.sleep(180)
    book = nodes[0].node.book
    spoken: dict[bytes, list[int]] = {}
    for arrival in book.arrivals():
        spoken.setdefault(arrival.head[0], []).append(arrival.taken_ms)
    assert len(spoken) == 3
    for times in spoken.values():
        gaps = [later - earlier for earlier, later in pairwise(times)]
        assert all(14_000 <= gap <= 32_000 for gap in gaps), gaps
        assert max(gaps) - min(gaps) > 1_000, gaps


async def test_many_changes_in_a_second_travel_as_one_advert(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner = await party.add(ask=300_000)
    other = await party.add(ask=310_000)
    await trio.sleep(3)
    before = other.node.feed.taken
    for ask in range(200_000, 200_100):
        owner.node.provider.set_ask(Micros(ask))
        await trio.sleep(0.005)
    await trio.sleep(2)
    assert other.asks()[0] == 200_099
    assert other.node.feed.taken - before <= 3


async def test_what_gossip_loses_anti_entropy_brings(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    def deaf(_sender: PeerId, _receiver: PeerId) -> bool:
        return False

    party = Party(tmp_path, nursery, MemoryHub(deaf))
    nodes = [await party.add(ask=ask) for ask in (300_000, 310_000, 320_000)]
    await trio.sleep(30)
    assert [node.asks() for node in nodes] == [[300_000, 310_000, 320_000]] * 3
    nodes[0].node.provider.set_ask(Micros(1))
    await trio.sleep(60)
    assert [node.asks()[0] for node in nodes] == [1, 1, 1]
    assert all(node.node.feed.taken == 0 for node in nodes)


async def test_a_node_that_stops_withdraws_its_offer(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    staying, leaving = await party.add(ask=300_000), await party.add(ask=310_000)
    await trio.sleep(3)
    await stop(leaving)
    await trio.sleep(1)
    assert staying.asks() == [300_000]


async def test_the_offer_of_a_node_that_dies_expires(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    staying, dying = await party.add(ask=300_000), await party.add(ask=310_000)
    await trio.sleep(3)
    dying.node.provider.stock(())  # from now on it says nothing, not even goodbye
    await trio.sleep(95)
    assert staying.asks() == [300_000]


async def test_a_late_joiner_has_all_offers_within_seconds(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    for ask in (300_000, 310_000, 320_000):
        await party.add(ask=ask)
    await trio.sleep(15)
    late = await party.add(ask=330_000)
    await trio.sleep(2)
    assert late.asks() == [300_000, 310_000, 320_000, 330_000]


async def test_withdrawn_offers_do_not_come_back_through_a_peer_that_missed_it(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    missed: list[PeerId] = []

    def link(_sender: PeerId, receiver: PeerId) -> bool:
        return receiver not in missed

    party = Party(tmp_path, nursery, MemoryHub(link))
    first, second, third = [await party.add(ask=ask) for ask in (300_000, 310_000, 320_000)]
    await trio.sleep(3)
    missed.append(third.peer)
    await stop(second)
    await trio.sleep(60)
    assert first.asks() == [300_000, 320_000]
    assert third.asks() == [300_000, 320_000]


async def test_peers_of_another_network_are_refused(
    party: Party, tmp_path: Path, nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    from protocol.codec import encode
    from protocol.errors import PeerFault
    from protocol.hello import Hello, check_hello
    from protocol.units import NetId

    owner = await party.add(ask=300_000)
    hello = owner.node.greeting.hello()
    assert isinstance(hello, Hello)
    assert encode(hello)
    with pytest.raises(PeerFault, match=r"hello\.net"):
        check_hello(
            hello,
            remote=owner.peer,
            net=NetId(bytes(32)),
            now=owner.node.ports.clock.now(),
        )
