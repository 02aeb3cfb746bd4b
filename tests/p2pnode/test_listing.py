"""Owners are listed soon, again while the network is young, then hourly, and when they change."""

import random

import pytest
import trio

from p2pnode.matching.listing import AGAIN_S, START_S_MAX, STEADY_S, Listing
from protocol.directory import class_keys, shard_of
from protocol.errors import Unavailable
from protocol.gpu_class import GpuClass
from protocol.units import PeerId
from tests.make import FEED, NET

SHARDS = 4
PLACES = 77
SMALL, LARGE = GpuClass(24), GpuClass(80)


class NotedDirectory:
    """See Directory. Remembers when what was announced; `is_down` loses everything."""

    def __init__(self) -> None:
        self.noted: list[tuple[float, bytes]] = []
        self.is_down = False

    async def announce(self, key: bytes) -> None:
        await trio.lowlevel.checkpoint()
        if self.is_down:
            raise Unavailable("nobody there")
        self.noted.append((trio.current_time(), key))

    async def find(self, _key: bytes) -> dict[PeerId, tuple[str, ...]]:
        await trio.lowlevel.checkpoint()
        return {}


def key_of(of_class: GpuClass) -> bytes:
    shard = shard_of(FEED.public, SHARDS)
    [found] = class_keys(NET, (of_class,), ("AS",), places=PLACES, shard=shard)
    return found


@pytest.fixture
def directory() -> NotedDirectory:
    return NotedDirectory()


@pytest.fixture
def listing(directory: NotedDirectory) -> Listing:
    return Listing(
        directory=directory,
        net=NET,
        feed=FEED.public,
        region="IN",
        places=PLACES,
        shards=SHARDS,
        rng=random.Random(1),
    )


async def test_it_announces_early_and_then_about_hourly(
    listing: Listing,
    directory: NotedDirectory,
    nursery: trio.Nursery,
    autojump_clock: trio.abc.Clock,
) -> None:
    began = trio.current_time()
    listing.stock((SMALL,))
    await nursery.start(listing.run)
    await trio.sleep(3 * STEADY_S)
    times = [at - began for at, _ in directory.noted]
    assert times[0] <= START_S_MAX
    assert times[1] - times[0] == pytest.approx(AGAIN_S[0])
    assert times[2] - times[1] == pytest.approx(AGAIN_S[1])
    assert STEADY_S * 0.9 <= times[3] - times[2] <= STEADY_S * 1.1
    assert len(times) in {5, 6}
    assert {key for _, key in directory.noted} == {key_of(SMALL)}


async def test_alike_classes_share_a_key(
    listing: Listing,
    directory: NotedDirectory,
    nursery: trio.Nursery,
    autojump_clock: trio.abc.Clock,
) -> None:
    listing.stock((LARGE, SMALL, LARGE))
    await nursery.start(listing.run)
    await trio.sleep(START_S_MAX)
    assert [key for _, key in directory.noted] == [key_of(SMALL), key_of(LARGE)]


async def test_new_shelves_are_announced_at_once_and_the_same_ones_are_not(
    listing: Listing,
    directory: NotedDirectory,
    nursery: trio.Nursery,
    autojump_clock: trio.abc.Clock,
) -> None:
    listing.stock((SMALL,))
    await nursery.start(listing.run)
    await trio.sleep(300)
    directory.noted.clear()
    listing.stock((SMALL,))
    await trio.sleep(1)
    assert directory.noted == []
    now = trio.current_time()
    listing.stock((LARGE,))
    await trio.sleep(sum(AGAIN_S) + 1)
    assert [round(at - now) for at, _ in directory.noted] == [0, 15, 60]
    assert {key for _, key in directory.noted} == {key_of(LARGE)}


async def test_who_has_nothing_announces_nothing(
    listing: Listing,
    directory: NotedDirectory,
    nursery: trio.Nursery,
    autojump_clock: trio.abc.Clock,
) -> None:
    await nursery.start(listing.run)
    await trio.sleep(STEADY_S)
    assert directory.noted == []
    assert listing.failed == 0


async def test_what_failed_is_tried_again_within_a_minute(
    listing: Listing,
    directory: NotedDirectory,
    nursery: trio.Nursery,
    autojump_clock: trio.abc.Clock,
) -> None:
    directory.is_down = True
    listing.stock((SMALL,))
    await nursery.start(listing.run)
    await trio.sleep(STEADY_S)
    assert listing.failed > 50
    directory.is_down = False
    await trio.sleep(AGAIN_S[-1])
    assert directory.noted


async def test_what_nobody_took_is_announced_soon_after_somebody_is_met(
    listing: Listing,
    directory: NotedDirectory,
    nursery: trio.Nursery,
    autojump_clock: trio.abc.Clock,
) -> None:
    directory.is_down = True
    listing.stock((SMALL,))
    await nursery.start(listing.run)
    await trio.sleep(STEADY_S)
    directory.is_down = False
    listing.meet(None)
    await trio.sleep(START_S_MAX)
    assert directory.noted
    await trio.sleep(STEADY_S)
    count = len(directory.noted)
    listing.meet(None)
    listing.meet(trio.current_time())
    await trio.sleep(START_S_MAX)
    assert len(directory.noted) == count  # these know, or ask those who do
    listing.meet(trio.current_time() - STEADY_S * 1.1)
    await trio.sleep(START_S_MAX)
    assert len(directory.noted) == count + 1
