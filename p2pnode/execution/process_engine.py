"""Runs jobs as plain processes of our user. See Engine; `supervisor` does the work.

Not a wall against a hostile job: it has our user's rights. It is for the owner's own jobs and for
test networks.
"""

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar, TypeVarTuple, get_args

import trio

from p2pnode.clock import WallClock
from p2pnode.execution.confinement import Bounds
from p2pnode.execution.engine import Cause, Ending, LogPart, Notice, Run, RunId
from p2pnode.execution.process_tree import (
    Process,
    is_alive,
    open_process,
    send_signal,
    with_variable,
)
from p2pnode.execution.records import claim_record, read_record, write_record
from p2pnode.execution.run_log import read_part
from p2pnode.execution.spec import Spec, write_spec
from p2pnode.execution.workspace import (
    Workspace,
    list_workspaces,
    make_job_folders,
    make_workspace,
    socket_folder,
    workspace_of,
    write_notice,
)
from p2pnode.home import host_faults
from protocol.advert import Isolation
from protocol.errors import LocalFault, Unavailable
from protocol.units import Millis, MillisSpan

START_S: Final = 30.0
"""A supervisor takes a tenth of a second to start; on a host that swaps, much longer."""
SWEEP_S: Final = 0.05
"""Between two looks for what a dead supervisor left; each look kills what it finds."""
SOURCES: Final = Path(__file__).parents[2]
_PROGRAM: Final = (
    f"import sys; sys.path.insert(0, {str(SOURCES)!r}); "
    "from p2pnode.execution.supervisor import main; main()"
)
_CAUSES: Final[dict[str, Cause]] = {cause: cause for cause in get_args(Cause)}

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ProcessEngine:
    """See Engine. Runs live under `jobs`, which is Home.jobs; `files` bounds its threads."""

    def __init__(self, jobs: Path, *, clock: WallClock, files: trio.CapacityLimiter) -> None:
        self._jobs: Final = jobs
        self._clock: Final = clock
        self._files: Final = files

    @property
    def isolation(self) -> Isolation:
        return "process"

    @property
    def description(self) -> str:
        return (
            "process: own session, directory and clean environment; time, memory, processes, "
            "disk and log bounded; files, network and other processes of the owner's user NOT "
            "isolated"
        )

    async def images(self) -> None:
        await trio.lowlevel.checkpoint()

    async def start(self, run: Run) -> None:
        if run.image is not None:
            raise LocalFault(
                "the process engine runs no images.", "offer leases with the docker engine"
            )
        workspace = workspace_of(self._jobs, run.id)
        spec = await self._in_thread(_prepare, workspace, run)
        if spec is None:
            return
        try:
            # Half a start would leave nobody who knows if the job runs: it is not cancelled.
            with trio.fail_after(START_S, shield=True):
                await _launch(spec)
        except trio.TooSlowError as error:
            raise Unavailable("this host takes too long to start a process") from error

    async def wait(self, run: RunId) -> Ending:
        workspace = workspace_of(self._jobs, run)
        await _wait_gone(await self._in_thread(_supervisor_of, workspace))
        while (ending := await self._in_thread(_ending_of, workspace)) is None:
            if not await self._in_thread(_kill_leftovers, run):
                await self._in_thread(_record_loss, workspace, self._clock.now())
            await trio.sleep(SWEEP_S)
        return ending

    async def stop(self, run: RunId, *, grace_ms: MillisSpan) -> Ending:
        workspace = workspace_of(self._jobs, run)
        supervisor = await self._in_thread(_supervisor_of, workspace)
        await self._in_thread(_ask_to_stop, workspace, supervisor, grace_ms)
        return await self.wait(run)

    async def warn(self, run: RunId, notice: Notice) -> None:
        await self._in_thread(_warn, workspace_of(self._jobs, run), notice)

    async def adopt(self) -> tuple[RunId, ...]:
        return await self._in_thread(_started_runs, self._jobs)

    async def read_log(self, run: RunId, *, offset: int, size_max: int) -> LogPart:
        return await self._in_thread(_log_part, workspace_of(self._jobs, run), offset, size_max)

    async def _in_thread(self, work: Callable[[*Arguments], T], *arguments: *Arguments) -> T:
        return await trio.to_thread.run_sync(work, *arguments, limiter=self._files)


async def _launch(spec: bytes) -> None:
    """Start a supervisor, which starts the job unless it has one. Raises LocalFault."""
    with host_faults("start a supervisor"):
        launched = await trio.run_process(
            [sys.executable, "-I", "-S", "-X", "utf8", "-c", _PROGRAM],
            stdin=spec,
            capture_stderr=True,
            check=False,
            cwd="/",
            env={},
            start_new_session=True,
        )
    if launched.returncode != 0:
        why = launched.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise LocalFault(f"cannot start a job: {why}.")


