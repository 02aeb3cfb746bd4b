"""What an owner asks: set at once, kept, moved by the market, never touched in a running lease."""

from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from msgspec.structs import replace

from ledger.fold import Lease
from p2pnode.api.owner_documents import AskChange, WindowOrder
from p2pnode.config import Config
from p2pnode.jobs.jobfile import JobFile
from p2pnode.matching.quoting import No
from p2pnode.matching.timetable import Timetable
from p2pnode.network.memory_transport import MemoryHub
from p2pnode.node import Node
from p2pnode.owner_views import OwnerViews
from p2pnode.quantities import Money
from p2pnode.status import offered
from protocol.auction import Bid
from protocol.errors import LocalFault
from protocol.units import Micros, Millis
from tests import make
from tests.make_desk import HOUR, posting, quoted
from tests.make_job import make_submission
from tests.make_node import Party, Started, ended, stop
from tests.make_windows import at, window


@pytest.fixture
def party(tmp_path: Path, nursery: trio.Nursery) -> Party:
    return Party(tmp_path, nursery, MemoryHub())


def views(node: Node) -> OwnerViews:
    return OwnerViews(node, lambda: offered(node))


def priced(**changes: object) -> Callable[[Config], Config]:
    """What makes a config of another with these prices."""
    return lambda config: replace(config, pricing=replace(config.pricing, **changes))


async def runs(renter: Started) -> JobFile:
    return await ended(renter, renter.node.jobs.submit(make_submission(renter.node)).id)


def leases(owner: Started) -> list[Lease]:
    return sorted(owner.node.books.leases(), key=lambda lease: lease.request.start_ms)


