"""A job of real processes hears that its GPU is taken back."""

from pathlib import Path

import pytest
import trio

from p2pnode.clock import SystemClock
from p2pnode.execution.engine import Notice, RunId
from p2pnode.execution.process_engine import ProcessEngine
from protocol.errors import LocalFault
from protocol.units import Millis
from tests import engine_suite as suite


def make_engine(jobs: Path) -> ProcessEngine:
    return ProcessEngine(jobs, clock=SystemClock(), files=trio.CapacityLimiter(4))


def script(text: str) -> suite.Argv:
    return ("/bin/sh", "-c", text)


async def test_k7_a_warned_job_finds_the_notice_and_is_woken_with_all_its_children(
    tmp_path: Path,
) -> None:
    engine = make_engine(tmp_path)
    text = """
        trap 'cat "$P2PNODE_NOTICE"; echo; exit 75' USR1
        sh -c 'trap "echo child; exit" USR1; echo ready; while :; do sleep 0.1; done' &
        while :; do sleep 0.1; done
    """
    run = suite.make_run(script(text))
    await engine.start(run)
    await suite.wait_said(engine, run.id, "ready")
    await engine.warn(run.id, Notice(deadline_ms=Millis(9), reason="own use", signal="USR1"))
    ending = await engine.wait(run.id)
    assert (ending.cause, ending.exit_code) == ("exit", 75)
    said = await suite.text_of(engine, run.id)
    assert '{"deadline_ms":9,"reason":"own use"}' in said
    # A run that is over hears nothing more.
    await engine.warn(run.id, Notice(deadline_ms=Millis(9), reason="", signal="USR1"))


async def test_a_job_that_handles_no_signal_gets_none(tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    text = 'while [ ! -e "$P2PNODE_NOTICE" ]; do sleep 0.1; done; echo seen'
    run = suite.make_run(script(text))
    await engine.start(run)
    await engine.warn(run.id, Notice(deadline_ms=Millis(9), reason="own use", signal=None))
    assert (await engine.wait(run.id)).exit_code == 0
    assert await suite.text_of(engine, run.id) == "seen\n"


async def test_a_run_that_was_never_started_cannot_be_warned(tmp_path: Path) -> None:
    with pytest.raises(LocalFault):
        await make_engine(tmp_path).warn(
            RunId("ef" * 32), Notice(deadline_ms=Millis(9), reason="", signal=None)
        )
