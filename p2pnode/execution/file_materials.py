"""See Materials: archives in the workspaces of their runs, on this host's disk."""

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar, TypeVarTuple

import trio

from p2pnode.execution.archive import pack, unpack
from p2pnode.execution.engine import RunId
from p2pnode.execution.workspace import (
    Workspace,
    add_input,
    clear_work,
    finish_input,
    input_size,
    make_workspace,
    remove_workspace,
    workspace_of,
)
from p2pnode.home import host_faults, write_durably
from protocol.job import Input, JobLimits
from protocol.tick import ArchiveName

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MIB: Final = 2**20


class FileMaterials:
    """See Materials. `jobs` is Home.jobs, `files` bounds the threads."""

    def __init__(self, jobs: Path, *, files: trio.CapacityLimiter) -> None:
        self._jobs = jobs
        self._files = files

    async def have(self, run: RunId) -> int:
        return await self._in_thread(input_size, self._workspace(run))

    async def take(self, run: RunId, *, offset: int, piece: bytes) -> int:
        return await self._in_thread(_take, self._workspace(run), offset, piece)

    async def prepare(self, run: RunId, wanted: Input | None, limits: JobLimits, /) -> None:
        workspace = self._workspace(run)
        if await self._in_thread(_is_prepared, workspace):
            return
        await self._in_thread(_make_ready, workspace, wanted)
        if wanted is not None:
            await unpack(
                workspace.input,
                workspace.work,
                bytes_max=limits.disk_mib * MIB,
                files=self._files,
            )
        await self._in_thread(write_durably, _mark(workspace), b"")

    async def collect(self, run: RunId, limits: JobLimits, /) -> ArchiveName | None:
        workspace = self._workspace(run)
        if not await self._in_thread(_has_output, workspace):
            return None
        packed = await pack(
            workspace.out, workspace.output, bytes_max=limits.output_bytes, files=self._files
        )
        return ArchiveName(digest=packed.digest, bytes=packed.bytes)

    async def output(self, run: RunId, *, offset: int, size_max: int) -> bytes:
        return await self._in_thread(_read, self._workspace(run).output, offset, size_max)

    async def remove(self, run: RunId) -> None:
        await self._in_thread(remove_workspace, self._workspace(run))

    def _workspace(self, run: RunId) -> Workspace:
        return workspace_of(self._jobs, run)

    async def _in_thread(self, work: Callable[[*Ts], T], *arguments: *Ts) -> T:
        return await trio.to_thread.run_sync(work, *arguments, limiter=self._files)


def _take(workspace: Workspace, offset: int, piece: bytes) -> int:
    make_workspace(workspace)
    return add_input(workspace, offset=offset, data=piece)


def _is_prepared(workspace: Workspace) -> bool:
    make_workspace(workspace)
    return _mark(workspace).exists()


def _make_ready(workspace: Workspace, wanted: Input | None) -> None:
    """The input lies whole at its place, and nothing is where it will be unpacked."""
    if wanted is not None:
        finish_input(workspace, wanted)
    clear_work(workspace)


def _mark(workspace: Workspace) -> Path:
    return workspace.records / "prepared"


def _has_output(workspace: Workspace) -> bool:
    return workspace.out.is_dir() and any(workspace.out.iterdir())


def _read(path: Path, offset: int, size_max: int) -> bytes:
    with host_faults(f"read {path}"), path.open("rb") as file:
        file.seek(offset)
        return file.read(size_max)
