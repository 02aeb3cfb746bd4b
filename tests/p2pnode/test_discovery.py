"""A renter without gossip finds owners through the directory, on virtual time."""

from collections.abc import Awaitable, Callable

import pytest
import trio

from p2pnode.matching import discovery
from protocol.codec import encode
from protocol.directory import class_keys, classes_from, shard_of
from protocol.errors import PeerFault
from protocol.gpu_class import GpuClass
from protocol.limits import OFFERS_ASKED_MAX
from protocol.offers import OwnOffers
from protocol.units import Digest, Millis, PeerId
from tests.make import NET
from tests.make_market import GROUPS_MAX, PLACES, Market, Stand, VirtualClock

CLASS = GpuClass(24)
MANY = 1_000

Answer = Callable[[PeerId, bytes], Awaitable[bytes]]


@pytest.fixture
def market(nursery: trio.Nursery) -> Market:
    return Market(nursery)


def key_of(of_class: GpuClass, shard: int) -> Digest:
    [key] = class_keys(NET, (of_class,), ("EU",), places=PLACES, shard=shard)
    return key


async def announce(market: Market, owner: Stand, of_class: GpuClass = CLASS) -> None:
    shard = shard_of(owner.feed.public, market.shards)
    await owner.directory.announce(key_of(of_class, shard))


async def add_owner(market: Market) -> Stand:
    owner = await market.add()
    owner.offer()
    await announce(market, owner)
    return owner


