"""Who is told of news at once, and how often."""

import random

import trio

from p2pnode.replication.spread import SPREAD_S, WARN_REST_S, WARN_TO, Spreader
from protocol.units import PeerId
from tests.make_replication import peer


async def begin(
    nursery: trio.Nursery, neighbours: list[PeerId], spread_to: int = 2
) -> tuple[Spreader, list[PeerId]]:
    """A spreader that runs, and whom it has compared with so far."""
    met: list[PeerId] = []
    spreader = Spreader(
        meet=met.append,
        neighbours=lambda: tuple(neighbours),
        spread_to=spread_to,
        rng=random.Random(1),
    )
    nursery.start_soon(spreader.run)
    await trio.testing.wait_all_tasks_blocked()
    return spreader, met


async def test_entries_are_passed_on_to_a_few_within_a_second(
    nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    spreader, met = await begin(nursery, [peer(name) for name in range(1, 9)])
    await trio.sleep(10 * SPREAD_S)
    assert met == []
    spreader.note()
    await trio.sleep(1.1 * SPREAD_S)
    assert len(met) == len({*met}) == 2
    await trio.sleep(10 * SPREAD_S)
    assert len(met) == 2


async def test_news_waits_for_the_first_neighbour(
    nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    neighbours: list[PeerId] = []
    spreader, met = await begin(nursery, neighbours, spread_to=4)
    spreader.note()
    await trio.sleep(10 * SPREAD_S)
    neighbours.append(peer(1))
    await trio.sleep(1.1 * SPREAD_S)
    assert met == [peer(1)]


async def test_evidence_is_passed_on_to_all_without_a_pause(
    nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    neighbours = [peer(name) for name in range(1, 9)]
    spreader, met = await begin(nursery, neighbours)
    began = trio.current_time()
    spreader.warn()
    await trio.testing.wait_all_tasks_blocked()
    assert sorted(met) == sorted(neighbours)
    assert trio.current_time() == began


async def test_evidence_without_end_is_passed_on_once_in_a_while(
    nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    spreader, met = await begin(nursery, [peer(name) for name in range(WARN_TO + 9)])
    for _ in range(100):
        spreader.warn()
        await trio.sleep(WARN_REST_S / 20)
    await trio.sleep(2 * WARN_REST_S)
    # One at the beginning, then one after each of five pauses.
    assert len(met) == 6 * WARN_TO
