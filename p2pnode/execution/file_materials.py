"""See Materials: archives in the workspaces of their runs, on this host's disk."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar, TypeVarTuple

import trio

from p2pnode.execution.archive import pack, pack_now, unpack
from p2pnode.execution.archive_form import Check
from p2pnode.execution.engine import RunId
from p2pnode.execution.materials import Snapshot
from p2pnode.execution.records import read_record, write_record
from p2pnode.execution.saving import Found, held_still, newest_saved
from p2pnode.execution.workspace import (
    Parcel,
    Workspace,
    add_input,
    clear_work,
    finish_input,
    input_size,
    make_way,
    make_workspace,
    remove_workspace,
    workspace_of,
)
from p2pnode.home import host_faults, write_durably
from protocol.job import Input, JobLimits
from protocol.tick import ArchiveName
from protocol.units import Digest, Millis

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MIB: Final = 2**20


class FileMaterials:
    """See Materials. `jobs` is Home.jobs, `files` bounds the threads."""

    def __init__(self, jobs: Path, *, files: trio.CapacityLimiter) -> None:
        self._jobs = jobs
        self._files = files

    async def have(self, run: RunId, what: Parcel = "input") -> int:
        return await self._in_thread(input_size, self._workspace(run), what)

    async def take(self, run: RunId, *, offset: int, piece: bytes, what: Parcel = "input") -> int:
        return await self._in_thread(_take, self._workspace(run), offset, piece, what)

    async def prepare(
        self,
        run: RunId,
        wanted: Input | None,
        limits: JobLimits,
        /,
        *,
        resumed: Input | None = None,
    ) -> None:
        workspace, bytes_max = self._workspace(run), limits.disk_mib * MIB
        if await self._in_thread(_is_prepared, workspace):
            return
        await self._in_thread(_make_ready, workspace, wanted, resumed)
        if wanted is not None:
            await unpack(workspace.input, workspace.work, bytes_max=bytes_max, files=self._files)
        if resumed is not None:
            # Whatever the input has there gives way to what the job itself saved.
            await self._in_thread(make_way, workspace.checkpoint)
            await unpack(
                workspace.arrived("resume"),
                workspace.checkpoint,
                bytes_max=bytes_max,
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

    async def save(self, run: RunId, limits: JobLimits, /) -> Snapshot | None:
        workspace = self._workspace(run)
        newest = await self._in_thread(newest_saved, workspace)
        known = await self._in_thread(_last_saved, workspace)
        if newest is None or (known is not None and newest.is_same(known[0])):
            return None if known is None else known[1]
        return await self._in_thread(
            lambda: _save(workspace, newest, limits, trio.from_thread.check_cancelled)
        )

    async def saved(self, run: RunId, digest: Digest, *, offset: int, size_max: int) -> bytes:
        path = self._workspace(run).saved(digest)
        if not await self._in_thread(path.exists):
            return b""
        return await self._in_thread(_read, path, offset, size_max)

    async def remove(self, run: RunId) -> None:
        await self._in_thread(remove_workspace, self._workspace(run))

    def _workspace(self, run: RunId) -> Workspace:
        return workspace_of(self._jobs, run)

    async def _in_thread(self, work: Callable[[*Ts], T], *arguments: *Ts) -> T:
        return await trio.to_thread.run_sync(work, *arguments, limiter=self._files)


def _take(workspace: Workspace, offset: int, piece: bytes, what: Parcel) -> int:
    make_workspace(workspace)
    return add_input(workspace, offset=offset, data=piece, what=what)


def _is_prepared(workspace: Workspace) -> bool:
    make_workspace(workspace)
    return _mark(workspace).exists()


def _make_ready(workspace: Workspace, wanted: Input | None, resumed: Input | None) -> None:
    """What comes with the job lies whole at its place, and nothing is where it is unpacked."""
    if wanted is not None:
        finish_input(workspace, wanted)
    if resumed is not None:
        finish_input(workspace, resumed, "resume")
    clear_work(workspace)


def _mark(workspace: Workspace) -> Path:
    return workspace.records / "prepared"


def _save(workspace: Workspace, newest: Found, limits: JobLimits, check: Check) -> Snapshot:
    aside = workspace.folder / "checkpoint.tar"
    with held_still(workspace, newest.name) as still:
        packed = pack_now(still, aside, bytes_max=limits.output_bytes, check=check)
    archive = ArchiveName(digest=packed.digest, bytes=packed.bytes)
    _keep_saved(workspace, aside, newest, archive)
    return Snapshot(at_ms=Millis(newest.at_ms), archive=archive)


def _last_saved(workspace: Workspace) -> tuple[Found, Snapshot] | None:
    """What was packed last, and its archive, if that is still there."""
    with host_faults(f"read {workspace.records}"):
        facts = read_record(workspace.records / "saved")
    if facts is None:
        return None
    archive = ArchiveName(digest=Digest(bytes.fromhex(facts["digest"])), bytes=int(facts["bytes"]))
    if not workspace.saved(archive.digest).exists():
        return None
    found = Found(
        name=os.fsdecode(bytes.fromhex(facts["name"])),
        inode=int(facts["inode"]),
        mtime_ns=int(facts["mtime_ns"]),
        at_ms=int(facts["at_ms"]),
    )
    return found, Snapshot(at_ms=Millis(found.at_ms), archive=archive)


def _keep_saved(workspace: Workspace, aside: Path, newest: Found, archive: ArchiveName) -> None:
    """The archive is found again; of those before it only the last is kept, for who reads it."""
    before = _last_saved(workspace)
    path = workspace.saved(archive.digest)
    with host_faults(f"keep {path}"):
        aside.replace(path)
        facts = {
            # Any bytes may be in a name, and a record holds lines of words.
            "name": os.fsencode(newest.name).hex(),
            "inode": str(newest.inode),
            "mtime_ns": str(newest.mtime_ns),
            "at_ms": str(newest.at_ms),
            "digest": archive.digest.hex(),
            "bytes": str(archive.bytes),
        }
        write_record(workspace.records / "saved", facts)
        keep = {path, path if before is None else workspace.saved(before[1].archive.digest)}
        for old in workspace.folder.glob("checkpoint-*.tar"):
            if old not in keep:
                old.unlink(missing_ok=True)


def _has_output(workspace: Workspace) -> bool:
    return workspace.out.is_dir() and any(workspace.out.iterdir())


def _read(path: Path, offset: int, size_max: int) -> bytes:
    with host_faults(f"read {path}"), path.open("rb") as file:
        file.seek(offset)
        return file.read(size_max)
