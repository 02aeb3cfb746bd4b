"""Runs jobs in containers. See Engine; only this module talks to Docker.

`run` watches the containers while the node is up: it copies logs, ends runs at their limits of
time and disk, and notes how they ended. While the node is down they go on, within what the kernel
enforces; Docker holds their logs and how they ended, and `run` catches up.
"""

import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import docker
import trio
from docker.errors import APIError, DockerException, NotFound
from docker.types import CancellableStream

from p2pnode.clock import WallClock
from p2pnode.execution.docker_container import (
    LABEL_NODE,
    LABEL_RUN,
    Ground,
    Json,
    check_image_name,
    check_made_as_asked,
    container_of,
    name_of,
)
from p2pnode.execution.docker_ground import API, read_ground
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
from p2pnode.execution.docker_run import Chunks, DockerRun, Threads
from p2pnode.execution.engine import Ending, LogPart, Run, RunId
from p2pnode.execution.run_log import read_part
from p2pnode.execution.workspace import Workspace, workspace_of
from p2pnode.home import host_faults
from protocol.advert import Isolation
from protocol.errors import LocalFault, Unavailable
from protocol.units import MillisSpan

log = logging.getLogger(__name__)

CALL_S: Final = 60
"""The longest silence in one call of Docker; what is slower counts as no answer."""
CALLS_MAX: Final = 8
"""Calls at the same time, so that slow ones do not take threads from the rest of the node."""
FOLLOWERS_MAX: Final = 64
"""Logs that are followed at the same time; the others wait."""
RUNS_MAX: Final = 1_024
"""Runs that were started while nobody watched."""

T = TypeVar("T")


class Docker:
    """The calls of Docker that we make; each blocks.

    Raises LocalFault if Docker refuses, Unavailable if it does not answer.
    """

    def __init__(self, path: Path) -> None:
        self._socket = path
        self._api: Any = docker.APIClient(f"unix://{path}", version=API, timeout=CALL_S)

    def ground(self) -> Ground:
        """The self-check. Raises LocalFault if jobs must not be run with this engine."""
        with self._asking():
            info, version = self._api.info(), self._api.version(api_version=False)
        ground = read_ground(info, version, user=os.geteuid(), group=os.getegid())
        # Podman and others take a runtime that does not exist, and so perhaps other things.
        probe = {"Image": f"sha256:{'0' * 64}", "HostConfig": {"Runtime": "no-such-xyz"}}
        try:
            made = self._api.create_container_from_config(probe)
        except APIError as error:
            if error.status_code == 400 and "no-such-xyz" in str(error.explanation):
                return ground
        except OSError as error:
            raise Unavailable(f"the container engine does not answer: {error}") from error
        else:
            self.remove(made["Id"])
        raise LocalFault(
            "the container engine ignores what it does not understand, so it enforces nothing",
            "run Docker itself, not podman, on the socket",
        )

    def close(self) -> None:
        """No connection is kept; the next call makes a new one."""
        self._api.close()

    def image(self, image: str) -> Json | None:
        """What is known of the image; None if it is not here."""
        with self._asking():
            return _if_there(self._api.inspect_image, image)

    def load(self, archive: bytes) -> None:
        """The image is here."""
        with self._asking():
            for line in self._api.load_image(archive):
                if "error" in line:
                    raise LocalFault(f"the image cannot be loaded: {line['error']}")

    def inspect(self, name: str) -> Json | None:
        """What is known of the container; None if there is none."""
        with self._asking():
            return _if_there(self._api.inspect_container, name)

    def create(self, name: str, asked: Json) -> None:
        """The container is there, not started; raises LocalFault if it is not what was asked."""
        with self._asking():
            self._api.create_container_from_config(asked, name)
        try:
            check_made_as_asked(asked, self.inspect(name) or {})
        except LocalFault:
            self.remove(name)
            raise

    def start(self, name: str) -> None:
        """The container runs, or did; nothing happens if it does. Raises LocalFault: it is gone."""
        try:
            with self._asking():
                self._api.start(name)
        except LocalFault:
            self.remove(name)
            raise

    def kill(self, name: str, signal: str) -> None:
        """Signal the container; nothing happens if it is over or gone."""
        with self._asking():
            try:
                self._api.kill(name, signal)
            except APIError as error:
                if error.status_code not in {404, 409}:
                    raise

    def remove(self, name: str) -> None:
        """There is no such container; nothing of it goes on."""
        with self._asking():
            _if_there(partial(self._api.remove_container, v=True, force=True), name)

    def runs(self, node: str) -> list[str]:
        """The ids of this node's runs that have a container."""
        with self._asking():
            found = self._api.containers(all=True, filters={"label": f"{LABEL_NODE}={node}"})
        return sorted(each["Labels"][LABEL_RUN] for each in found)

    def open_log(self, name: str, since: str, *, follow: bool) -> Chunks | None:
        """(chunks, close): the log in frames; `close` ends a read that waits in another thread.

        None if there is no such container.
        """
        options = {"stdout": 1, "stderr": 1, "timestamps": 1, "follow": int(follow), "since": since}
        # docker-py's own call drops the frames, with which the instants would be lost.
        url = f"{self._api.base_url}/v{API}/containers/{name}/logs"
        with self._asking():
            response = self._api.get(url, params=options, stream=True, timeout=(CALL_S, None))
        if response.status_code == 200:
            return _chunks(response), partial(_shut, response)
        response.close()
        if response.status_code == 404:
            return None
        raise Unavailable(f"no log of {name}: HTTP {response.status_code}")

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Around each call; see the class for what is raised."""
        try:
            # Docker-py leaks the socket of a connection that fails, so it is tried here first.
            with socket.socket(socket.AF_UNIX) as trial:
                trial.settimeout(CALL_S)
                trial.connect(str(self._socket))
            yield
        except APIError as error:
            if error.status_code == 409:
                raise Unavailable(f"the container engine is at it: {error.explanation}") from error
            what = f"the container engine refuses: {error.explanation or error}"
            raise LocalFault(what) from error
        except (OSError, DockerException) as error:
            raise Unavailable(f"the container engine does not answer: {error}") from error


def _if_there(call: Callable[[str], T], name: str) -> T | None:
    try:
        return call(name)
    except NotFound:
        return None


def _chunks(response: Any) -> Iterator[bytes]:  # noqa: ANN401 - docker-py has no types
    try:
        yield from response.iter_content(None)
    finally:
        response.close()


def _shut(response: Any) -> None:  # noqa: ANN401 - docker-py has no types
    # It reaches for the socket through three layers, which are gone where the stream has ended.
    with suppress(OSError, AttributeError):
        CancellableStream(None, response).close()


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
