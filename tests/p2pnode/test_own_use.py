"""A GPU that its owner uses is kept from strangers, and they are told."""

import os
import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import trio

from p2pnode.api.owner_documents import UseOrder
from p2pnode.execution.fake_engine import Script
from p2pnode.execution.gpu import SimulatedProbe
from p2pnode.execution.whose import is_ours
from p2pnode.gpus import Gpu, GpuUse
from p2pnode.identity import Identity
from p2pnode.matching.detector import Bounds, Detector
from p2pnode.network.memory_transport import MemoryHub
from p2pnode.own_use import WHY
from p2pnode.owner_views import OwnerViews
from p2pnode.ports import Ports
from p2pnode.status import offered
from protocol.errors import Unavailable
from protocol.units import Millis, MillisSpan
from tests.make_job import make_limits, make_submission
from tests.make_node import Party, Started, ended, stop

UNIT = bytes(16)
BOUNDS = Bounds(load_ppm=200_000, after_ms=MillisSpan(10_000), idle_ms=MillisSpan(60_000))


def seen(*steps: tuple[int, int]) -> list[bool]:
    """What the detector says after each (seconds later, load in percent)."""
    detector, now, found = Detector(BOUNDS), 0, []
    for after, percent in steps:
        now += after * 1_000
        found.append(detector.note(UNIT, percent * 10_000, Millis(now)))
    return found


def test_load_must_stay_above_the_bound_for_a_while() -> None:
    # M12
    assert seen((0, 21), (9, 21), (1, 21)) == [False, False, True]
    assert seen((0, 20), (9, 20), (9, 20)) == [False, False, False]
    assert seen((0, 21), (9, 21), (0, 20), (1, 21), (9, 21), (1, 21)) == [False] * 5 + [True]


def test_use_is_over_only_after_a_longer_while_below_half_of_it() -> None:
    # M5: neither a pause nor a short peak flaps.
    start = ((0, 90), (10, 90))
    assert seen(*start, (5, 0), (59, 0), (1, 0)) == [False, True, True, True, False]
    assert seen(*start, (5, 11), (59, 11), (99, 11))[2:] == [True, True, True]
    assert seen(*start, (5, 0), (59, 0), (0, 50), (1, 0), (59, 0), (1, 0))[2:] == [
        *[True] * 5,
        False,
    ]


@dataclass
class FakeProbe(SimulatedProbe):
    """The simulated GPUs, which are used as a test says."""

    inner: SimulatedProbe
    load_ppm: int = 0
    processes: tuple[tuple[int, int], ...] | None = field(default_factory=tuple)
    is_lost: bool = False
    unit: bytes = b""
    problems: tuple[str, ...] = ()

    async def read(self) -> tuple[Gpu, ...]:
        gpus = await self.inner.read()
        self.unit = gpus[0].unit
        return gpus

    async def use(self) -> tuple[GpuUse, ...]:
        await trio.lowlevel.checkpoint()
        if self.is_lost:
            raise Unavailable("NVML does not tell: GPU is lost")
        return (GpuUse(unit=self.unit, load_ppm=self.load_ppm, processes=self.processes),)


@pytest.fixture
def party(tmp_path: Path, nursery: trio.Nursery) -> Party:
    return Party(tmp_path, nursery, MemoryHub())


async def owner_of(party: Party, ask: int, *, lasts_ms: int = 5_000) -> tuple[Started, FakeProbe]:
    """An owner whose jobs last so long, and what it sees of its GPU."""
    probes: list[FakeProbe] = []

    def wrap(ports: Ports, _identity: Identity) -> Ports:
        assert isinstance(ports.probe, SimulatedProbe)
        probes.append(FakeProbe(inner=ports.probe))
        return replace(ports, probe=probes[0])

    node = party.build(
        ask=ask, wrap=wrap, script=lambda _run: Script(lasts_ms=MillisSpan(lasts_ms))
    )
    return await party.start(node), probes[0]


def free(renter: Started) -> list[int]:
    return [offer.advert.free for offer in renter.node.market.offers()]


