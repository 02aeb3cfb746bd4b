"""Runs jobs in containers. See Engine; `docker_client` talks to Docker.

`run` watches the containers while the node is up: it copies logs, ends runs at their limits of
time and disk, and notes how they ended. While the node is down they go on, within what the kernel
enforces; Docker holds their logs and how they ended, and `run` catches up.
"""

import logging
from pathlib import Path
from typing import Final

import trio

from p2pnode.clock import WallClock
from p2pnode.execution.docker_client import Docker
from p2pnode.execution.docker_container import Ground, check_image_name, container_of, name_of
from p2pnode.execution.docker_image import ImageArchive
from p2pnode.execution.docker_records import (
    Bounds,
    is_started,
    keep_bounds,
    mark_started,
    prepare_work,
    read_bounds,
    read_ending,
    started_runs,
    unfinished_runs,
)
from p2pnode.execution.docker_run import DockerRun, Threads
from p2pnode.execution.engine import Ending, LogPart, Notice, Run, RunId
from p2pnode.execution.run_log import read_part
from p2pnode.execution.workspace import Workspace, workspace_of, write_notice
from p2pnode.home import host_faults
from p2pnode.image_names import digests_of
from protocol.advert import Isolation
from protocol.errors import LocalFault, Unavailable
from protocol.units import MillisSpan

log = logging.getLogger(__name__)

CALLS_MAX: Final = 8
"""Calls at the same time, so that slow ones do not take threads from the rest of the node."""
FOLLOWERS_MAX: Final = 64
"""Logs that are followed at the same time; the others wait."""
RUNS_MAX: Final = 1_024
"""Runs that were started while nobody watched."""


