"""The large files of a renter's job: the Baggage port, on disk and in memory."""

import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Final, Protocol, TypeVar, TypeVarTuple

import trio

from p2pnode.home import host_faults
from protocol.errors import PeerFault
from protocol.tick import ArchiveName

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

READ_BYTES: Final = 1_048_576
_FILES: Final = trio.CapacityLimiter(4)
"""Threads that read and write these files."""


class Baggage(Protocol):
    """By job id. What was appended survives a crash, up to the last pieces, which come again."""

    async def input(self, job: str, *, offset: int, size_max: int) -> bytes:
        """A piece of the input archive; empty at its end."""

    async def size(self, job: str, name: str) -> int:
        """How many bytes of `log` or `output` there are."""

    async def append(self, job: str, name: str, piece: bytes) -> None:
        """Add to `log` or `output`."""

    async def check_output(self, job: str, wanted: ArchiveName) -> None:
        """Compare the output with what its owner signed. Raises PeerFault, and drops it then."""

    async def reset(self, job: str) -> None:
        """A new attempt: the log gets a line about it, a partial output is dropped."""


class FileBaggage:
    """See Baggage. One directory for each job."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def path(self, job: str, name: str) -> Path:
        """Where a file of the job is: `input.tar`, `log` or `output.tar`."""
        return self._root / job / name

    async def input(self, job: str, *, offset: int, size_max: int) -> bytes:
        return await _in_thread(_read, self.path(job, "input.tar"), offset, size_max)

    async def size(self, job: str, name: str) -> int:
        return await _in_thread(_size, self._of(job, name))

    async def append(self, job: str, name: str, piece: bytes) -> None:
        await _in_thread(_append, self._of(job, name), piece)

    async def check_output(self, job: str, wanted: ArchiveName) -> None:
        path = self._of(job, "output")
        if await _in_thread(_digest, path) != wanted.digest:
            await _in_thread(_remove, path)
            raise PeerFault("output.digest", "not what its owner signed")

    async def reset(self, job: str) -> None:
        await _in_thread(_remove, self._of(job, "output"))
        await self.append(job, "log", b"\n[p2pnode] the job moves to another node\n")

    def _of(self, job: str, name: str) -> Path:
        return self.path(job, "log" if name == "log" else "output.tar")


async def _in_thread(function: Callable[[*Ts], T], *arguments: *Ts) -> T:
    return await trio.to_thread.run_sync(function, *arguments, limiter=_FILES)


def _read(path: Path, offset: int, size_max: int) -> bytes:
    with host_faults(f"read {path}"), path.open("rb") as file:
        file.seek(offset)
        return file.read(size_max)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _append(path: Path, piece: bytes) -> None:
    with host_faults(f"write {path}"):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(handle, "ab") as file:
            file.write(piece)


def _digest(path: Path) -> bytes:
    whole = sha256()
    with host_faults(f"read {path}"), path.open("rb") as file:
        while piece := file.read(READ_BYTES):
            whole.update(piece)
    return whole.digest()


def _remove(path: Path) -> None:
    with host_faults(f"remove {path}"):
        path.unlink(missing_ok=True)


class MemoryBaggage:
    """See Baggage. For worlds."""

    def __init__(self) -> None:
        self._files: dict[tuple[str, str], bytes] = {}

    async def input(self, job: str, *, offset: int, size_max: int) -> bytes:
        await trio.lowlevel.checkpoint()
        return self._files.get((job, "input"), b"")[offset : offset + size_max]

    async def size(self, job: str, name: str) -> int:
        await trio.lowlevel.checkpoint()
        return len(self._files.get((job, name), b""))

    async def append(self, job: str, name: str, piece: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self._files[job, name] = self._files.get((job, name), b"") + piece

    async def check_output(self, job: str, wanted: ArchiveName) -> None:
        await trio.lowlevel.checkpoint()
        if sha256(self._files.get((job, "output"), b"")).digest() != wanted.digest:
            self._files.pop((job, "output"), None)
            raise PeerFault("output.digest", "not what its owner signed")

    async def reset(self, job: str) -> None:
        await trio.lowlevel.checkpoint()
        self._files.pop((job, "output"), None)