def answering(*adverts: bytes, more_after: bytes | None = None) -> Answer:
    """A handler that gives these adverts as its own, whosever they are."""
    body = OwnOffers(adverts=adverts)
    if more_after is not None:
        body = OwnOffers(adverts=adverts, more_after=more_after)

    async def answer(_peer: PeerId, _body: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        return encode(body)

    return answer


async def silent(_peer: PeerId, _body: bytes) -> bytes:
    await trio.sleep_forever()
    raise AssertionError


async def discover(renter: Stand, wanted: int = MANY) -> int:
    return await renter.discovery.discover((CLASS,), (), wanted)


async def test_a_renter_without_gossip_finds_every_owner(
    nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    market = Market(nursery, shards=4)
    await market.add()
    owners = [await add_owner(market) for _ in range(12)]
    renter = await market.add()
    assert await discover(renter) == 12
    assert renter.sees() == {owner.transport.peer_id for owner in owners}


async def test_it_stops_when_it_has_enough(market: Market, autojump_clock: trio.abc.Clock) -> None:
    await market.add()
    for _ in range(40):
        await add_owner(market)
    renter = await market.add()
    assert 3 <= await discover(renter, wanted=3) < 3 + discovery.PROVIDERS_AT_ONCE
    assert await discover(renter, wanted=3) == 0


async def test_only_the_classes_and_regions_asked_for_are_looked_up(
    market: Market, autojump_clock: trio.abc.Clock
) -> None:
    await market.add()
    owner = await market.add()
    owner.offer(vram=81_559)
    await announce(market, owner, GpuClass(80))
    renter = await market.add()
    assert await renter.discovery.discover((CLASS,), (), MANY) == 0
    assert await renter.discovery.discover(classes_from(CLASS), ("NA", "AS"), MANY) == 0
    assert await renter.discovery.discover(classes_from(CLASS), ("EU",), MANY) == 1


async def test_an_owner_of_many_groups_is_asked_page_by_page(
    market: Market, autojump_clock: trio.abc.Clock
) -> None:
    await market.add()
    owner = await add_owner(market)
    for group in range(1, GROUPS_MAX):
        owner.offer(group)
    renter = await market.add()
    assert await discover(renter) == GROUPS_MAX


async def test_what_is_withdrawn_or_over_is_not_handed_out(
    market: Market, autojump_clock: trio.abc.Clock
) -> None:
    await market.add()
    owner = await add_owner(market)
    owner.offer(1, state="withdrawn")
    owner.offer(2, not_after_ms=Millis(VirtualClock().now() + 10_000))
    await trio.sleep(11)
    renter = await market.add()
    assert await discover(renter) == 1


async def test_somebody_elses_offer_is_refused(
    market: Market, autojump_clock: trio.abc.Clock
) -> None:
    await market.add()
    honest, liar = await market.add(), await add_owner(market)
    liar.handlers["offers.own"] = answering(honest.sealed(), liar.sealed())
    renter = await market.add()
    assert await discover(renter) == 0
    assert renter.sees() == set()
    with pytest.raises(PeerFault, match=r"advert\.publisher"):
        renter.book.take(
            honest.sealed(), now=VirtualClock().now(), publisher=liar.transport.peer_id
        )


@pytest.mark.parametrize(
    "answer",
    [
        answering(b"garbage"),
        answering(more_after=bytes(16)),
        silent,
    ],
    ids=["garbage", "a-page-without-end", "silence"],
)
async def test_a_bad_provider_costs_its_deadline_and_no_more(
    market: Market, autojump_clock: trio.abc.Clock, answer: Answer
) -> None:
    await market.add()
    good, bad = await add_owner(market), await add_owner(market)
    bad.handlers["offers.own"] = answer
    renter = await market.add()
    began = trio.current_time()
    assert await discover(renter) == 1
    assert renter.sees() == {good.transport.peer_id}
    assert trio.current_time() - began <= discovery.ASK_S


async def test_many_dead_providers_do_not_add_up(
    market: Market, autojump_clock: trio.abc.Clock
) -> None:
    await market.add()
    for _ in range(24):
        dead = await add_owner(market)
        dead.handlers["offers.own"] = silent
    good = await add_owner(market)
    renter = await market.add()
    began = trio.current_time()
    await discover(renter)
    assert renter.sees() == {good.transport.peer_id}
    rounds = 25 / discovery.PROVIDERS_AT_ONCE
    assert trio.current_time() - began <= discovery.ASK_S * (rounds + 1)


async def test_addresses_that_lead_nowhere_cost_nothing(
    market: Market, autojump_clock: trio.abc.Clock
) -> None:
    await market.add()
    good, gone = await add_owner(market), await market.add()
    market.registry.put(key_of(CLASS, 0), gone.transport.peer_id, ("/memory/nowhere",))
    renter = await market.add()
    assert await discover(renter) == 1
    assert renter.sees() == {good.transport.peer_id}


async def test_without_a_directory_nobody_is_found(
    market: Market, autojump_clock: trio.abc.Clock
) -> None:
    alone = await market.add()
    assert await discover(alone) == 0


async def test_who_is_in_the_book_is_not_asked_again(
    market: Market, autojump_clock: trio.abc.Clock
) -> None:
    await market.add()
    owner = await add_owner(market)
    renter = await market.add()
    await discover(renter)
    owner.handlers["offers.own"] = silent
    began = trio.current_time()
    assert await discover(renter) == 0
    assert trio.current_time() == began


async def test_what_was_found_stays_when_the_discovery_is_given_up(
    market: Market, autojump_clock: trio.abc.Clock
) -> None:
    await market.add()
    good, bad = await add_owner(market), await add_owner(market)
    bad.handlers["offers.own"] = silent
    renter = await market.add()
    with trio.move_on_after(1):
        await discover(renter)
    assert renter.sees() == {good.transport.peer_id}


async def test_a_page_holds_what_one_answer_may(
    market: Market, autojump_clock: trio.abc.Clock
) -> None:
    assert OFFERS_ASKED_MAX * discovery.PAGES_MAX >= GROUPS_MAX
    await market.add()
    owner = await add_owner(market)
    with pytest.raises(PeerFault, match=r"codec\."):
        await owner.discovery.handlers["offers.own"](owner.transport.peer_id, b"garbage")