def _prepare(workspace: Workspace, run: Run) -> bytes | None:
    """What the supervisor reads, as bytes; None if there was one. Raises LocalFault."""
    make_workspace(workspace)
    if _read(workspace.records / "claim") is not None:
        return None
    make_job_folders(workspace)
    limits = run.limits
    return write_spec(
        Spec(
            work=workspace.work,
            log=workspace.log,
            records=workspace.records,
            argv=run.argv,
            variables=environment(workspace, run),
            bounds=Bounds(
                time_ms=limits.time_ms,
                memory_mib=limits.memory_mib,
                cpus_milli=limits.cpus_milli,
                pids=limits.pids,
                disk_mib=limits.disk_mib,
            ),
            log_bytes=limits.log_bytes,
        )
    )


def environment(workspace: Workspace, run: Run) -> dict[str, str]:
    """All variables that the job has: the renter's, over our defaults, under our facts.

    Raises LocalFault if the host has no place for temporary files.
    """
    return {
        "PATH": PATH,
        "LANG": "C.UTF-8",
        **run.variables,
        "HOME": str(workspace.work),
        "TMPDIR": str(socket_folder(workspace)),
        "P2PNODE_OUT": str(workspace.out),
        "P2PNODE_CHECKPOINT": str(workspace.checkpoint),
        "P2PNODE_NOTICE": str(workspace.notice),
        "P2PNODE_RUN": run.id,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        # Without leased GPUs it is empty, which shows none; absent would show all.
        "CUDA_VISIBLE_DEVICES": ",".join(run.devices),
    }


def _read(path: Path) -> dict[str, str] | None:
    with host_faults(f"read {path}"):
        return read_record(path)


def _supervisor_of(workspace: Workspace) -> Process:
    claim = _read(workspace.records / "claim")
    if claim is None:
        raise LocalFault(f"there was never a run {workspace.run} here.")
    return Process.parse(claim["supervisor"])


async def _wait_gone(process: Process) -> None:
    """Until the process has ended, whoever's child it is. Costs nothing while it runs."""
    descriptor = open_process(process)
    if descriptor is None:
        await trio.lowlevel.checkpoint()
        return
    try:
        await trio.lowlevel.wait_readable(descriptor)
    finally:
        os.close(descriptor)


def _ending_of(workspace: Workspace) -> Ending | None:
    facts = _read(workspace.records / "ending")
    if facts is None:
        return None
    return Ending(
        cause=_CAUSES[facts["cause"]],
        exit_code=int(facts["exit_code"]) if "exit_code" in facts else None,
        signal=int(facts["signal"]) if "signal" in facts else None,
        detail=facts["detail"],
        started_ms=Millis(int(facts["started_ms"])),
        ended_ms=Millis(int(facts["ended_ms"])),
    )


def _kill_leftovers(run: RunId) -> bool:
    """Whether there was still anything of a run whose supervisor is dead."""
    found = with_variable(f"P2PNODE_RUN={run}".encode("ascii"))
    for process in found:
        send_signal(process, signal.SIGKILL)
    return bool(found)


def _record_loss(workspace: Workspace, now: Millis) -> None:
    """The ending of a run whose supervisor died before it wrote one, unless it has one now."""
    claim = _read(workspace.records / "claim")
    assert claim is not None, "a run that is waited for was claimed"
    facts = {
        "cause": "engine",
        "detail": "its supervisor was killed, or the host restarted",
        "started_ms": claim["started_ms"],
        "ended_ms": str(max(now, int(claim["started_ms"]))),
    }
    with host_faults(f"write the ending of {workspace.run}"):
        claim_record(workspace.records / "ending", facts)


def _ask_to_stop(workspace: Workspace, supervisor: Process, grace_ms: MillisSpan) -> None:
    if _ending_of(workspace) is None:
        with host_faults(f"write the stop of {workspace.run}"):
            write_record(workspace.records / "stop", {"grace_ms": str(grace_ms)})
        send_signal(supervisor, signal.SIGTERM)


def _warn(workspace: Workspace, notice: Notice) -> None:
    _supervisor_of(workspace)
    if _ending_of(workspace) is not None:
        return
    write_notice(workspace, notice)
    facts = _read(workspace.records / "job")
    if notice.signal is None or facts is None:
        return
    job = Process.parse(facts["job"])
    if is_alive(job):
        # It leads a session of its own, so its group has its number.
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.Signals[f"SIG{notice.signal}"])


def _started_runs(jobs: Path) -> tuple[RunId, ...]:
    return tuple(
        workspace.run
        for workspace in list_workspaces(jobs)
        if _read(workspace.records / "claim") is not None
    )


def _log_part(workspace: Workspace, offset: int, size_max: int) -> LogPart:
    _supervisor_of(workspace)
    with host_faults(f"read {workspace.log}"):
        begin, data = read_part(workspace.log, offset, size_max)
    return LogPart(offset=begin, data=data)
