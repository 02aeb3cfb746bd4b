import random
from collections.abc import Callable

import pytest
import trio

from p2pnode.network import peers as peers_module
from p2pnode.network.memory_transport import MemoryHub, MemoryTransport
from p2pnode.network.peer_text import address_text, bootstrap_of, peer_of, peer_text
from p2pnode.network.peers import LASTED_S, Peers
from p2pnode.network.transport import Found
from protocol.errors import LocalFault, Unavailable
from protocol.signing import Signer, peer_id_of
from protocol.units import PeerId

Sights = dict[PeerId, tuple[str, ...]]


def peer(number: int) -> PeerId:
    return peer_id_of(Signer(bytes([number]) * 32).public)


def make_transport(hub: MemoryHub, number: int) -> MemoryTransport:
    return MemoryTransport(hub, peer(number), f"/memory/{number}")


def make_peers(transport: MemoryTransport, bootstrap: dict[PeerId, tuple[str, ...]]) -> Peers:
    return Peers(
        own=transport.peer_id, streams=transport, bootstrap=bootstrap, rng=random.Random(1)
    )


async def test_bootstrap_peers_are_dialled_and_told_of(
    nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    hub = MemoryHub()
    ours, theirs = make_transport(hub, 1), make_transport(hub, 2)
    for transport in (ours, theirs):
        await nursery.start(transport.run)
    met: list[PeerId] = []
    await nursery.start(make_peers(ours, {peer(2): ("/memory/2",)}).run, met.append)
    await trio.sleep(2)
    assert met == [peer(2)]


async def test_a_peer_that_is_not_up_yet_is_found_when_it_comes(
    nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    hub = MemoryHub()
    ours, theirs = make_transport(hub, 1), make_transport(hub, 2)
    await nursery.start(ours.run)
    met: list[PeerId] = []
    await nursery.start(make_peers(ours, {peer(2): ("/memory/2",)}).run, met.append)
    await trio.sleep(30)
    assert met == []
    await nursery.start(theirs.run)
    await trio.sleep(peers_module.BACKOFF_S_MAX + 1)
    assert met == [peer(2)]


async def test_no_more_peers_are_dialled_than_wanted(
    nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    hub = MemoryHub()
    ours = make_transport(hub, 1)
    await nursery.start(ours.run)
    peers = make_peers(ours, {})
    for number in range(2, 30):
        transport = make_transport(hub, number)
        await nursery.start(transport.run)
        peers.learn(transport.peer_id, transport.addresses())
    await nursery.start(peers.run, lambda _peer: None)
    await trio.sleep(20)
    assert len(ours.neighbours()) == peers_module.NEIGHBOURS_WANTED


async def test_a_peer_that_moved_is_reached_where_it_said_last(nursery: trio.Nursery) -> None:
    hub = MemoryHub()
    ours, theirs = make_transport(hub, 1), make_transport(hub, 2)
    for transport in (ours, theirs):
        await nursery.start(transport.run)
    peers = make_peers(ours, {peer(2): ("/memory/old",)})
    with pytest.raises(Unavailable):
        await peers.reach(peer(2))
    peers.learn(peer(2), ("/memory/2",))
    await peers.reach(peer(2))
    assert ours.neighbours() == (peer(2),)


async def test_an_unknown_peer_cannot_be_reached() -> None:
    with pytest.raises(Unavailable, match="no address"):
        await make_peers(make_transport(MemoryHub(), 1), {}).reach(peer(2))


def test_the_address_book_is_bounded_and_keeps_the_bootstrap() -> None:
    peers = make_peers(make_transport(MemoryHub(), 1), {peer(2): ("/memory/2",)})
    for number in range(peers_module.KNOWN_MAX + 10):
        peers.learn(PeerId(number.to_bytes(38, "big")), ("/memory/x",))
    assert len(peers._known) == peers_module.KNOWN_MAX
    assert peer(2) in peers._known


def test_peer_ids_and_addresses_survive_being_text() -> None:
    text = address_text(peer(2), "/ip4/192.0.2.7/tcp/4001")
    assert bootstrap_of((text,)) == {peer(2): ("/ip4/192.0.2.7/tcp/4001",)}
    assert peer_of(peer_text(peer(2))) == peer(2)
    assert peer_text(peer(2)).startswith("12D3KooW")


@pytest.mark.parametrize("text", ["", "12D3KooW", "0OIl", "/ip4/1.2.3.4/tcp/1", "x/p2p/y"])
def test_what_is_no_address_is_said_in_one_sentence(text: str) -> None:
    with pytest.raises(LocalFault, match="is no peer"):
        bootstrap_of((text,))


async def test_a_peer_in_sight_is_dialled_and_forgotten_when_it_leaves(
    nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    hub = MemoryHub()
    ours, theirs = make_transport(hub, 1), make_transport(hub, 2)
    for transport in (ours, theirs):
        await nursery.start(transport.run)
    in_sight: Sights = {peer(1): ("/memory/1",), peer(2): ("/memory/2",)}
    peers = Peers(
        own=peer(1), streams=ours, bootstrap={}, local=Wire(in_sight), rng=random.Random(1)
    )
    met: list[PeerId] = []
    await nursery.start(peers.run, met.append)
    await trio.sleep(2)
    assert met == [peer(2)]
    peers.sight({})
    assert not peers._known


class Wire:
    """A local network that shows the same peers for ever."""

    def __init__(self, in_sight: Sights) -> None:
        self._in_sight = in_sight

    async def run(self, addresses: Callable[[], tuple[str, ...]], found: Found) -> None:
        assert addresses() == ("/memory/1",)
        found(self._in_sight)
        await trio.sleep_forever()


async def test_a_liar_on_the_wire_changes_nothing_for_a_peer_that_we_know(
    nursery: trio.Nursery,
) -> None:
    hub = MemoryHub()
    ours, theirs = make_transport(hub, 1), make_transport(hub, 2)
    for transport in (ours, theirs):
        await nursery.start(transport.run)
    peers = make_peers(ours, {peer(2): ("/memory/2",)})
    peers.sight({peer(2): ("/memory/nowhere",)})
    await peers.reach(peer(2))
    assert ours.neighbours() == (peer(2),)
    peers.sight({})
    assert peers._known[peer(2)].addresses == ("/memory/2",)


class Swallowing(MemoryTransport):
    """Where some addresses answer nothing, not even no."""

    async def connect(self, peer: PeerId, addresses: tuple[str, ...]) -> None:
        if addresses[0] == "/memory/hole":
            await trio.sleep_forever()
        await super().connect(peer, addresses)


async def test_a_peer_whose_known_address_swallows_everything_is_found_in_sight(
    nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    hub = MemoryHub()
    ours, theirs = Swallowing(hub, peer(1), "/memory/1"), make_transport(hub, 2)
    for transport in (ours, theirs):
        await nursery.start(transport.run)
    peers = make_peers(ours, {peer(2): ("/memory/hole",)})
    peers.sight({peer(2): ("/memory/2",)})
    met: list[PeerId] = []
    await nursery.start(peers.run, met.append)
    await trio.sleep(2 * peers_module.DIAL_S)
    assert met == [peer(2)]


@pytest.mark.parametrize(("others", "is_back"), [(8, True), (23, True), (24, False)])
async def test_a_lost_neighbour_is_dialled_again_until_there_are_very_many_others(
    nursery: trio.Nursery, autojump_clock: trio.abc.Clock, others: int, is_back: bool
) -> None:
    hub = MemoryHub()
    ours, theirs = make_transport(hub, 1), make_transport(hub, 2)
    crowd = [make_transport(hub, number) for number in range(10, 10 + others)]
    for transport in (ours, theirs, *crowd):
        await nursery.start(transport.run)
    await nursery.start(make_peers(ours, {peer(2): ("/memory/2",)}).run, lambda _peer: None)
    await trio.sleep(LASTED_S + 2)
    hub.cut(peer(1), peer(2))
    for transport in crowd:
        await transport.connect(peer(1), ("/memory/1",))
    await trio.sleep(3_600)
    hub.heal()
    await trio.sleep(peers_module.BACKOFF_S_MAX + 1)
    assert (peer(2) in ours.neighbours()) is is_back


@pytest.mark.parametrize(("lasts_s", "is_back"), [(LASTED_S / 2, False), (LASTED_S + 1, True)])
async def test_of_neighbours_that_are_gone_those_are_missed_that_were_there_for_long(
    nursery: trio.Nursery, autojump_clock: trio.abc.Clock, lasts_s: float, is_back: bool
) -> None:
    hub = MemoryHub()
    ours, theirs = make_transport(hub, 1), make_transport(hub, 2)
    crowd = [make_transport(hub, number) for number in range(10, 18)]
    for transport in (ours, theirs, *crowd):
        await nursery.start(transport.run)
    peers = make_peers(ours, {})
    await nursery.start(peers.run, lambda _peer: None)
    for transport in crowd:
        await transport.connect(peer(1), ("/memory/1",))
    peers.learn(peer(2), ("/memory/2",))
    await peers.reach(peer(2))  # as a look-up does
    await trio.sleep(lasts_s)
    hub.cut(peer(1), peer(2))
    hub.heal()
    await trio.sleep(3_600)
    assert (peer(2) in ours.neighbours()) is is_back


class HungUpOn(MemoryTransport):
    """Whoever it dials takes the call, and hangs up after a while."""

    def __init__(self, hub: MemoryHub, after_s: float) -> None:
        super().__init__(hub, peer(1), "/memory/1")
        self._medium = hub
        self._after_s = after_s
        self.dials = 0

    async def connect(self, peer: PeerId, addresses: tuple[str, ...]) -> None:
        self.dials += 1
        await super().connect(peer, addresses)
        await trio.sleep(self._after_s)
        self._medium.cut(self.peer_id, peer)
        self._medium.heal()


@pytest.mark.parametrize("after_s", [0.0, 3.0])
async def test_a_peer_that_hangs_up_is_dialled_ever_less_often(
    nursery: trio.Nursery, autojump_clock: trio.abc.Clock, after_s: float
) -> None:
    hub = MemoryHub()
    ours, theirs = HungUpOn(hub, after_s), make_transport(hub, 2)
    for transport in (ours, theirs):
        await nursery.start(transport.run)
    await nursery.start(make_peers(ours, {peer(2): ("/memory/2",)}).run, lambda _peer: None)
    await trio.sleep(40 * peers_module.BACKOFF_S_MAX)
    assert 20 <= ours.dials <= 45
