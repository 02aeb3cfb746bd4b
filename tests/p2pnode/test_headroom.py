"""A card that a model fills runs out of memory: what is planned to stay free, and what was used."""

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import click
import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.api.wanted_documents import Constraints
from p2pnode.cli.job import vram_text
from p2pnode.cli.wanted import constraints_of, wanted_options
from p2pnode.config import Renting
from p2pnode.execution.fake_engine import Script
from p2pnode.execution.gpu import SimulatedProbe
from p2pnode.gpus import Gpu, GpuUse
from p2pnode.identity import Identity
from p2pnode.job_views import vram_document
from p2pnode.jobs.jobfile import JobFile
from p2pnode.matching.headroom import HEADROOM_PPM_MAX, VramPlan
from p2pnode.network.memory_transport import MemoryHub
from p2pnode.node import Node
from p2pnode.ports import Ports
from p2pnode.receipt_check import outcome_document
from p2pnode.wanted import choice_of, need_of
from p2pnode.why_views import why_no_match
from protocol.errors import LocalFault
from protocol.tick import Outcome
from protocol.units import Mebibytes, MillisSpan
from protocol.wire import unpack
from tests.make_job import make_limits, make_submission
from tests.make_node import Party, Started, ended

GIB = 1_024


@click.command()
@wanted_options
def typed(**wanted: object) -> dict[str, object]:
    """Only the options that say what is wanted."""
    return wanted


def constraints(*words: str) -> Constraints:
    given = typed.main(list(words), standalone_mode=False)
    return msgspec.convert(constraints_of(given), Constraints)


def card(*words: str) -> int:
    return need_of(constraints(*words)).vram_mib_min


def test_b12_a_fifth_of_the_card_stays_free_by_default() -> None:
    assert card("--model-vram", "16GiB") == 20 * GIB
    assert card("--model-vram", "16GiB", "--headroom", "0%") == 16 * GIB
    assert card("--model-vram", "16GiB", "--headroom", "0.5") == 32 * GIB
    assert card("--vram", "16GiB") == 16 * GIB


@pytest.mark.parametrize(
    "words",
    [
        ("--vram", "16GiB", "--model-vram", "16GiB"),
        ("--vram", "16GiB", "--headroom", "10%"),
        ("--model-vram", "16GiB", "--headroom", "95%"),
        ("--model-vram", "16GiB", "--headroom", "much"),
        ("--model-vram", "16GiB", "--headroom", "120%"),
    ],
)
def test_what_cannot_be_planned_is_refused_with_a_cure(words: tuple[str, ...]) -> None:
    with pytest.raises(LocalFault) as refused:
        need_of(constraints(*words))
    assert refused.value.cure


