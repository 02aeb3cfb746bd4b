"""What Engine promises, as checks of an engine on which nothing runs yet.

A test makes the engine and the programs that it understands, and calls one check. The same checks
hold for real processes, for containers and for the fake.
"""

from collections.abc import Mapping
from typing import Protocol

import pytest
import trio

from p2pnode.execution.engine import Ending, Engine, LogPart, Run, RunId
from protocol.errors import LocalFault
from protocol.job import JobLimits
from protocol.units import MillisSpan

Argv = tuple[str, ...]
LONG_S = 600
PATIENCE_S = 20
SHORT_MS = MillisSpan(300)


class Programs(Protocol):
    """Command lines that do as they are named, for the engine under test."""

    def exits(self, code: int) -> Argv:
        """Return this at once."""

    def kills_itself(self) -> Argv:
        """Die by SIGKILL."""

    def says(self, text: str) -> Argv:
        """Write it once, then return 0."""

    def counts(self, lines: int) -> Argv:
        """Write the numbers from 1 on, seven digits and a line break each, then return 0."""

    def sleeps(self) -> Argv:
        """Go on for LONG_S; end at TERM."""

    def ignores_term(self) -> Argv:
        """Say "ready", go on for LONG_S, and ignore TERM."""

    def is_missing(self) -> Argv:
        """Not there."""

    def is_no_program(self) -> Argv:
        """A file that cannot be executed."""


def limits(
    *,
    time_ms: int = 60_000,
    memory_mib: int = 512,
    pids: int = 64,
    disk_mib: int = 64,
    log_bytes: int = 1 << 20,
) -> JobLimits:
    return JobLimits(
        time_ms=MillisSpan(time_ms),
        memory_mib=memory_mib,
        cpus_milli=1_000,
        pids=pids,
        disk_mib=disk_mib,
        log_bytes=log_bytes,
        output_bytes=1 << 20,
    )


def make_run(
    argv: Argv,
    *,
    number: int = 1,
    bounds: JobLimits | None = None,
    variables: Mapping[str, str] | None = None,
    devices: tuple[str, ...] = (),
) -> Run:
    return Run(
        id=RunId(f"{number:064x}"),
        argv=argv,
        variables=variables or {},
        devices=devices,
        limits=bounds or limits(),
    )


async def ending_of(engine: Engine, run: Run) -> Ending:
    """How the run ends, if it does so in reasonable time."""
    with trio.fail_after(PATIENCE_S):
        await engine.start(run)
        return await engine.wait(run.id)


async def whole_log(engine: Engine, run: RunId, *, size_max: int = 4_096) -> list[LogPart]:
    """All that is kept now, piece by piece."""
    parts: list[LogPart] = []
    offset = 0
    while (part := await engine.read_log(run, offset=offset, size_max=size_max)).data:
        assert part.offset >= offset
        assert len(part.data) <= size_max
        parts.append(part)
        offset = part.offset + len(part.data)
    return parts


async def text_of(engine: Engine, run: RunId) -> str:
    return b"".join(part.data for part in await whole_log(engine, run)).decode()


async def wait_said(engine: Engine, run: RunId, text: str) -> None:
    """Until the text is in the log."""
    with trio.fail_after(PATIENCE_S):
        while text not in await text_of(engine, run):  # noqa: ASYNC110 - logs call nobody
            await trio.sleep(0.02)


async def the_exit_code_is_passed_through(engine: Engine, programs: Programs) -> None:
    ending = await ending_of(engine, make_run(programs.exits(7)))
    assert (ending.cause, ending.exit_code, ending.signal) == ("exit", 7, None)
    assert ending.started_ms <= ending.ended_ms


async def a_signal_is_no_plain_exit(engine: Engine, programs: Programs) -> None:
    ending = await ending_of(engine, make_run(programs.kills_itself()))
    assert (ending.cause, ending.signal) == ("signal", 9) or (
        (ending.cause, ending.exit_code) == ("exit", 137)
    )


async def a_missing_program_ends_with_127(engine: Engine, programs: Programs) -> None:
    ending = await ending_of(engine, make_run(programs.is_missing()))
    assert (ending.cause, ending.exit_code) == ("exit", 127)


async def what_cannot_be_executed_ends_with_126(engine: Engine, programs: Programs) -> None:
    ending = await ending_of(engine, make_run(programs.is_no_program()))
    assert (ending.cause, ending.exit_code) == ("exit", 126)


async def the_time_limit_ends_a_run(engine: Engine, programs: Programs) -> None:
    ending = await ending_of(
        engine, make_run(programs.ignores_term(), bounds=limits(time_ms=SHORT_MS))
    )
    assert (ending.cause, ending.exit_code) == ("time", None)
    assert SHORT_MS <= ending.ended_ms - ending.started_ms < SHORT_MS + 5_000


async def what_is_written_is_in_the_log(engine: Engine, programs: Programs) -> None:
    run = make_run(programs.says("hello"))
    await ending_of(engine, run)
    assert await text_of(engine, run.id) == "hello\n"
    assert await engine.read_log(run.id, offset=4, size_max=1) == LogPart(offset=4, data=b"o")
    assert await engine.read_log(run.id, offset=99, size_max=9) == LogPart(offset=99, data=b"")


