"""Public complaints about offers that vanish, stay or come back, as what must hold here."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import trio

from p2pnode.execution.nvml_probe import unit_of
from p2pnode.gpus import Gpu, GpuUse
from p2pnode.identity import Identity
from p2pnode.matching.search import Wish
from p2pnode.network.gossip import Feed
from p2pnode.network.memory_transport import MemoryHub, MemoryTransport
from p2pnode.network.peer_text import peer_text
from p2pnode.network.peers import LASTED_S, NEIGHBOURS_WANTED
from p2pnode.network.transport import Verdict
from p2pnode.ports import Ports
from p2pnode.reputation_views import reputation_of
from p2pnode.status import DEVICE_CLAIMED_TWICE, alerts_of, offer_of, offers_of
from protocol.advert import device_mark
from protocol.codec import encode
from protocol.errors import LocalFault, PeerFault, Unavailable
from protocol.offers import Heads, Offers, OffersAsk, OwnOffers, OwnOffersAsk
from protocol.units import Digest, Mebibytes, PeerId, PublicKey
from tests.make_job import make_submission
from tests.make_node import Party, Started, ended, stop

HEARTBEAT_S = 30
DEVICE = "GPU-5a1f6c2e-0d3b-4c55-9a77-1e8f0c2b7d94"


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
    await trio.sleep(HEARTBEAT_S + LASTED_S)
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
    await trio.sleep(LASTED_S + 10)
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


@dataclass(frozen=True)
class OneGpu:
    """See GpuProbe: a host with one real GPU."""

    feed: PublicKey
    problems: tuple[str, ...] = ()

    async def read(self) -> tuple[Gpu, ...]:
        await trio.lowlevel.checkpoint()
        unit = unit_of(self.feed, DEVICE)
        vram = Mebibytes(24_564)
        return (Gpu(unit=unit, model="RTX 4090", vram=vram, source="nvml", device=DEVICE),)

    async def use(self) -> tuple[GpuUse, ...]:
        await trio.lowlevel.checkpoint()
        return ()


def with_gpu(ports: Ports, identity: Identity) -> Ports:
    return replace(ports, probe=OneGpu(identity.feed.public))


def seen_by(seer: Started) -> dict[str, list[tuple[str, bool]]]:
    """Owner -> who is shown beside it as claiming the same GPU, and whether that one was first."""
    found = offers_of(seer.node, Wish(), limit=9).items
    feeds = {
        peer_text(offer.certificate.peer_id): offer.signer.hex()
        for offer in seer.node.market.offers()
    }
    return {
        feeds[item.peer]: [(rival.owner, rival.is_first) for rival in item.rivals] for item in found
    }


async def killed(hub: MemoryHub, started: Started, others: list[Started]) -> None:
    """SIGKILL: not a word of goodbye gets out."""
    for other in others:
        hub.cut(started.peer, other.peer)
    await stop(started)
    hub.heal()


async def test_c4_a_killed_node_is_the_same_one_again_under_its_key(
    party: Party, hub: MemoryHub, autojump_clock: trio.abc.Clock
) -> None:
    seer, owner = await party.add(ask=None), await party.add(ask=300_000)
    await trio.sleep(3)
    (before,) = seer.node.market.offers()
    await killed(hub, owner, [seer])
    assert seer.asks() == [300_000]  # nobody knows yet
    again = await party.start(party.revive(owner.node))
    await trio.sleep(5)
    (after,) = seer.node.market.offers()
    assert again.peer == owner.peer == after.certificate.peer_id
    assert (after.signer, after.head[0]) == (before.signer, before.head[0])
    assert after.advert.incarnation > before.advert.incarnation


async def test_c4_under_a_new_key_the_old_entry_goes_at_its_end_and_the_conflict_is_shown(
    party: Party, hub: MemoryHub, autojump_clock: trio.abc.Clock
) -> None:
    seer = await party.add(ask=None)
    old = await party.start(party.build(ask=300_000, wrap=with_gpu))
    await trio.sleep(3)
    (stale,) = seer.node.market.offers()
    await killed(hub, old, [seer])
    new = await party.start(party.build(ask=310_000, wrap=with_gpu))
    await trio.sleep(5)
    was, is_now = (each.node.identity.feed.public.hex() for each in (old, new))
    assert seen_by(seer) == {was: [(is_now, False)], is_now: [(was, True)]}
    shown = offer_of(seer.node, stale.head[0].hex()[:10])
    assert shown.offer.devices == (device_mark(DEVICE, seer.node.net).hex(),)
    (rival,) = reputation_of(seer.node, is_now, why=False).rivals
    assert (rival.owner, rival.is_first, rival.claim) == (was, True, "claimed")
    (alert,) = alerts_of(new.node)
    assert alert.startswith(f"{DEVICE_CLAIMED_TWICE}: feed {was[:16]}")
    left_ms = stale.advert.not_after_ms - seer.node.ports.clock.now()
    await trio.sleep(left_ms / 1_000)
    assert seen_by(seer) == {was: [(is_now, False)], is_now: [(was, True)]}
    await trio.sleep(0.001)
    assert seen_by(seer) == {is_now: []}
    assert alerts_of(new.node) == ()
    with pytest.raises(LocalFault, match="There is no offer"):
        offer_of(seer.node, stale.head[0].hex())


async def test_c4_a_liar_that_copies_a_device_takes_nothing_from_its_owner(
    party: Party, hub: MemoryHub, autojump_clock: trio.abc.Clock
) -> None:
    client = await party.add(ask=None)
    honest = await party.start(party.build(ask=300_000, wrap=with_gpu))
    await trio.sleep(3)
    liar = await party.start(party.build(ask=400_000, wrap=with_gpu))
    await trio.sleep(5)
    owns, lies = (each.node.identity.feed.public.hex() for each in (honest, liar))
    both = {owns: [(lies, False)], lies: [(owns, True)]}
    assert seen_by(client) == both
    before = honest.node.standing.reliability_ppm(honest.node.identity.feed.public)
    job = client.node.jobs.submit(make_submission(client.node))
    file = await ended(client, job.id)
    assert (file.state, file.taking.owner.hex()) == ("done", owns)  # type: ignore[union-attr]
    # It is away longer than its advert lives, and is the first again when it is back.
    for other in (client, liar):
        hub.cut(honest.peer, other.peer)
    await trio.sleep(600)
    assert seen_by(client) == {lies: []}
    hub.heal()
    await trio.sleep(HEARTBEAT_S)
    assert seen_by(client) == both
    assert client.node.standing.bars(honest.node.identity.feed.public) is None
    assert client.node.standing.bars(liar.node.identity.feed.public) is None
    assert honest.node.standing.reliability_ppm(honest.node.identity.feed.public) >= before
    again = client.node.jobs.submit(make_submission(client.node))
    file = await ended(client, again.id)
    assert (file.state, file.taking.owner.hex()) == ("done", owns)  # type: ignore[union-attr]
