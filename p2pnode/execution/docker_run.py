"""Watches one container from its start to its removal, over restarts of node and engine."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar, TypeVarTuple

import trio

from p2pnode.clock import WallClock
from p2pnode.execution.disk_use import disk_bytes
from p2pnode.execution.docker_container import name_of
from p2pnode.execution.docker_ending import is_over, judge_end, millis_of, vanished
from p2pnode.execution.docker_log import LogCopy
from p2pnode.execution.docker_records import (
    Bounds,
    claim_ending,
    claim_intent,
    read_ending,
    read_intent,
)
from p2pnode.execution.engine import Cause, Ending
from p2pnode.execution.run_log import RunLog
from p2pnode.execution.workspace import Workspace
from p2pnode.home import host_faults
from protocol.errors import LocalFault, Unavailable
from protocol.units import Millis

log = logging.getLogger(__name__)

LOOK_S: Final = 1.0
"""Between two looks at a container; the end of its log makes us look at once."""
WEIGH_PARTS: Final = 20
"""Weighing the disk takes at most this part of the time."""
RETRY_S: Final = 1.0
CLOSE_S: Final = 5
_MIB: Final = 2**20

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Chunks = tuple[Iterator[bytes], Callable[[], None]]


class Containers(Protocol):
    """What a watcher needs of the engine. Each blocks; raises LocalFault or Unavailable."""

    def inspect(self, name: str) -> dict[str, Any] | None:
        """What is known of the container; None if there is none."""

    def kill(self, name: str, signal: str) -> None:
        """Signal the container; nothing happens if it is over or gone."""

    def remove(self, name: str) -> None:
        """There is no such container; nothing of it goes on."""

    def open_log(self, name: str, since: str, *, follow: bool) -> Chunks | None:
        """(chunks, close): the log in frames; `close` ends a read that waits in a thread.

        None if there is no such container.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Threads:
    """Where blocking things are done; each kind has its own so that none starves another."""

    calls: trio.CapacityLimiter
    followers: trio.CapacityLimiter
    files: trio.CapacityLimiter

    async def call(self, ask: Callable[[*Ts], T], *args: *Ts) -> T:
        """Ask the engine. Never abandoned, so that no answer is lost; the client bounds it."""
        return await trio.to_thread.run_sync(ask, *args, limiter=self.calls)

    async def file(self, do: Callable[[*Ts], T], *args: *Ts) -> T:
        """Do something with files."""
        return await trio.to_thread.run_sync(do, *args, limiter=self.files)