class DockerEngine:
    """See Engine. Runs live under `jobs`; `node` tells our containers from other nodes' ones.

    A run that names no image gets `default_image`. `run` must be running for the rest to work.
    """

    def __init__(
        self,
        jobs: Path,
        *,
        docker_socket: Path,
        node: str,
        clock: WallClock,
        files: trio.CapacityLimiter,
        default_image: str | None = None,
    ) -> None:
        self._jobs = jobs
        self._node = node
        self._clock = clock
        self._default_image = default_image
        self._docker = Docker(docker_socket)
        self._threads = Threads(
            calls=trio.CapacityLimiter(CALLS_MAX),
            followers=trio.CapacityLimiter(FOLLOWERS_MAX),
            files=files,
        )
        self._ground: Ground | None = None
        self._runs: dict[RunId, DockerRun] = {}
        """Those that are not over."""
        self._to_watch, self._watched = trio.open_memory_channel[DockerRun](RUNS_MAX)

    @property
    def isolation(self) -> Isolation:
        # Whether the GPU's part of the engine is current cannot be asked, so never "hardened".
        return "container"

    @property
    def description(self) -> str:
        ground = self._ground
        assert ground is not None, "known once the engine is up"
        remapped = ", another one on the host" if ground.owner != ground.user else ""
        swap = "" if ground.limits_swap else "; swap NOT limited"
        return (
            f"container: Docker {ground.version}, no network, read-only root, user "
            f"{ground.user}{remapped}, no capabilities, no new privileges, system calls filtered; "
            "memory, processors, processes and log bounded, time and disk looked at once a second"
            f"{swap}; the host's kernel is shared"
        )

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Check the engine, adopt what runs, then watch all runs until cancelled.

        Raises LocalFault if this engine must not run jobs, Unavailable if it does not answer.
        """
        ground = await self._threads.call(self._docker.ground)
        await self._adopt_containers()
        self._ground = ground
        try:
            async with trio.open_nursery() as nursery:
                for run in self._runs.values():
                    nursery.start_soon(self._watch, run)
                task_status.started()
                async for run in self._watched:
                    nursery.start_soon(self._watch, run)
        finally:
            self._docker.close()

    async def images(self) -> tuple[bytes, ...] | None:
        found = await self._threads.call(self._docker.images)
        return tuple(dict.fromkeys(digest for image in found for digest in digests_of(image)))

    async def load(self, image: ImageArchive) -> None:
        """The image is in the engine. Raises LocalFault or Unavailable."""
        if await self._threads.call(self._docker.image, image.id) is None:
            await self._threads.call(self._docker.load, image.archive)
            if await self._threads.call(self._docker.image, image.id) is None:
                raise LocalFault(f"the container engine loaded another image than {image.id}")

    async def start(self, run: Run) -> None:
        while (known := self._runs.get(run.id)) is not None:
            if await known.has_begun():
                return
        workspace = workspace_of(self._jobs, run.id)
        bounds = Bounds.of(run.limits, self._clock.now())
        starting = self._runs[run.id] = self._run_in(workspace, bounds)
        try:
            # Half a start would leave a container that nobody watches, so it is not cancelled;
            # each call is bounded.
            with trio.CancelScope(shield=True):
                starting.is_begun = await self._begin(run, workspace, bounds)
        finally:
            if not starting.is_begun:
                del self._runs[run.id]
            starting.start_over.set()
        if starting.is_begun:
            self._to_watch.send_nowait(starting)

    async def wait(self, run: RunId) -> Ending:
        known = self._runs.get(run)
        if known is None or not await known.has_begun():
            return await self._ending_of(run)
        return await known.wait_end()

    async def stop(self, run: RunId, *, grace_ms: MillisSpan) -> Ending:
        known = self._runs.get(run)
        if known is None or not await known.has_begun():
            return await self._ending_of(run)
        await known.end("stopped", "", "TERM")
        with trio.move_on_after(grace_ms / 1_000):
            return await known.wait_end()
        await known.end("stopped", "", "KILL")
        return await known.wait_end()

    async def warn(self, run: RunId, notice: Notice) -> None:
        known = self._runs.get(run)
        if known is None or not await known.has_begun():
            await self._ending_of(run)
            return
        await self._threads.file(write_notice, known.workspace, notice)
        if notice.signal is not None:
            # Its init passes it on to the whole group.
            await self._threads.call(self._docker.kill, name_of(run), f"SIG{notice.signal}")

    async def adopt(self) -> tuple[RunId, ...]:
        return await self._threads.file(started_runs, self._jobs)

    async def read_log(self, run: RunId, *, offset: int, size_max: int) -> LogPart:
        return await self._threads.file(_read_log, workspace_of(self._jobs, run), offset, size_max)

    async def _watch(self, run: DockerRun) -> None:
        await run.watch()
        del self._runs[run.workspace.run]

    async def _begin(self, run: Run, workspace: Workspace, bounds: Bounds) -> bool:
        """Whether the run has begun now; False if it had ended long ago. Raises as `start`."""
        call, file, name = self._threads.call, self._threads.file, name_of(run.id)
        ground = self._ground
        if ground is None:
            raise Unavailable("the container engine is not checked yet")
        if await file(read_ending, workspace) is not None:
            return False
        found = await call(self._docker.inspect, name)
        if found is None or found["State"]["Status"] == "created":
            image_name = check_image_name(run.image or self._default_image)
            image = await call(self._docker.image, image_name)
            if image is None:
                raise LocalFault(f"the image {image_name} is not on this host", "load it first")
            asked = container_of(run, workspace, ground=ground, node=self._node, image=image)
            await file(prepare_work, workspace, ground)
            await file(keep_bounds, workspace, bounds)
            # One that was made before a crash, or by a call that was not answered.
            await call(self._docker.remove, name)
            await call(self._docker.create, name, asked)
            await call(self._docker.start, name)
        await file(mark_started, workspace)
        return True

    async def _adopt_containers(self) -> None:
        """Know again the runs that are not over; remove containers that are nobody's."""
        call, file = self._threads.call, self._threads.file
        for run in await file(unfinished_runs, self._jobs):
            workspace = workspace_of(self._jobs, run)
            found = await call(self._docker.inspect, name_of(run))
            has_run = found is not None and found["State"]["Status"] != "created"
            if has_run:
                await file(mark_started, workspace)
            if has_run or await file(is_started, workspace):
                known = self._run_in(workspace, await file(read_bounds, workspace))
                known.is_begun = True
                known.start_over.set()
                self._runs[run] = known
        for run_id in await call(self._docker.runs, self._node):
            if RunId(run_id) not in self._runs:
                log.info("container removed", extra={"run": run_id})
                await call(self._docker.remove, name_of(run_id))

    def _run_in(self, workspace: Workspace, bounds: Bounds) -> DockerRun:
        return DockerRun(
            workspace,
            bounds=bounds,
            containers=self._docker,
            threads=self._threads,
            clock=self._clock,
        )

    async def _ending_of(self, run: RunId) -> Ending:
        ending = await self._threads.file(read_ending, workspace_of(self._jobs, run))
        if ending is None:
            raise LocalFault(f"the run {run} was never started here")
        return ending


def _read_log(workspace: Workspace, offset: int, size_max: int) -> LogPart:
    if not is_started(workspace):
        raise LocalFault(f"the run {workspace.run} was never started here")
    with host_faults(f"read {workspace.log}"):
        begin, data = read_part(workspace.log, offset, size_max)
    return LogPart(offset=begin, data=data)
