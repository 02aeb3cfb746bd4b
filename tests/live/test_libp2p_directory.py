"""The real directory keeps what the port promises, on loopback, and finds owners in full."""

from collections.abc import Awaitable, Callable
from hashlib import sha256

import pytest
import trio
from libp2p.kad_dht.kad_dht import DHTMode, KadDHT
from libp2p.peer.id import ID
from libp2p.peer.peerinfo import PeerInfo
from multiaddr import Multiaddr

from p2pnode.network import peers
from p2pnode.network.libp2p_adapter import libp2p_directory
from p2pnode.network.libp2p_adapter.kad_server import KAD
from p2pnode.network.libp2p_adapter.libp2p_directory import DirectoryMode
from p2pnode.network.libp2p_adapter.libp2p_transport import Libp2pTransport
from protocol.errors import LocalFault, Unavailable
from protocol.units import PeerId
from tests import directory_suite as suite
from tests.live.libp2p_victim import setting
from tests.transport_suite import ECHO, echo, serve_echo, until

pytestmark = pytest.mark.live

Start = Callable[[int], Awaitable[list[Libp2pTransport]]]
LOOPBACK = ("/ip4/127.0.0.1/tcp/0",)


def make_mode(number: int, mode: DirectoryMode) -> Libp2pTransport:
    return Libp2pTransport(seed=bytes([number]) * 32, listen=LOOPBACK, topics=(), directory=mode)


def table(transport: Libp2pTransport) -> set[PeerId]:
    return {PeerId(p.to_bytes()) for p in transport._directory._kad.routing_table.get_peer_ids()}


@pytest.mark.parametrize("check", suite.CHECKS, ids=lambda check: check.__name__)
async def test_three_conform(start: Start, check: suite.Check) -> None:
    one, other, third = await start(3)
    await check(one, other, third)


async def test_a_late_light_client_finds_all_eight_and_asks_them(
    start: Start, nursery: trio.Nursery
) -> None:
    owners = await start(8)
    await suite.gather_around(owners[0], *owners[1:])
    for owner in owners:
        owner.serve(ECHO, serve_echo)
    async with trio.open_nursery() as announcing:
        for owner in owners:
            announcing.start_soon(owner.announce, suite.KEY)
    late = make_mode(99, "client")
    await nursery.start(late.run)
    await late.connect(owners[3].peer_id, owners[3].addresses())
    found = await late.find(suite.KEY)
    assert list(found) == sorted(owner.peer_id for owner in owners)
    for peer, addresses in found.items():
        await late.connect(peer, addresses)
        assert await echo(late, peer, b"what do you offer?") == b"what do you offer?"


async def test_light_clients_announce_but_answer_nobody(
    start: Start, nursery: trio.Nursery
) -> None:
    one, other = await start(2)
    light = make_mode(99, "client")
    await nursery.start(light.run)
    await suite.gather_around(one, other, light)
    await light.announce(suite.KEY)
    assert list(await other.find(suite.KEY)) == [light.peer_id]
    await until(lambda: other.peer_id in table(one))
    assert light.peer_id not in table(one)
    with pytest.raises(Unavailable):
        await one.open_stream(light.peer_id, KAD)


async def test_the_announced_addresses_are_those_that_are_found(
    start: Start, nursery: trio.Nursery
) -> None:
    one, other = await start(2)
    outside = ("/ip4/192.0.2.7/tcp/4001", "/dns4/owner.example/tcp/4001")
    behind_nat = Libp2pTransport(
        seed=b"n" * 32, listen=LOOPBACK, topics=(), directory="client", announced=outside
    )
    await nursery.start(behind_nat.run)
    await suite.gather_around(one, other, behind_nat)
    await behind_nat.announce(suite.KEY)
    assert await other.find(suite.KEY) == {behind_nat.peer_id: outside}


async def test_an_announced_address_that_is_none_is_our_users_fault(
    nursery: trio.Nursery,
) -> None:
    wrong = Libp2pTransport(seed=b"w" * 32, listen=LOOPBACK, topics=(), announced=("/nonsense/1",))
    await nursery.start(wrong.run)
    with pytest.raises(LocalFault, match="nonsense"):
        await wrong.announce(suite.KEY)


async def test_nobody_is_dialled_for_having_been_heard_of(start: Start) -> None:
    one, *others = await start(4)
    await suite.gather_around(one, *others)
    await others[0].announce(suite.KEY)
    await until(lambda: len(table(one)) == 3)
    await trio.sleep(2 * libp2p_directory.LOOK_S)
    assert others[2].neighbours() == (one.peer_id,)


async def test_connections_that_only_a_look_up_needed_are_closed(
    start: Start, nursery: trio.Nursery
) -> None:
    with setting(libp2p_directory, IDLE_S=1, CLOSE_ABOVE=0):
        one, used, unused = await start(3)
        await suite.gather_around(one, used, unused)
        await until(lambda: len(table(one)) == 2)
        seeker = make_mode(99, "client")
        await nursery.start(seeker.run)
        await seeker.connect(one.peer_id, one.addresses())
        used.serve("/p2pnode/suite/1", serve_echo)
        await seeker.find(suite.KEY)
        assert set(seeker.neighbours()) == {one.peer_id, used.peer_id, unused.peer_id}
        async with await seeker.open_stream(used.peer_id, "/p2pnode/suite/1"):
            await until(lambda: unused.peer_id not in seeker.neighbours())
            assert used.peer_id in seeker.neighbours()
            assert one.peer_id in seeker.neighbours()
            await seeker.connect(unused.peer_id, unused.addresses())
            await trio.sleep(2 * libp2p_directory.LOOK_S)
            assert unused.peer_id in seeker.neighbours()


def test_what_a_look_up_opened_is_closed_before_it_counts_as_a_lasting_neighbour() -> None:
    assert peers.LASTED_S >= 2 * libp2p_directory.IDLE_S


@pytest.mark.slow
async def test_many_keys_at_once_are_paced_and_all_arrive(start: Start) -> None:
    one, other = await start(2)
    await suite.gather_around(one, other)
    keys = [sha256(bytes([number])).digest() for number in range(11)]
    with trio.fail_after(30):
        for key in keys:
            await other.announce(key)
    for key in keys:
        assert list(await one.find(key)) == [other.peer_id]


async def test_the_directory_of_the_library_understands_ours_and_we_it(start: Start) -> None:
    one, other, third = await start(3)
    await suite.gather_around(one, other, third)
    host = third._host.host
    stock = KadDHT(host, DHTMode.SERVER)
    address = Multiaddr(one.addresses()[0])
    host.get_peerstore().add_addrs(ID(one.peer_id), [address], 3600)
    await stock.routing_table.add_peer(PeerInfo(ID(one.peer_id), [address]))
    await other.announce(suite.KEY)
    ours = await stock.find_providers("1220" + suite.KEY.hex())
    assert {provider.peer_id.to_bytes() for provider in ours} == {other.peer_id}
    assert await stock.provide("1220" + suite.OTHER_KEY.hex())
    assert list(await other.find(suite.OTHER_KEY)) == [third.peer_id]
