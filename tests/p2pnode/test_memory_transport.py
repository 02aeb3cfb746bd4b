"""The network in memory keeps what the ports promise, by the suite that the real one passes."""

from collections.abc import Awaitable, Callable

import pytest
import trio

from p2pnode.network.memory_transport import MemoryHub, MemoryTransport
from p2pnode.network.transport import Verdict
from protocol.signing import Signer, peer_id_of
from protocol.units import PeerId
from tests import transport_suite as suite

Start = Callable[[int], Awaitable[list[MemoryTransport]]]


def make_transport(hub: MemoryHub, number: int) -> MemoryTransport:
    peer = peer_id_of(Signer(bytes([number]) * 32).public)
    return MemoryTransport(hub, peer, f"/memory/{number}")


@pytest.fixture
def start(nursery: trio.Nursery) -> Start:
    hub = MemoryHub()

    async def start_some(count: int) -> list[MemoryTransport]:
        transports = [make_transport(hub, number) for number in range(1, count + 1)]
        for transport in transports:
            await nursery.start(transport.run)
        return transports

    return start_some


@pytest.mark.parametrize("check", suite.PAIR_CHECKS, ids=lambda check: check.__name__)
async def test_a_pair_conforms(
    start: Start,
    autojump_clock: trio.abc.Clock,
    check: Callable[[suite.Transport, suite.Transport], Awaitable[None]],
) -> None:
    one, other = await start(2)
    await check(one, other)


@pytest.mark.parametrize("check", suite.TRIO_CHECKS, ids=lambda check: check.__name__)
async def test_three_conform(
    start: Start,
    autojump_clock: trio.abc.Clock,
    check: Callable[[suite.Transport, suite.Transport, suite.Transport], Awaitable[None]],
) -> None:
    one, two, three = await start(3)
    await check(one, two, three)


async def test_a_dead_address_is_unavailable_and_the_next_is_tried(
    start: Start, autojump_clock: trio.abc.Clock
) -> None:
    one, other = await start(2)
    await suite.a_dead_address_is_unavailable_and_the_next_is_tried(one, other, "/memory/99")


@pytest.mark.parametrize("verdict", [Verdict.IGNORE, Verdict.REJECT])
async def test_refused_gossip_goes_no_further(
    start: Start, autojump_clock: trio.abc.Clock, verdict: Verdict
) -> None:
    left, middle, right = await start(3)
    await suite.refused_gossip_goes_no_further((left, middle, right), verdict)


async def test_a_peer_that_stops_is_no_neighbour(
    nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    hub = MemoryHub()
    one, other = make_transport(hub, 1), make_transport(hub, 2)
    scope, ended = trio.CancelScope(), trio.Event()

    async def run_other(*, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with scope:
            await other.run(task_status=task_status)
        ended.set()

    async def stop() -> None:
        scope.cancel()
        await ended.wait()

    await nursery.start(one.run)
    await nursery.start(run_other)
    await suite.a_peer_that_stops_is_no_neighbour(one, other, stop)


async def test_a_link_that_loses_is_asked_for_each_hop(nursery: trio.Nursery) -> None:
    asked: list[tuple[PeerId, PeerId]] = []

    def lossy(sender: PeerId, receiver: PeerId) -> bool:
        asked.append((sender, receiver))
        return False

    hub = MemoryHub(lossy)
    one, other = make_transport(hub, 1), make_transport(hub, 2)
    await nursery.start(one.run)
    await nursery.start(other.run)
    ear = suite.Listener()
    await other.subscribe(suite.TOPIC, ear)
    await suite.link(one, other)
    await one.publish(suite.TOPIC, b"offer")
    assert asked == [(one.peer_id, other.peer_id)]
    assert ear.heard == []