async def test_a_price_holds_for_the_next_auction_and_for_no_lease_before(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    # M8
    owner, renter = await party.add(ask=300_000), await party.add(ask=None)
    await trio.sleep(3)
    job = renter.node.jobs.submit(make_submission(renter.node)).id
    driver = renter.node.jobs.driver(job)
    while driver.file.state != "running":
        await driver.changed.wait()
    views(owner.node).set_ask(AskChange(micro_per_gpu_hour=200_000, money="TEST"))
    await trio.sleep(1.1)
    assert renter.asks() == [200_000]
    assert (await ended(renter, job)).state == "done"
    assert (await runs(renter)).state == "done"
    assert [each.request.micro_per_gpu_hour for each in leases(owner)] == [300_000, 200_000]


async def test_what_was_set_is_kept_and_shown_until_it_is_reset(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    # M8
    renter = await party.add(ask=None)
    owner = await party.add(ask=300_000)
    await trio.sleep(2)
    views(owner.node).set_ask(AskChange(micro_per_gpu_hour=200_000, money="TEST"))
    views(owner.node).set_ask(AskChange(floor_micro=90_000, money="TEST", tier="bronze"))
    await stop(owner)
    again = await party.start(party.revive(owner.node))
    await trio.sleep(3)
    assert renter.asks() == [200_000]
    shown = views(again.node).ask()
    assert (shown.origin, shown.micro_per_gpu_hour) == ("ask set", 200_000)
    assert [(item.tier, item.ask_micro, item.floor_micro) for item in shown.items] == [
        ("silver", 200_000, 0),
        ("bronze", 100_000, 90_000),
    ]
    views(again.node).reset_ask()
    await trio.sleep(2)
    assert renter.asks() == [300_000]
    assert views(again.node).ask().origin == "config.toml"


async def test_a_market_price_follows_its_rivals(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    for ask in (300_000, 320_000):
        await party.add(ask=ask)
    mine = await party.start(
        party.build(
            ask=500_000,
            choose=priced(strategy="market-p50", floor=Money(Micros(310_000), "TEST")),
        )
    )
    await trio.sleep(30)
    [silver, _] = views(mine.node).ask().items
    assert (silver.ask_micro, silver.rivals) == (500_000, 2)
    assert "fewer than 3" in silver.why
    await party.add(ask=340_000)
    await trio.sleep(30)
    [silver, bronze] = views(mine.node).ask().items
    assert (silver.ask_micro, silver.floor_micro, silver.rivals) == (320_000, 310_000, 3)
    assert (bronze.ask_micro, bronze.floor_micro) == (160_000, 155_000)
    assert 320_000 in mine.asks()


async def test_a_node_asks_in_the_money_of_its_owner(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    renter = await party.add(ask=None)
    owner = await party.start(
        party.build(ask=1, choose=priced(ask=Money(Micros(250_000_000), "INR")))
    )
    await trio.sleep(3)
    [offer] = renter.node.market.offers()
    assert offer.advert.money == "INR"
    file = await runs(renter)
    assert file.state == "failed"
    assert "1 money" in str(file.why)
    with pytest.raises(LocalFault, match="asks in INR"):
        views(owner.node).set_ask(AskChange(micro_per_gpu_hour=1, money="TEST"))


async def test_a_node_without_a_price_gets_one_in_any_money(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    node = party.build(ask=1, choose=priced(ask=None))
    assert views(node).ask().micro_per_gpu_hour is None
    views(node).set_ask(AskChange(micro_per_gpu_hour=60_000_000, money="INR"))
    assert (node.provider.posting.ask, node.provider.posting.money) == (60_000_000, "INR")
    views(node).reset_ask()
    assert (node.provider.posting.ask, node.provider.posting.money) == (None, "TEST")


async def test_what_cannot_be_asked_is_refused_with_a_reason(party: Party) -> None:
    node = party.build(ask=300_000)
    for change in (
        AskChange(micro_per_gpu_hour=-1, money="TEST"),
        AskChange(micro_per_gpu_hour=2**63, money="TEST"),
        AskChange(strategy="market-p0"),
        AskChange(strategy="market-p100"),
        AskChange(strategy="cost-plus"),
    ):
        with pytest.raises(LocalFault):
            views(node).set_ask(change)
    assert views(node).ask().origin == "config.toml"


async def test_a_window_with_a_floor_moves_the_price_while_it_is_open(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner, renter = await party.add(ask=300_000), await party.add(ask=None)
    await trio.sleep(2)
    for hours, floor in (("daily", None), ("fri 08:01-08:03", 700_000)):
        order = WindowOrder(hours=hours, zone="UTC", floor_micro=floor, money="TEST")
        await views(owner.node).add_window(order)
    await trio.sleep(2)
    assert renter.asks() == [300_000]
    await trio.sleep(80)
    assert renter.asks() == [700_000]


def told(ask: int, rfq_told: int | None) -> str:
    answer = quoted(
        make.rfq(), by=posting(ask=Micros(ask)), told=None if rfq_told is None else Micros(rfq_told)
    )
    return answer.reason if isinstance(answer, No) else str(answer.micro_per_gpu_hour)


def test_no_bid_exceeds_the_ask_that_the_renter_has_seen() -> None:
    assert told(390_000, None) == "390000"
    assert told(390_000, 390_000) == "390000"
    assert told(390_000, 400_000) == "390000"
    assert told(390_000, 389_999) == "PRICE_MOVED"


def test_a_lease_that_runs_into_a_dearer_window_is_no_lease_at_the_price_of_now() -> None:
    start = at("2026-12-01T20:00+01:00")
    table = [window("22:00-06:00 daily", floor_micro=Micros(500_000)), window("daily")]
    by = posting(timetable=Timetable(tuple(table)))

    def answer(hours: int) -> Bid | No:
        rfq = make.rfq(start_ms=start, end_ms=start + hours * HOUR)
        return quoted(rfq, by=by, now=Millis(start - 60_000))

    assert isinstance(answer(2), Bid)
    late = answer(3)
    assert isinstance(late, No)
    assert late.reason == "PRICE_MOVED"
    assert "0.50 TEST" in late.detail


async def test_a_price_for_one_tier_alone_is_refused_and_harms_nothing(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner = await party.start(
        party.build(ask=1, choose=priced(ask=None, bronze_ask=Money(Micros(150_000), "TEST")))
    )
    await trio.sleep(3)
    with pytest.raises(LocalFault, match="without a price for silver"):
        views(owner.node).set_ask(AskChange(tier="gold", micro_per_gpu_hour=400_000, money="TEST"))
    assert owner.node.provider.posting.ask is None