class DockerRun:
    """One run that is not over. `watch` owns it, the others ask it."""

    def __init__(
        self,
        workspace: Workspace,
        *,
        bounds: Bounds,
        containers: Containers,
        threads: Threads,
        clock: WallClock,
    ) -> None:
        self.workspace: Final = workspace
        self.start_over: Final = trio.Event()
        """The start has succeeded, or failed."""
        self.is_begun = False
        self._bounds: Final = bounds
        self._ended: Final = trio.Event()
        self._ending: Ending | None = None
        self._name: Final = name_of(workspace.run)
        self._containers: Final = containers
        self._threads: Final = threads
        self._clock: Final = clock
        self._look = trio.Event()
        self._weigh_at_s = 0.0
        self._complaint = ""
        self._was_away = False

    async def has_begun(self) -> bool:
        """Whether the start, once it is over, has succeeded."""
        await self.start_over.wait()
        return self.is_begun

    async def wait_end(self) -> Ending:
        """How it ended, once it has."""
        await self._ended.wait()
        assert self._ending is not None
        return self._ending

    async def watch(self) -> None:
        """Return once the ending is durable and the container gone."""
        copy = LogCopy(
            RunLog(self.workspace.log, bytes_max=self._bounds.log_bytes),
            self.workspace.records / "log-position",
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow_log, copy)
            state = await self._await_end()
            nursery.cancel_scope.cancel()
        while self._ending is None:
            try:
                if state is not None:
                    await self._copy_log(copy, follow=False)
                ending = await self._threads.file(self._record_end, state)
                await self._threads.call(self._containers.remove, self._name)
                self._ending = ending
            except (LocalFault, Unavailable) as fault:
                self._complain(fault)
                await trio.sleep(RETRY_S)
        self._ended.set()

    async def end(self, cause: Cause, detail: str, signal: str) -> None:
        """Signal the container, and let its ending have this cause. Raises Unavailable."""
        await self._threads.file(claim_intent, self.workspace, cause, detail, self._clock.now())
        await self._threads.call(self._containers.kill, self._name, signal)
        self._look.set()

    async def _await_end(self) -> dict[str, Any] | None:
        """The container's last state; None if it is gone."""
        while True:
            try:
                found = await self._threads.call(self._containers.inspect, self._name)
                if found is None or is_over(found["State"]):
                    return found and found["State"]
                self._was_away = False
                wait_s = await self._enforce(millis_of(found["State"]["StartedAt"]))
            except (LocalFault, Unavailable) as fault:
                self._was_away = True
                self._complain(fault)
                wait_s = RETRY_S
            with trio.move_on_after(wait_s):
                await self._look.wait()
            self._look = trio.Event()

    async def _enforce(self, started: Millis) -> float:
        """End the run if it is beyond a limit; how many seconds until the next look."""
        left_ms = started + self._bounds.time_ms - self._clock.now()
        if left_ms <= 0:
            await self.end("time", f"ran {self._bounds.time_ms} ms", "KILL")
            return LOOK_S
        if trio.current_time() >= self._weigh_at_s:
            began_s = trio.current_time()
            used = await self._threads.file(disk_bytes, self.workspace.work)
            took_s = trio.current_time() - began_s
            self._weigh_at_s = trio.current_time() + max(LOOK_S, WEIGH_PARTS * took_s)
            if used > self._bounds.disk_mib * _MIB:
                detail = f"{used // _MIB} MiB of {self._bounds.disk_mib}"
                await self.end("disk", detail, "KILL")
        return min(LOOK_S, left_ms / 1_000)

    async def _follow_log(self, copy: LogCopy) -> None:
        """Copy what the run writes as it comes, over restarts of the engine."""
        while True:
            try:
                await self._copy_log(copy, follow=True)
            except (LocalFault, Unavailable) as fault:
                self._complain(fault)
            # Docker ends the stream with the container, or as it goes down itself.
            self._look.set()
            await trio.sleep(RETRY_S)

    async def _copy_log(self, copy: LogCopy, *, follow: bool) -> None:
        """Copy until the stream ends; a cancellation shuts the socket, which wakes the thread."""
        with host_faults("open the log"):
            since = await self._threads.file(copy.open)
        with trio.CancelScope(shield=True):
            opened = await self._threads.call(
                lambda: self._containers.open_log(self._name, since, follow=follow)
            )
        if opened is None:
            return
        chunks, close = opened
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_close_when_cancelled, close)
                await trio.to_thread.run_sync(copy.take, chunks, limiter=self._threads.followers)
                nursery.cancel_scope.cancel()
        finally:
            with trio.move_on_after(CLOSE_S, shield=True):
                await self._threads.file(copy.close)

    def _record_end(self, state: dict[str, Any] | None) -> Ending:
        """The ending as it is on disk from now on. Raises LocalFault."""
        now = self._clock.now()
        if state is None:
            ending = vanished(Millis(min(now, self._bounds.began_ms)), now)
        else:
            intent = read_intent(self.workspace)
            ending = judge_end(state, intent, now=now, was_away=self._was_away)
        claim_ending(self.workspace, ending)
        return read_ending(self.workspace) or ending

    def _complain(self, fault: Exception) -> None:
        if str(fault) != self._complaint:
            log.warning("run out of sight", extra={"run": self.workspace.run, "why": str(fault)})
        self._complaint = str(fault)


async def _close_when_cancelled(close: Callable[[], None]) -> None:
    try:
        await trio.sleep_forever()
    finally:
        close()
