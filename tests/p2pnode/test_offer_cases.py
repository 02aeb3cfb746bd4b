"""Public complaints about offers that vanish, stay or come back, as what must hold here."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import trio

from p2pnode.identity import Identity
from p2pnode.network.gossip import Feed
from p2pnode.network.memory_transport import MemoryHub, MemoryTransport
from p2pnode.network.peers import NEIGHBOURS_WANTED
from p2pnode.network.transport import Verdict
from p2pnode.ports import Ports
from protocol.codec import encode
from protocol.errors import PeerFault, Unavailable
from protocol.offers import Heads, Offers, OffersAsk, OwnOffers, OwnOffersAsk
from protocol.units import Digest, PeerId
from tests.make_node import Party, Started

HEARTBEAT_S = 30


@pytest.fixture
def hub() -> MemoryHub:
    return MemoryHub()


@pytest.fixture
def party(tmp_path: Path, nursery: trio.Nursery, hub: MemoryHub) -> Party:
    return Party(tmp_path, nursery, hub)


def raw_offer(seer: Started) -> bytes:
    """The one offer in a node's book, as its owner sealed it."""
    (offer,) = seer.node.book.open_offers(seer.node.ports.clock.now())
    return offer.raw


async def withdrawn(party: Party) -> tuple[Started, Started, bytes]:
    """Who saw an offer that is withdrawn now, its owner, and the advert of before."""
    seer, owner = await party.add(ask=None), await party.add(ask=300_000)
    await trio.sleep(3)
    stored = raw_offer(seer)
    owner.node.terms.pause_for(None)
    await trio.sleep(2)
    assert seer.asks() == []
    return seer, owner, stored


