"""See Materials: archives in the workspaces of their runs, on this host's disk."""

import os
from hashlib import sha256
from pathlib import Path
from typing import Final

import trio

from p2pnode.execution.archive import pack, unpack
from p2pnode.execution.engine import RunId
from p2pnode.execution.workspace import (
    Workspace,
    make_workspace,
    remove_workspace,
    workspace_of,
)
from p2pnode.home import host_faults
from protocol.errors import LocalFault, PeerFault
from protocol.job import Input, JobLimits
from protocol.tick import ArchiveName
from protocol.units import Digest

MIB: Final = 2**20
READ_BYTES: Final = 1_048_576


class FileMaterials:
    """See Materials. `jobs` is Home.jobs, `files` bounds the threads."""

    def __init__(self, jobs: Path, *, files: trio.CapacityLimiter) -> None:
        self._jobs = jobs
        self._files = files

    async def have(self, run: RunId) -> int:
        return await trio.to_thread.run_sync(_have, self._workspace(run), limiter=self._files)

    async def take(self, run: RunId, *, offset: int, piece: bytes) -> int:
        return await trio.to_thread.run_sync(
            _take, self._workspace(run), offset, piece, limiter=self._files
        )

    async def prepare(self, run: RunId, wanted: Input | None, limits: JobLimits, /) -> None:
        workspace = self._workspace(run)
        is_ready = await trio.to_thread.run_sync(
            _make_ready, workspace, wanted, limiter=self._files
        )
        if wanted is not None and not is_ready:
            await unpack(
                workspace.input,
                workspace.work,
                bytes_max=limits.disk_mib * MIB,
                files=self._files,
            )
        await trio.to_thread.run_sync(_mark_ready, workspace, limiter=self._files)

    async def collect(self, run: RunId, limits: JobLimits, /) -> ArchiveName | None:
        workspace = self._workspace(run)
        if not await trio.to_thread.run_sync(_has_output, workspace, limiter=self._files):
            return None
        try:
            packed = await pack(
                workspace.out, workspace.output, bytes_max=limits.output_bytes, files=self._files
            )
        except LocalFault as fault:
            # What the job left is the renter's affair, not this host's.
            raise PeerFault("archive.output", fault.what) from fault
        return ArchiveName(digest=packed.digest, bytes=packed.bytes)

    async def output(self, run: RunId, *, offset: int, size_max: int) -> bytes:
        path = self._workspace(run).output
        return await trio.to_thread.run_sync(_read, path, offset, size_max, limiter=self._files)

    async def remove(self, run: RunId) -> None:
        await trio.to_thread.run_sync(remove_workspace, self._workspace(run), limiter=self._files)

    def _workspace(self, run: RunId) -> Workspace:
        return workspace_of(self._jobs, run)


def _have(workspace: Workspace) -> int:
    for path in (workspace.input, workspace.input_partial):
        if path.exists():
            return path.stat().st_size
    return 0


def _take(workspace: Workspace, offset: int, piece: bytes) -> int:
    make_workspace(workspace)
    with host_faults(f"write {workspace.input_partial}"):
        handle = os.open(workspace.input_partial, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(handle, "ab") as file:
            if file.tell() != offset:
                raise PeerFault("input.offset")
            file.write(piece)
            return file.tell()


def _make_ready(workspace: Workspace, wanted: Input | None) -> bool:
    """Whether the input is unpacked already; if not, it lies whole and checked at its place."""
    make_workspace(workspace)
    if _ready(workspace).exists():
        return True
    if wanted is not None and not workspace.input.exists():
        with host_faults(f"read {workspace.input_partial}"):
            if _digest(workspace.input_partial) != wanted.digest:
                workspace.input_partial.unlink()
                raise PeerFault("archive.digest", "the input is not what the job names")
            workspace.input_partial.rename(workspace.input)
    return False


def _mark_ready(workspace: Workspace) -> None:
    with host_faults(f"write {_ready(workspace)}"):
        _ready(workspace).touch(0o600)


def _ready(workspace: Workspace) -> Path:
    return workspace.records / "prepared"


def _has_output(workspace: Workspace) -> bool:
    return workspace.out.is_dir() and any(workspace.out.iterdir())


def _digest(path: Path) -> Digest:
    whole = sha256()
    with path.open("rb") as file:
        while piece := file.read(READ_BYTES):
            whole.update(piece)
    return Digest(whole.digest())


def _read(path: Path, offset: int, size_max: int) -> bytes:
    with host_faults(f"read {path}"), path.open("rb") as file:
        file.seek(offset)
        return file.read(size_max)