async def a_log_over_its_bound_keeps_beginning_and_end(engine: Engine, programs: Programs) -> None:
    bound = 8_000
    run = make_run(programs.counts(20_000), bounds=limits(log_bytes=bound))
    assert (await ending_of(engine, run)).exit_code == 0
    parts = await whole_log(engine, run.id, size_max=1_000)
    kept = sum(len(part.data) for part in parts)
    assert bound * 3 // 4 <= kept <= bound
    for part in parts:
        # What the offset says is where it is in all that was written.
        line = part.offset // 8 + 1
        start = -part.offset % 8
        whole = part.data[start : start + 8]
        assert len(whole) < 8 or int(whole) == line + (start > 0)
    assert b"".join(part.data for part in parts[:4]).startswith(b"0000001\n0000002\n")
    assert parts[-1].data.endswith(b"0019999\n0020000\n")


async def many_starts_are_one_run(engine: Engine, programs: Programs) -> None:
    run = make_run(programs.says("once"))
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(engine.start, run)
        first = await engine.wait(run.id)
        await engine.start(run)
        assert await engine.wait(run.id) == first
    assert await text_of(engine, run.id) == "once\n"


async def a_run_that_is_stopped_says_so(engine: Engine, programs: Programs) -> None:
    run = make_run(programs.sleeps())
    with trio.fail_after(PATIENCE_S):
        await engine.start(run)
        ending = await engine.stop(run.id, grace_ms=MillisSpan(10_000))
    assert ending.cause == "stopped"
    assert ending.ended_ms - ending.started_ms < 8_000, "it had no need of the grace"


async def what_ignores_term_is_killed_after_the_grace(engine: Engine, programs: Programs) -> None:
    run = make_run(programs.ignores_term())
    with trio.fail_after(PATIENCE_S):
        await engine.start(run)
        await wait_said(engine, run.id, "ready")
        ending = await engine.stop(run.id, grace_ms=SHORT_MS)
    assert (ending.cause, ending.exit_code) == ("stopped", None) or ending.exit_code == 137
    assert ending.ended_ms - ending.started_ms >= SHORT_MS


async def every_waiter_and_every_stop_gets_the_one_ending(
    engine: Engine, programs: Programs
) -> None:
    run = make_run(programs.sleeps())
    endings: list[Ending] = []

    async def wait() -> None:
        endings.append(await engine.wait(run.id))

    async def stop() -> None:
        endings.append(await engine.stop(run.id, grace_ms=SHORT_MS))

    with trio.fail_after(PATIENCE_S):
        await engine.start(run)
        async with trio.open_nursery() as nursery:
            for task in (wait, wait, stop, stop):
                nursery.start_soon(task)
        await stop()
    assert endings == [endings[0]] * 5


async def a_stop_after_the_end_changes_nothing(engine: Engine, programs: Programs) -> None:
    run = make_run(programs.exits(3))
    ending = await ending_of(engine, run)
    assert await engine.stop(run.id, grace_ms=SHORT_MS) == ending


async def all_that_was_started_is_adopted(engine: Engine, programs: Programs) -> None:
    assert await engine.adopt() == ()
    over = make_run(programs.exits(3), number=2)
    ending = await ending_of(engine, over)
    going = make_run(programs.sleeps(), number=1)
    await engine.start(going)
    assert await engine.adopt() == (going.id, over.id)
    assert await engine.wait(over.id) == ending
    await engine.stop(going.id, grace_ms=SHORT_MS)


async def a_run_that_never_was_is_a_local_fault(engine: Engine, _programs: Programs) -> None:
    run = make_run(("nothing",)).id
    with pytest.raises(LocalFault):
        await engine.wait(run)
    with pytest.raises(LocalFault):
        await engine.stop(run, grace_ms=SHORT_MS)
    with pytest.raises(LocalFault):
        await engine.read_log(run, offset=0, size_max=1)


async def a_cancelled_wait_leaves_the_run_alone(engine: Engine, programs: Programs) -> None:
    run = make_run(programs.sleeps())
    await engine.start(run)
    with trio.move_on_after(0.05):
        await engine.wait(run.id)
    ending = await engine.stop(run.id, grace_ms=SHORT_MS)
    assert ending.ended_ms - ending.started_ms >= 50


async def it_says_what_it_enforces(engine: Engine, _programs: Programs) -> None:
    await trio.lowlevel.checkpoint()
    assert engine.description.startswith(engine.isolation)
    assert "\n" not in engine.description


CHECKS = (
    the_exit_code_is_passed_through,
    a_signal_is_no_plain_exit,
    a_missing_program_ends_with_127,
    what_cannot_be_executed_ends_with_126,
    the_time_limit_ends_a_run,
    what_is_written_is_in_the_log,
    a_log_over_its_bound_keeps_beginning_and_end,
    many_starts_are_one_run,
    a_run_that_is_stopped_says_so,
    what_ignores_term_is_killed_after_the_grace,
    every_waiter_and_every_stop_gets_the_one_ending,
    a_stop_after_the_end_changes_nothing,
    all_that_was_started_is_adopted,
    a_run_that_never_was_is_a_local_fault,
    a_cancelled_wait_leaves_the_run_alone,
    it_says_what_it_enforces,
)