async def test_c6_a_withdrawn_offer_does_not_come_back_by_gossip_that_is_repeated(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    seer, owner, stored = await withdrawn(party)
    feed = Feed(seer.node._take)
    for pause_s in (0, 20, 60, 8, 1, 600):
        await trio.sleep(pause_s)
        assert feed.judge(PeerId(b"liar"), owner.peer, stored) is not Verdict.ACCEPT
        assert seer.asks() == []


async def test_c6_nor_from_who_still_has_the_older_advert_in_its_book(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    seer, owner, stored = await withdrawn(party)
    key = seer.node.book.heads()[0][0]
    liar = await party.add(ask=None)
    asked = []

    # It says that it has something newer, and hands out what is older.
    async def say(_peer: PeerId, _body: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        return encode(Heads(root=Digest(bytes(32)), heads=((key, 2**62, 1, bytes(16)),)))

    async def hand_out(peer: PeerId, _body: bytes) -> bytes:
        asked.append(peer)
        await trio.lowlevel.checkpoint()
        return encode(Offers(adverts=(stored,)))

    liar.node._handlers.update({"offers.heads": say, "offers.get": hand_out})
    await trio.sleep(60)
    assert seer.peer in asked
    assert seer.asks() == []
    assert not owner.asks()


async def test_c6_nor_from_who_was_found_in_the_directory(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    seer, owner, stored = await withdrawn(party)
    liar = await party.add(ask=None, gossip="off")
    # The owner itself hands out nothing that is withdrawn; of another it is no offer of its own.
    raw = await seer.node.links.ask(owner.peer, "offers.own", encode(OwnOffersAsk()))
    assert raw == encode(OwnOffers(adverts=()))
    with pytest.raises(PeerFault, match=r"advert\.publisher"):
        liar.node._take(seer.peer, stored)
    with pytest.raises(PeerFault, match=r"advert\.publisher"):
        liar.node._take(liar.peer, stored)
    raw = await liar.node.links.ask(seer.peer, "offers.get", encode(OffersAsk(groups=(bytes(16),))))
    assert raw == encode(Offers(adverts=()))
    assert liar.asks() == []


@dataclass
class Failing:
    """Ports of which publishing fails while `is_down`, each time in its own way."""

    is_down: bool = True
    tried_s: list[float] = field(default_factory=list)

    def wrap(self, ports: Ports, _identity: Identity) -> Ports:
        transport = ports.transport
        assert isinstance(transport, MemoryTransport)
        publish, announce = transport.publish, ports.directory.announce

        async def gossip(topic: str, payload: bytes) -> None:
            self.tried_s.append(trio.current_time())
            await trio.lowlevel.checkpoint()
            if self.is_down:
                raise Unavailable("nothing takes it")
            await publish(topic, payload)

        async def list_under(key: bytes) -> None:
            await trio.lowlevel.checkpoint()
            if self.is_down:
                raise Unavailable("nobody took it")
            await announce(key)

        transport.publish = gossip  # type: ignore[method-assign]
        ports.directory.announce = list_under  # type: ignore[method-assign]
        return replace(ports, transport=transport)


async def test_c7_what_could_not_be_published_is_tried_again_for_ever_and_ever_less_often(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    seer, failing = await party.add(ask=None), Failing()
    owner = await party.start(party.build(ask=300_000, wrap=failing.wrap))
    await trio.sleep(1_800)
    assert owner.node.provider.failed == len(failing.tried_s)
    rests = [b - a for a, b in zip(failing.tried_s[1:], failing.tried_s[2:], strict=False)]
    assert rests[0] < rests[1] < rests[2]
    assert max(rests) <= HEARTBEAT_S + 1
    assert owner.node.lookout.listing.announced == 0
    failing.is_down = False
    await trio.sleep(HEARTBEAT_S + 1)
    assert owner.node.provider.failed < len(failing.tried_s)
    assert seer.asks() == [300_000]
    assert owner.node.lookout.listing.announced > 0


@pytest.mark.parametrize("lasts_s", [5, 1_000])
async def test_c7_offers_are_seen_within_a_heartbeat_of_the_end_of_a_partition(
    party: Party, hub: MemoryHub, autojump_clock: trio.abc.Clock, lasts_s: int
) -> None:
    sides = [[await party.add(ask=300_000 + 1_000 * n + side) for n in range(3)] for side in (1, 2)]
    await trio.sleep(5)
    asks = sides[0][0].asks()
    for one in sides[0]:
        for other in sides[1]:
            hub.cut(one.peer, other.peer)
    await trio.sleep(lasts_s)
    # The first node of all, whom a new one asks, is on this side.
    late = party.build(ask=400_000)
    for other in sides[1]:
        hub.cut(late.identity.certificate.peer_id, other.peer)
    sides[0].append(await party.start(late))
    await trio.sleep(95)
    assert [len(node.asks()) for node in (*sides[0], *sides[1])] == [4, 4, 4, 4, 3, 3, 3]
    hub.heal()
    await trio.sleep(HEARTBEAT_S)
    for node in (*sides[0], *sides[1]):
        assert node.asks() == [*asks, 400_000]


async def test_c7_an_owner_that_was_alone_is_in_the_directory_within_a_heartbeat(
    party: Party, hub: MemoryHub, autojump_clock: trio.abc.Clock
) -> None:
    light = await party.add(ask=None, gossip="off")
    owner = party.build(ask=300_000)
    hub.cut(light.peer, owner.identity.certificate.peer_id)
    alone = await party.start(owner)
    await trio.sleep(3_000)
    assert alone.node.lookout.listing.announced == 0
    hub.heal()
    await trio.sleep(HEARTBEAT_S)
    assert alone.node.lookout.listing.announced > 0
    assert light.node.ports.transport.neighbours() == (alone.peer,)


async def test_c7_who_was_listed_while_others_were_out_of_reach_is_listed_anew(
    party: Party, hub: MemoryHub, autojump_clock: trio.abc.Clock
) -> None:
    far, owner = await party.add(ask=None), await party.add(ask=300_000)
    await party.add(ask=None)
    await trio.sleep(300)
    listing = owner.node.lookout.listing
    hub.cut(far.peer, owner.peer)
    await trio.sleep(60)
    before = listing.announced
    hub.heal()
    await trio.sleep(HEARTBEAT_S)
    assert listing.announced == before  # nothing was said that the far one has missed
    hub.cut(far.peer, owner.peer)
    await trio.sleep(4_000)
    assert listing.announced > before
    before = listing.announced
    hub.heal()
    await trio.sleep(HEARTBEAT_S)
    assert listing.announced == before + 1


async def test_c7_two_parts_find_together_though_each_has_neighbours_enough(
    party: Party, hub: MemoryHub, autojump_clock: trio.abc.Clock
) -> None:
    sides = [[await party.add(ask=300_000) for _ in range(10)] for _ in range(2)]
    await trio.sleep(20)
    for one in sides[0]:
        for other in sides[1]:
            hub.cut(one.peer, other.peer)
    await trio.sleep(200)
    for node in (*sides[0], *sides[1]):
        assert len(node.node.ports.transport.neighbours()) >= NEIGHBOURS_WANTED
        assert len(node.asks()) == 10
    hub.heal()
    await trio.sleep(HEARTBEAT_S)
    assert [len(node.asks()) for node in (*sides[0], *sides[1])] == [20] * 20