def views(owner: Started) -> OwnerViews:
    return OwnerViews(owner.node, lambda: offered(owner.node))


async def test_own_load_takes_a_gpu_out_of_the_offer_and_gives_it_back(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    # M12
    renter = await party.add(ask=None)
    owner, probe = await owner_of(party, 300_000)
    await trio.sleep(3)
    assert free(renter) == [1]
    probe.load_ppm = 210_000
    await trio.sleep(9)
    assert free(renter) == [1]
    await trio.sleep(9)
    assert free(renter) == [0]
    shown = views(owner).ask()
    assert (shown.kept, shown.own_use[0].load_ppm) == (1, 210_000)
    job = renter.node.jobs.submit(make_submission(renter.node))
    assert (await ended(renter, job.id)).state == "failed"
    probe.load_ppm = 0
    await trio.sleep(80)
    assert free(renter) == [1]


async def test_what_is_seen_may_be_overruled_both_ways_and_for_good(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    # M5
    renter = await party.add(ask=None)
    owner, probe = await owner_of(party, 300_000)
    probe.load_ppm = 1_000_000
    await trio.sleep(20)
    assert free(renter) == [0]
    views(owner).set_use(UseOrder(mode="never"))
    await trio.sleep(2)
    assert free(renter) == [1]
    probe.load_ppm = 0
    views(owner).set_use(UseOrder(mode="now"))
    await trio.sleep(2)
    assert free(renter) == [0]
    await stop(owner)
    again = await party.start(party.revive(owner.node))
    await trio.sleep(3)
    assert (again.node.use.mode, free(renter)) == ("now", [0])


async def test_a_probe_that_tells_nothing_changes_nothing(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    renter = await party.add(ask=None)
    _, probe = await owner_of(party, 300_000)
    probe.load_ppm = 1_000_000
    await trio.sleep(20)
    probe.is_lost = True
    await trio.sleep(120)
    assert free(renter) == [0]


async def working(renter: Started, tier: str) -> str:
    wanted = {"tier": tier, "notice_ms": 5_000, "limits": make_limits(time_ms=120_000)}
    job = renter.node.jobs.submit(make_submission(renter.node, **wanted)).id
    driver = renter.node.jobs.driver(job)
    while driver.file.state != "running":
        await driver.changed.wait()
    return job


@pytest.mark.parametrize(("tier", "is_taken_back"), [("bronze", True), ("silver", False)])
async def test_bronze_yields_to_its_owner_and_silver_runs_its_time(
    party: Party, autojump_clock: trio.abc.Clock, tier: str, is_taken_back: bool
) -> None:
    # M12: renters' jobs are no use of the owner's, so that only another process counts.
    renter = await party.add(ask=None)
    owner, probe = await owner_of(party, 300_000, lasts_ms=100_000)
    node = owner.node
    await trio.sleep(3)
    await working(renter, tier)
    probe.load_ppm, probe.processes = 1_000_000, ((os.getpid(), 1_000_000),)
    await trio.sleep(20)
    assert [lease.reason for lease in node.books.leases()] == [None]
    probe.processes = ((os.getpid(), 700_000), (1, 300_000))
    await trio.sleep(20)
    [lease] = node.books.leases()
    assert (lease.reason == "preempted") is is_taken_back
    if is_taken_back:
        assert WHY in (node.ports.cabinet.get(f"leases/{lease.id.hex()}/notice") or b"").decode()


def test_a_process_is_ours_by_its_descent_or_its_container(tmp_path: Path) -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        assert is_ours(os.getpid())
        assert is_ours(child.pid)
        assert not is_ours(1)
    finally:
        child.kill()
        child.wait()
    for pid, group in ((7, "0::/system.slice/docker-3f.scope\n"), (8, "0::/user.slice\n")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text(group)
        (tmp_path / str(pid) / "status").write_text("Name:\tx\nPPid:\t1\n")
    assert [is_ours(pid, tmp_path) for pid in (7, 8, 9)] == [True, False, True]
