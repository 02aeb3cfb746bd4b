"""What is offered follows what the driver tells, while the node runs. See the ids of complaints."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import trio

from p2pnode.execution.fake_engine import FakeEngine, Script
from p2pnode.execution.workplace import LEFT_MAX
from p2pnode.gpus import Gpu, GpuUse, SimulatedGpus
from p2pnode.identity import Identity
from p2pnode.inventory import ENDING_S
from p2pnode.matching.search import Wish, search
from p2pnode.network.memory_transport import MemoryHub
from p2pnode.ports import Ports
from p2pnode.status import alerts_of
from p2pnode.why_views import why_no_match
from protocol.auction import Need
from protocol.errors import Unavailable
from protocol.signing import digest
from protocol.units import Mebibytes, MillisSpan
from tests.make_job import make_limits, make_submission
from tests.make_node import Party, Started, ended, stop

WHOLE = 24_564


@dataclass
class Driver:
    """See GpuProbe: two real GPUs that a test fills, loses and breaks."""

    vram: list[int] = field(default_factory=lambda: [WHOLE, WHOLE])
    """What others leave of each; 0 for one that is lost."""
    beside: dict[int, int] = field(default_factory=dict)
    """What others than our jobs leave of some, of which all together may leave nothing."""
    is_hung: bool = False
    problems: tuple[str, ...] = ()

    async def read(self) -> tuple[Gpu, ...]:
        await trio.lowlevel.checkpoint()
        if self.is_hung:
            raise Unavailable("NVML gave no answer within 10 seconds")
        self.problems = tuple(f"GPU {index}: GPU is lost" for index, vram in self._lost())
        return tuple(
            Gpu(
                unit=digest("nvml-unit", bytes([index]))[:16],
                model="RTX 4090",
                vram=Mebibytes(vram),
                source="nvml",
                beside=Mebibytes(self.beside[index]) if index in self.beside else None,
                device=f"GPU-{index}",
            )
            for index, vram in enumerate(self.vram)
            if (index, vram) not in self._lost()
        )

    def _lost(self) -> list[tuple[int, int]]:
        gpus = enumerate(self.vram)
        return [(index, vram) for index, vram in gpus if not vram and index not in self.beside]

    async def use(self) -> tuple[GpuUse, ...]:
        await trio.lowlevel.checkpoint()
        return ()


@pytest.fixture
def party(tmp_path: Path, nursery: trio.Nursery) -> Party:
    return Party(tmp_path, nursery, MemoryHub())


async def owner_with(party: Party, driver: Driver, *, lasts_ms: int = 5_000) -> Started:
    def wrap(ports: Ports, _identity: Identity) -> Ports:
        return replace(ports, probe=driver)

    def script(_run: object) -> Script:
        return Script(lasts_ms=MillisSpan(lasts_ms))

    return await party.start(party.build(ask=300_000, wrap=wrap, script=script))


def offered(seer: Started) -> list[tuple[int, int, int]]:
    """(memory, units, free) of each offer that the node sees."""
    adverts = [offer.advert for offer in seer.node.market.offers()]
    return sorted((each.vram_mib, each.units, each.free) for each in adverts)


def fits(seer: Started, vram: int) -> int:
    return len(search(seer.node.market.offers(), Wish(vram_min=Mebibytes(vram))).fits)


async def test_b11_memory_that_others_take_leaves_the_offer_within_five_seconds(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    renter, driver = await party.add(ask=None), Driver()
    await owner_with(party, driver)
    await trio.sleep(3)
    assert offered(renter) == [(WHOLE, 2, 2)]
    driver.vram = [9_728, WHOLE]
    await trio.sleep(5)
    assert offered(renter) == [(9_728, 1, 1), (WHOLE, 1, 1)]
    driver.vram = [9_728, 9_728]
    await trio.sleep(5)
    assert (offered(renter), fits(renter, 20_000)) == ([(9_728, 2, 2)], 0)
    small, large = (
        renter.node.jobs.submit(
            make_submission(renter.node, need=Need(gpus=1, vram_mib_min=vram))
        ).id
        for vram in (8_000, 20_000)
    )
    assert (await ended(renter, small)).state == "done"
    assert (await ended(renter, large)).state == "failed"
    told = await why_no_match(renter.node, large)
    assert [each.failed for each in told.funnel if each.failed] == [{"vram": 1}]
    assert [change.options for change in told.changes] == [("--vram 9728MiB",)]
    driver.vram = [WHOLE, WHOLE]
    # What is read shortly after a job may still be of the job.
    await trio.sleep(ENDING_S + 5)
    assert offered(renter) == [(WHOLE, 2, 2)]


async def test_what_a_job_of_ours_uses_does_not_shrink_the_offer(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    renter, driver = await party.add(ask=None), Driver(vram=[WHOLE])
    await owner_with(party, driver, lasts_ms=30_000)
    await trio.sleep(3)
    job = renter.node.jobs.submit(make_submission(renter.node))
    await trio.sleep(5)
    driver.vram = [1_024]
    await trio.sleep(10)
    assert offered(renter) == [(WHOLE, 1, 0)]
    driver.vram = [WHOLE]
    assert (await ended(renter, job.id)).state == "done"


async def test_b11_a_job_of_ours_that_fills_its_gpu_hides_neither_it_nor_others_growth(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    renter, driver = await party.add(ask=None), Driver(vram=[WHOLE])
    owner = await owner_with(party, driver, lasts_ms=60_000)
    await trio.sleep(3)
    limits = make_limits(time_ms=600_000)
    job = renter.node.jobs.submit(make_submission(renter.node, limits=limits))
    await trio.sleep(5)
    driver.vram, driver.beside = [0], {0: WHOLE}
    await trio.sleep(10)
    assert (offered(renter), alerts_of(owner.node)) == ([(WHOLE, 1, 0)], ())
    # Also where nothing is remembered of before.
    await stop(owner)
    again = party.revive(owner.node, wrap=lambda ports, _identity: replace(ports, probe=driver))
    owner = await party.start(again)
    await trio.sleep(10)
    assert (offered(renter), alerts_of(owner.node)) == ([(WHOLE, 1, 0)], ())
    driver.beside = {0: 9_728}
    await trio.sleep(5)
    assert offered(renter) == [(9_728, 1, 0)]
    assert (await ended(renter, job.id)).state == "done"
    await trio.sleep(30)
    # No lease is there now: what holds the memory is not ours, whatever it may look like.
    assert offered(renter) == []
    assert alerts_of(owner.node) == ("GPU_UNHEALTHY: GPU-0: other programs use all its memory",)
    driver.vram, driver.beside = [9_728], {}
    await trio.sleep(5)
    assert (offered(renter), alerts_of(owner.node)) == ([(9_728, 1, 1)], ())


async def test_b11_small_ups_and_downs_of_others_are_no_news(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    renter, driver = await party.add(ask=None), Driver(vram=[WHOLE])
    owner = await owner_with(party, driver)
    await trio.sleep(3)
    shown, before = [], owner.node.provider._seq
    for minute in range(100):
        for left in (9_728, 9_472, 10_240):
            driver.vram = [left]
            await trio.sleep(2)
            shown += [vram for vram, _, _ in offered(renter)] if minute else []
    assert set(shown) == {9_472}
    beats = 600 / (owner.node.provider.posting.heartbeat_s / 2)
    assert owner.node.provider._seq - before <= beats + 4
    driver.vram = [9_728]
    await trio.sleep(50)
    assert offered(renter) == [(9_472, 1, 1)]
    await trio.sleep(20)
    assert offered(renter) == [(9_728, 1, 1)]


async def test_b13_a_lost_gpu_leaves_the_offer_alone_and_the_owner_is_told(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    renter, driver = await party.add(ask=None), Driver()
    owner = await owner_with(party, driver)
    await trio.sleep(3)
    driver.vram = [WHOLE, 0]
    await trio.sleep(5)
    assert offered(renter) == [(WHOLE, 1, 1)]
    assert alerts_of(owner.node) == ("GPU_UNHEALTHY: GPU 1: GPU is lost",)
    driver.vram = [0, 0]
    await trio.sleep(5)
    assert offered(renter) == []
    driver.vram = [WHOLE, WHOLE]
    await trio.sleep(5)
    assert (offered(renter), alerts_of(owner.node)) == ([(WHOLE, 2, 2)], ())


async def test_a_driver_that_answers_later_than_the_node_starts_is_waited_for(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    renter, driver = await party.add(ask=None), Driver(is_hung=True)
    owner = await owner_with(party, driver)
    await trio.sleep(5)
    assert offered(renter) == []
    assert alerts_of(owner.node) == ("GPU_UNHEALTHY: NVML gave no answer within 10 seconds",)
    driver.is_hung = False
    await trio.sleep(5)
    assert offered(renter) == [(WHOLE, 2, 2)]
    driver.is_hung = True
    await trio.sleep(5)
    assert offered(renter) == []


async def test_memory_that_moves_makes_no_more_groups_than_there_are_gpus(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    renter, driver = await party.add(ask=None), Driver()
    await owner_with(party, driver)
    groups: set[bytes] = set()
    for turn in range(40):
        driver.vram = [1_024 + 256 * (turn * 7 % 80), 1_024 + 256 * (turn * 11 % 80)]
        await trio.sleep(4)
        groups |= {offer.head[0] for offer in renter.node.market.offers()}
    assert len(groups) == 2


async def test_a_gpu_is_written_down_once(party: Party, autojump_clock: trio.abc.Clock) -> None:
    driver = Driver()
    owner = await owner_with(party, driver)
    await trio.sleep(3)
    before = owner.node.books.height()
    for vram in ([9_728, WHOLE], [WHOLE, 0], [WHOLE, WHOLE]):
        driver.vram = vram
        await trio.sleep(5)
    assert owner.node.books.height() == before


@pytest.mark.parametrize("is_away", [False, True])
async def test_c1_a_wiped_engine_ends_the_lease_with_a_reason_and_frees_the_gpu(
    party: Party, autojump_clock: trio.abc.Clock, *, is_away: bool
) -> None:
    renter, other = await party.add(ask=None), await party.add(ask=None)
    owner = await owner_with(party, Driver(vram=[WHOLE]), lasts_ms=3_000_000)
    await trio.sleep(3)
    limits = make_limits(time_ms=3_600_000)
    job = renter.node.jobs.submit(make_submission(renter.node, limits=limits))
    await trio.sleep(70)
    assert (renter.node.jobs.driver(job.id).file.state, offered(other)) == (
        "running",
        [(WHOLE, 1, 0)],
    )
    if is_away:
        await stop(renter)
    engine = owner.node.ports.engine
    assert isinstance(engine, FakeEngine)
    engine.lose_all()
    await trio.sleep(30)
    assert offered(other) == [(WHOLE, 1, 1)]
    [lease] = owner.node.books.leases()
    assert lease.ended_ms <= owner.node.ports.clock.now()
    assert lease.reason == ("unpaid" if is_away else "consent")
    renter = await party.start(party.revive(renter.node)) if is_away else renter
    # It moves, finds nobody else, and this owner is avoided.
    file = await ended(renter, job.id)
    assert (file.attempt, file.state) == (2, "failed")


async def test_of_a_renter_that_stays_away_only_the_last_jobs_are_kept(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    gpus = SimulatedGpus(model="RTX 4090", vram=Mebibytes(WHOLE), count=LEFT_MAX + 2)
    await party.add(ask=None)
    owner = await party.start(
        party.build(ask=300_000, gpu=gpus, script=lambda _run: Script(lasts_ms=MillisSpan(60_000)))
    )
    renter = await party.add(ask=None)
    await trio.sleep(3)
    limits = make_limits(time_ms=86_400_000)
    for _ in range(gpus.count):
        renter.node.jobs.submit(make_submission(renter.node, limits=limits))
    await trio.sleep(30)
    await stop(renter)
    leases = owner.node.books.leases()
    assert len(leases) == gpus.count
    await trio.sleep(3_000)
    assert sum(owner.node.workplace.worker(each.id) is not None for each in leases) == gpus.count
    await trio.sleep(2_000)
    assert sum(owner.node.workplace.worker(each.id) is not None for each in leases) == LEFT_MAX


async def test_what_a_job_left_waits_for_a_renter_that_comes_hours_after_its_gpu_is_free(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    renter, other = await party.add(ask=None), await party.add(ask=None)
    await owner_with(party, Driver(vram=[WHOLE]), lasts_ms=60_000)
    await trio.sleep(3)
    limits = make_limits(time_ms=86_400_000)
    job = renter.node.jobs.submit(make_submission(renter.node, limits=limits))
    await trio.sleep(30)
    await stop(renter)
    await trio.sleep(60)
    assert offered(other) == [(WHOLE, 1, 1)]
    await trio.sleep(4 * 3_600)
    again = await party.start(party.revive(renter.node))
    file = await ended(again, job.id)
    assert (file.state, file.why) == ("done", "")
    assert again.node.ports.cabinet.get(f"jobs/{job.id}/receipt")