@given(
    model=st.integers(1, 2**20),
    headroom=st.integers(0, HEADROOM_PPM_MAX // 10_000),
    has=st.integers(1, 2**21),
)
def test_b12_the_card_has_the_headroom_and_a_smaller_one_has_not(
    model: int, headroom: int, has: int
) -> None:
    plan = VramPlan(model_mib=model, headroom_ppm=headroom * 10_000)
    asked = plan.card_mib()
    assert (asked - model) * 100 >= headroom * asked
    assert (asked - 1 - model) * 100 < headroom * (asked - 1)
    # What `why` says to type lets a card of any size pass, if it can hold a model at all.
    words = plan.options_for(Mebibytes(has)).split()
    if "--headroom" not in words:
        words += ["--headroom", f"{headroom}%"]
    if has > model or has * (100 - headroom) >= 100:
        assert card(*words) <= has


@dataclass
class Meter(SimulatedProbe):
    """The simulated GPUs, of whose memory processes hold what a test says."""

    inner: SimulatedProbe
    holds: list[tuple[int, Mebibytes]] | None = field(default_factory=list)
    problems: tuple[str, ...] = ()

    async def read(self) -> tuple[Gpu, ...]:
        return await self.inner.read()

    async def use(self) -> tuple[GpuUse, ...]:
        memory = None if self.holds is None else tuple(self.holds)
        return tuple(
            GpuUse(unit=gpu.unit, load_ppm=0, processes=(), memory=memory)
            for gpu in await self.inner.read()
        )


@pytest.fixture
def party(tmp_path: Path, nursery: trio.Nursery) -> Party:
    return Party(tmp_path, nursery, MemoryHub())


async def owner_of(party: Party) -> tuple[Started, Meter]:
    meters: list[Meter] = []

    def wrap(ports: Ports, _identity: Identity) -> Ports:
        assert isinstance(ports.probe, SimulatedProbe)
        meters.append(Meter(inner=ports.probe))
        return replace(ports, probe=meters[0])

    def script(_run: object) -> Script:
        return Script(lasts_ms=MillisSpan(30_000))

    return await party.start(party.build(ask=300_000, wrap=wrap, script=script)), meters[0]


def submit(node: Node, *words: str) -> JobFile:
    wanted = constraints(*words)
    return node.jobs.submit(
        make_submission(
            node,
            need=need_of(wanted),
            choice=choice_of(wanted, Renting(), "TEST"),
            limits=make_limits(time_ms=600_000),
        )
    )


async def test_b12_a_card_that_the_model_would_fill_is_not_taken_and_why_says_what_would_be(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    await owner_of(party)
    renter = await party.add(ask=None)
    await trio.sleep(5)
    tight = submit(renter.node, "--model-vram", "20GiB")
    assert (await ended(renter, tight.id)).state == "failed"
    told = await why_no_match(renter.node, tight.id)
    assert [(each.asked, each.failed) for each in told.funnel if each.failed] == [
        ("--model-vram 20480MiB --headroom 20%", {"vram": 1})
    ]
    (change,) = told.changes
    assert change.options == ("--model-vram 20480MiB --headroom 16%",)
    again = submit(renter.node, *change.options[0].split())
    assert (await ended(renter, again.id)).state == "done"
    larger = submit(renter.node, "--model-vram", "40GiB")
    assert (await ended(renter, larger.id)).state == "failed"
    (change,) = (await why_no_match(renter.node, larger.id)).changes
    smaller = submit(renter.node, *change.options[0].split())
    assert (await ended(renter, smaller.id)).state == "done"


def outcome_of(started: Started, file: JobFile) -> Outcome:
    assert isinstance(file.outcome, bytes)
    return unpack(file.outcome, started.node.net, Outcome).body


@pytest.mark.parametrize(
    ("holds", "peak", "is_over"),
    [(15_900, 15_900, False), (17_000, 17_000, True), (0, None, False)],
)
async def test_b12_the_measured_peak_stands_beside_the_plan(
    party: Party, autojump_clock: trio.abc.Clock, holds: int, peak: int | None, *, is_over: bool
) -> None:
    _, meter = await owner_of(party)
    renter = await party.add(ask=None)
    await trio.sleep(5)
    job = submit(renter.node, "--model-vram", "16GiB")
    await trio.sleep(10)
    # Of this process a run is a descendant, or its container's: it counts as ours. Init does not.
    meter.holds = [(1, Mebibytes(3_000)), (os.getpid(), Mebibytes(holds))]
    await trio.sleep(10)
    meter.holds = [(os.getpid(), Mebibytes(holds // 2))]
    file = await ended(renter, job.id)
    outcome = outcome_document(outcome_of(renter, file))
    assert outcome.vram_peak_mib == peak
    shown = vram_document(file, outcome)
    assert (shown.asked_mib, shown.planned_mib, shown.peak_mib, shown.is_over) == (
        20 * GIB,
        16 * GIB,
        peak,
        is_over,
    )
    words = vram_text({name: getattr(shown, name) for name in shown.__struct_fields__})
    assert words.endswith("more than planned") is is_over


async def test_a_driver_that_does_not_tell_who_holds_memory_leaves_the_peak_out(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    _, meter = await owner_of(party)
    meter.holds = None
    renter = await party.add(ask=None)
    await trio.sleep(5)
    file = await ended(renter, submit(renter.node, "--vram", "16GiB").id)
    shown = vram_document(file, outcome_document(outcome_of(renter, file)))
    assert (shown.asked_mib, shown.planned_mib, shown.peak_mib) == (16 * GIB, 16 * GIB, None)
