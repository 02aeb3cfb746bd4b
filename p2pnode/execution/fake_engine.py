"""Runs on paper, in trio's time: for worlds in one process and for tests. See Engine."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import trio

from p2pnode.clock import WallClock
from p2pnode.execution.engine import Cause, Ending, LogPart, Notice, Run, RunId
from protocol.advert import Isolation
from protocol.errors import LocalFault
from protocol.units import Millis, MillisSpan

SAVED_CODE: Final = 75
"""EX_TEMPFAIL: a program that has saved its work and wants to go on elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What a run does."""

    lasts_ms: MillisSpan
    cause: Cause = "exit"
    exit_code: int | None = 0
    signal: int | None = None
    log: bytes = b""
    """All of it is there from the start."""
    obeys_stop: bool = True
    """Whether it ends at once when it is asked to; otherwise when the grace is over."""
    saves_ms: MillisSpan | None = None
    """How long it takes to save after a notice; then it ends by itself. None: it goes on."""


@dataclass(slots=True, kw_only=True)
class _Going:
    run: Run
    script: Script
    started_ms: Millis
    started_s: float
    last: Ending
    """How it will end, or has ended."""
    notices: list[Notice] = field(default_factory=list)
    changed: trio.Event = field(default_factory=trio.Event)
    """Set, and another takes its place, when `last` becomes an earlier one."""

    @property
    def ends_s(self) -> float:
        """When, in trio's time."""
        return self.started_s + (self.last.ended_ms - self.started_ms) / 1_000

    @property
    def is_over(self) -> bool:
        return trio.current_time() >= self.ends_s

    def end_earlier(self, ending: Ending) -> None:
        """Unless it is over, or ends before that anyway."""
        if not self.is_over and ending.ended_ms < self.last.ended_ms:
            self.last = ending
            self.changed.set()
            self.changed = trio.Event()


class FakeEngine:
    """See Engine. It stands for the host, so it outlives the nodes that use it in turn."""

    def __init__(
        self,
        script: Callable[[Run], Script],
        *,
        clock: WallClock,
        isolation: Isolation = "process",
    ) -> None:
        self._script: Final = script
        self._clock: Final = clock
        self._isolation: Final = isolation
        self._runs: dict[RunId, _Going] = {}
        self.stock: tuple[bytes, ...] | None = None
        """What `images` tells."""

    @property
    def isolation(self) -> Isolation:
        return self._isolation

    @property
    def description(self) -> str:
        return f"{self._isolation}: simulated, nothing was executed"

    async def images(self) -> tuple[bytes, ...] | None:
        await trio.lowlevel.checkpoint()
        return self.stock

    async def start(self, run: Run) -> None:
        await trio.lowlevel.checkpoint()
        if run.id in self._runs:
            return
        now = self._clock.now()
        script = self._script(run)
        self._runs[run.id] = _Going(
            run=run,
            script=script,
            started_ms=now,
            started_s=trio.current_time(),
            last=_planned(run, script, now),
        )

    async def wait(self, run: RunId) -> Ending:
        going = self._going(run)
        await trio.lowlevel.checkpoint()
        while not going.is_over:
            with trio.move_on_at(going.ends_s):
                await going.changed.wait()
        return going.last

    async def stop(self, run: RunId, *, grace_ms: MillisSpan) -> Ending:
        going = self._going(run)
        passed = round((trio.current_time() - going.started_s) * 1_000)
        obeys = going.script.obeys_stop
        ended = Millis(going.started_ms + passed + (0 if obeys else grace_ms))
        ending = Ending(
            cause="stopped",
            signal=15 if obeys else 9,
            started_ms=going.started_ms,
            ended_ms=ended,
        )
        going.end_earlier(ending)
        return await self.wait(run)

    async def warn(self, run: RunId, notice: Notice) -> None:
        going = self._going(run)
        await trio.lowlevel.checkpoint()
        if going.is_over:
            return
        going.notices.append(notice)
        if going.script.saves_ms is not None:
            passed = round((trio.current_time() - going.started_s) * 1_000)
            ending = Ending(
                cause="exit",
                exit_code=SAVED_CODE,
                started_ms=going.started_ms,
                ended_ms=Millis(going.started_ms + passed + going.script.saves_ms),
            )
            going.end_earlier(ending)

    def lose_all(self) -> None:
        """What it knew is gone with all that runs, as when somebody wipes a container engine."""
        now = self._clock.now()
        for going in self._runs.values():
            going.end_earlier(
                Ending(
                    cause="engine",
                    detail="the container vanished",
                    started_ms=going.started_ms,
                    ended_ms=now,
                )
            )

    def notices(self, run: RunId) -> tuple[Notice, ...]:
        """Those that the run has had."""
        return tuple(self._going(run).notices)

    async def adopt(self) -> tuple[RunId, ...]:
        await trio.lowlevel.checkpoint()
        return tuple(sorted(self._runs))

    async def read_log(self, run: RunId, *, offset: int, size_max: int) -> LogPart:
        going = self._going(run)
        await trio.lowlevel.checkpoint()
        log, bound = going.script.log, going.run.limits.log_bytes
        head, tail = bound // 2, len(log) - bound // 4
        if len(log) <= bound or offset >= tail:
            return LogPart(offset=offset, data=log[offset : offset + size_max])
        if offset < head:
            return LogPart(offset=offset, data=log[offset : min(head, offset + size_max)])
        return LogPart(offset=tail, data=log[tail : tail + size_max])

    def _going(self, run: RunId) -> _Going:
        if run not in self._runs:
            raise LocalFault(f"there was never a run {run} here.")
        return self._runs[run]


def _planned(run: Run, script: Script, now: Millis) -> Ending:
    if script.lasts_ms > run.limits.time_ms:
        ended = Millis(now + run.limits.time_ms)
        return Ending(cause="time", signal=9, started_ms=now, ended_ms=ended)
    return Ending(
        cause=script.cause,
        exit_code=script.exit_code,
        signal=script.signal,
        started_ms=now,
        ended_ms=Millis(now + script.lasts_ms),
    )
