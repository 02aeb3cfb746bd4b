"""The engine on paper keeps what the port promises, in virtual time."""

from collections.abc import Awaitable, Callable

import pytest
import trio

from p2pnode.execution.engine import Run
from p2pnode.execution.fake_engine import FakeEngine, Script
from protocol.units import Millis, MillisSpan
from tests import engine_suite as suite

LONG_MS = MillisSpan(suite.LONG_S * 1_000)


class VirtualClock:
    """See WallClock. Follows trio's time."""

    def now(self) -> Millis:
        return Millis(1_700_000_000_000 + round(trio.current_time() * 1_000))


class Words:
    """See Programs: what `script_of` understands."""

    def exits(self, code: int) -> suite.Argv:
        return ("exit", f"{code}")

    def kills_itself(self) -> suite.Argv:
        return ("die",)

    def says(self, text: str) -> suite.Argv:
        return ("say", text)

    def counts(self, lines: int) -> suite.Argv:
        return ("count", f"{lines}")

    def sleeps(self) -> suite.Argv:
        return ("sleep",)

    def ignores_term(self) -> suite.Argv:
        return ("ignore",)

    def is_missing(self) -> suite.Argv:
        return ("exit", "127")

    def is_no_program(self) -> suite.Argv:
        return ("exit", "126")


def script_of(run: Run) -> Script:
    soon = MillisSpan(10)
    match run.argv:
        case ("exit", code):
            return Script(lasts_ms=soon, exit_code=int(code))
        case ("die",):
            return Script(lasts_ms=soon, cause="signal", exit_code=None, signal=9)
        case ("say", text):
            return Script(lasts_ms=soon, log=f"{text}\n".encode())
        case ("count", lines):
            log = b"".join(b"%07d\n" % (line + 1) for line in range(int(lines)))
            return Script(lasts_ms=soon, log=log)
        case ("ignore",):
            return Script(lasts_ms=LONG_MS, log=b"ready\n", obeys_stop=False)
        case _:
            return Script(lasts_ms=LONG_MS)


@pytest.mark.parametrize("check", suite.CHECKS, ids=lambda check: check.__name__)
async def test_the_fake_conforms(
    autojump_clock: trio.abc.Clock,
    check: Callable[[FakeEngine, suite.Programs], Awaitable[None]],
) -> None:
    await check(FakeEngine(script_of, clock=VirtualClock()), Words())


async def test_a_run_takes_as_long_as_its_script_says(autojump_clock: trio.abc.Clock) -> None:
    engine = FakeEngine(script_of, clock=VirtualClock())
    run = suite.make_run(Words().sleeps(), bounds=suite.limits(time_ms=LONG_MS))
    began = trio.current_time()
    await engine.start(run)
    ending = await engine.wait(run.id)
    assert trio.current_time() - began == suite.LONG_S
    assert ending.ended_ms - ending.started_ms == LONG_MS
