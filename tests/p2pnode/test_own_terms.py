"""What an owner says to its running node: at once, for new leases, across restarts."""

from pathlib import Path

import pytest
import trio
from msgspec import UNSET
from msgspec.structs import replace

from p2pnode.api.owner_documents import PauseOrder, WindowOrder, WindowTestOrder
from p2pnode.config import Availability
from p2pnode.jobs.jobfile import JobFile
from p2pnode.network.memory_transport import MemoryHub
from p2pnode.node import Node
from p2pnode.owner_views import OwnerViews
from p2pnode.quantities import Money
from p2pnode.status import offered
from protocol.errors import LocalFault
from protocol.units import Micros, MillisSpan
from tests.make_job import make_submission
from tests.make_node import EPOCH, Party, Started, ended, stop
from tests.make_windows import window

HOUR = 3_600_000
CLOSED_NOW = "sat 03:00-04:00"
"""EPOCH is on a Friday, at eight in the morning."""
OPEN_NOW = "fri 08:00-10:00"


@pytest.fixture
def party(tmp_path: Path, nursery: trio.Nursery) -> Party:
    return Party(tmp_path, nursery, MemoryHub())


def views(node: Node) -> OwnerViews:
    return OwnerViews(node, lambda: offered(node))


async def runs(renter: Started) -> JobFile:
    return await ended(renter, renter.node.jobs.submit(make_submission(renter.node)).id)


async def test_a_paused_node_is_withdrawn_and_bids_for_nothing(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    # M4, M11
    owner, renter = await party.add(ask=300_000), await party.add(ask=None)
    await trio.sleep(3)
    assert renter.asks() == [300_000]
    owner.node.terms.pause_for(None)
    await trio.sleep(2)
    assert renter.asks() == []
    await trio.sleep(600)
    assert renter.asks() == []
    owner.node.terms.resume()
    await trio.sleep(2)
    assert renter.asks() == [300_000]


async def test_a_lease_that_runs_is_not_touched_by_a_pause_or_a_window(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    # M8
    owner, renter = await party.add(ask=300_000), await party.add(ask=None)
    await trio.sleep(3)
    job = renter.node.jobs.submit(make_submission(renter.node)).id
    driver = renter.node.jobs.driver(job)
    while driver.file.state != "running":
        await driver.changed.wait()
    owner.node.terms.pause_for(None)
    await owner.node.terms.add_window(window(CLOSED_NOW, zone="UTC"))
    assert (await ended(renter, job)).state == "done"


async def test_a_pause_holds_after_a_death_and_a_restart(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    # M11
    renter = await party.add(ask=None)
    owner = await party.add(ask=300_000)
    await trio.sleep(3)
    owner.node.terms.pause_for(None)
    await stop(owner)
    again = await party.start(party.revive(owner.node))
    await trio.sleep(120)
    assert renter.asks() == []
    assert views(again.node).resume().paused is False
    await trio.sleep(2)
    assert renter.asks() == [300_000]


async def test_a_pause_with_an_end_ends_then_even_if_the_node_was_down(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    renter = await party.add(ask=None)
    owner = await party.add(ask=300_000)
    await trio.sleep(3)
    paused = views(owner.node).pause(PauseOrder(for_ms=100_000))
    assert paused.until_ms is not None
    await trio.sleep(99)
    assert renter.asks() == []
    await trio.sleep(3)
    assert renter.asks() == [300_000]
    owner.node.terms.pause_for(MillisSpan(100_000))
    await stop(owner)
    await trio.sleep(200)
    again = await party.start(party.revive(owner.node))
    await trio.sleep(3)
    assert again.node.terms.pause is None
    assert renter.asks() == [300_000]
    with pytest.raises(LocalFault):
        views(again.node).pause(PauseOrder(for_ms=0))


async def test_a_window_closes_the_node_at_once_and_is_kept(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    # M6
    renter = await party.add(ask=None)
    owner = await party.add(ask=300_000)
    await trio.sleep(3)
    added = await views(owner.node).add_window(WindowOrder(hours=CLOSED_NOW, zone="UTC"))
    await trio.sleep(2)
    [offer] = renter.node.market.offers()
    assert offer.advert.calendar is not UNSET
    file = await runs(renter)
    assert file.state == "failed"
    assert "closed" in str(file.why)
    await stop(owner)
    again = await party.start(party.revive(owner.node))
    await trio.sleep(3)
    assert [each.name for each in again.node.terms.windows] == [added.window.name]
    views(again.node).remove_window(added.window.name)
    await trio.sleep(2)
    assert (await runs(renter)).state == "done"
    assert (
        await views(again.node).add_window(WindowOrder(hours=OPEN_NOW, zone="UTC"))
    ).window.name == "w2"
    await trio.sleep(2)
    [offer] = renter.node.market.offers()
    assert offer.advert.open_until_ms == EPOCH + 2 * HOUR
    assert (await runs(renter)).state == "done"


async def test_windows_of_config_stay_in_config(party: Party) -> None:
    mine = Availability(hours=OPEN_NOW, tz="UTC", floor=Money(Micros(9), "TEST"))
    node = party.build(ask=300_000, choose=lambda config: replace(config, availability=(mine,)))
    [item] = views(node).windows().items
    assert (item.name, item.origin, item.floor_micro) == ("c1", "config.toml", 9)
    for name, said in (("c1", "from config.toml"), ("w1", "No window")):
        with pytest.raises(LocalFault, match=said):
            node.terms.remove_window(name)


async def test_a_calendar_file_is_read_at_the_start(
    party: Party, tmp_path: Path, autojump_clock: trio.abc.Clock
) -> None:
    file = tmp_path / "rig.ics"
    exporting = party.build(ask=1)
    await views(exporting).add_window(WindowOrder(hours=OPEN_NOW, zone="Asia/Tokyo"))
    file.write_text((await views(exporting).export_windows()).events)
    mine = Availability(file=str(file))
    node = party.build(ask=1, choose=lambda config: replace(config, availability=(mine,)))
    order = WindowTestOrder(span_ms=30 * 24 * HOUR)
    assert await views(node).test_windows(order) == await views(exporting).test_windows(order)
    file.unlink()
    with pytest.raises(LocalFault, match="cannot be read"):
        party.build(ask=1, choose=lambda config: replace(config, availability=(mine,)))


async def test_what_is_tried_is_not_kept(party: Party, autojump_clock: trio.abc.Clock) -> None:
    node = party.build(ask=300_000)
    order = WindowTestOrder(
        span_ms=48 * HOUR, window=WindowOrder(hours="22:00-06:00", zone="Europe/Berlin")
    )
    found = await views(node).test_windows(order)
    assert [each.end_ms - each.start_ms for each in found.items] == [8 * HOUR, 8 * HOUR]
    assert views(node).windows().items == ()
    assert views(node).windows().open_now


async def test_what_no_window_can_be_is_refused_with_a_reason(party: Party) -> None:
    node = party.build(ask=300_000)
    wrongs = (
        WindowOrder(zone="UTC"),
        WindowOrder(hours="daily", events="x", zone="UTC"),
        WindowOrder(hours="daily", zone="Mars/Olympus"),
        WindowOrder(hours="sometimes", zone="UTC"),
        WindowOrder(hours="daily", zone="UTC", excepted=("never",)),
        WindowOrder(events="nonsense", zone="UTC"),
        WindowOrder(hours="daily", zone="UTC", floor_micro=1, money="EUR"),
    )
    for order in wrongs:
        with pytest.raises(LocalFault):
            await views(node).add_window(order)
    assert node.terms.windows == ()
