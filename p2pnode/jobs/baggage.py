"""The large files of a renter's job: the Baggage port, on disk and in memory."""

import os
from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Final, Protocol, TypeVar, TypeVarTuple

import trio

from p2pnode.execution.run_log import RunLog, end_of, read_part
from p2pnode.home import host_faults
from protocol.errors import PeerFault
from protocol.tick import ArchiveName

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

READ_BYTES: Final = 1_048_576
NAME_LETTERS: Final = 16
"""Of a digest in a file's name: 64 bits tell the few checkpoints of one job apart."""
_FILES: Final = trio.CapacityLimiter(4)
"""Threads that read and write these files."""


class Baggage(Protocol):
    """By job id. What was appended survives a crash, up to the last pieces, which come again."""

    async def input(self, job: str, *, offset: int, size_max: int) -> bytes:
        """A piece of the input archive; empty at its end."""

    async def output_size(self, job: str) -> int:
        """How many bytes of the output there are."""

    async def append_output(self, job: str, piece: bytes) -> None:
        """Add to the output. Raises LocalFault of the host."""

    async def log_size(self, job: str) -> int:
        """How many bytes the log has ever got."""

    async def append_log(self, job: str, piece: bytes, *, bytes_max: int) -> None:
        """Add to the log, of which at most `bytes_max` are kept: a beginning and an end."""

    async def check_output(self, job: str, wanted: ArchiveName) -> None:
        """Compare the output with what its owner signed. Raises PeerFault, and drops it then."""

    async def drop_output(self, job: str) -> None:
        """A new attempt begins: what the last one left of its output goes."""

    async def checkpoint(self, job: str, digest: bytes, *, offset: int, size_max: int) -> bytes:
        """A piece of a checkpoint that is whole here; empty at its end, or if it is not."""

    async def checkpoint_part(self, job: str) -> tuple[bytes, int]:
        """(first bytes of its digest, size) of the one that is on its way."""

    async def append_checkpoint(self, job: str, digest: bytes, piece: bytes) -> None:
        """Add to the one on its way; what there was of another one goes."""

    async def keep_checkpoint(self, job: str, wanted: ArchiveName) -> None:
        """The one on its way is whole. Raises PeerFault if it is not this one, and drops it."""

    async def drop_checkpoints(self, job: str, but: bytes) -> None:
        """Only the one with this digest is wanted any more."""


class FileBaggage:
    """See Baggage. One directory for each job."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def path(self, job: str, name: str) -> Path:
        """Where something of the job is: `input.tar`, `output.tar`, or the directory `log`."""
        return self._root / job / name

    async def input(self, job: str, *, offset: int, size_max: int) -> bytes:
        return await _in_thread(_read, self.path(job, "input.tar"), offset, size_max)

    async def output_size(self, job: str) -> int:
        return await _in_thread(_size, self.path(job, "output.tar"))

    async def append_output(self, job: str, piece: bytes) -> None:
        await _in_thread(_append, self.path(job, "output.tar"), piece)

    async def log_size(self, job: str) -> int:
        return await _in_thread(_log_size, self.path(job, "log"))

    async def append_log(self, job: str, piece: bytes, *, bytes_max: int) -> None:
        await _in_thread(_append_log, self.path(job, "log"), piece, bytes_max)

    async def read_log(self, job: str, *, offset: int, size_max: int) -> tuple[int, bytes]:
        """See `read_part`."""
        return await _in_thread(_read_log, self.path(job, "log"), offset, size_max)

    async def check_output(self, job: str, wanted: ArchiveName) -> None:
        path = self.path(job, "output.tar")
        if await _in_thread(_digest, path) != wanted.digest:
            await _in_thread(_remove, path)
            raise PeerFault("output.digest", "not what its owner signed")

    async def drop_output(self, job: str) -> None:
        await _in_thread(_remove, self.path(job, "output.tar"))

    async def checkpoint(self, job: str, digest: bytes, *, offset: int, size_max: int) -> bytes:
        path = self._checkpoint(job, digest)
        if await _in_thread(_size, path) == 0:
            return b""
        return await _in_thread(_read, path, offset, size_max)

    async def checkpoint_part(self, job: str) -> tuple[bytes, int]:
        return await _in_thread(_part_of, self.path(job, ""))

    async def append_checkpoint(self, job: str, digest: bytes, piece: bytes) -> None:
        on_its_way = _arriving(self._checkpoint(job, digest))
        await _in_thread(_keep_only, self.path(job, ""), "checkpoint-*.part", on_its_way)
        await _in_thread(_append, on_its_way, piece)

    async def keep_checkpoint(self, job: str, wanted: ArchiveName) -> None:
        path = self._checkpoint(job, wanted.digest)
        arrived = _arriving(path)
        if await _in_thread(_digest, arrived) != wanted.digest:
            await _in_thread(_remove, arrived)
            raise PeerFault("checkpoint.digest", "not what its owner signed")
        await _in_thread(_rename, arrived, path)

    async def drop_checkpoints(self, job: str, but: bytes) -> None:
        path = self._checkpoint(job, but)
        await _in_thread(_keep_only, self.path(job, ""), "checkpoint-*.tar", path)

    def _checkpoint(self, job: str, digest: bytes) -> Path:
        return self.path(job, f"checkpoint-{digest.hex()[:NAME_LETTERS]}.tar")


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


def _log_size(folder: Path) -> int:
    with host_faults(f"read {folder}"):
        return end_of(folder)


def _append_log(folder: Path, piece: bytes, bytes_max: int) -> None:
    log = RunLog(folder, bytes_max=bytes_max)
    with host_faults(f"write {folder}"):
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        log.open()
    with closing(log):
        log.append(piece)


def _read_log(folder: Path, offset: int, size_max: int) -> tuple[int, bytes]:
    with host_faults(f"read {folder}"):
        return read_part(folder, offset, size_max)


def _digest(path: Path) -> bytes:
    """Of what has come; an owner may say that nothing will, and then there is no file."""
    whole = sha256()
    if not path.exists():
        return whole.digest()
    with host_faults(f"read {path}"), path.open("rb") as file:
        while piece := file.read(READ_BYTES):
            whole.update(piece)
    return whole.digest()


def _arriving(path: Path) -> Path:
    return path.with_name(f"{path.name}.part")


def _part_of(folder: Path) -> tuple[bytes, int]:
    with host_faults(f"list {folder}"):
        for path in sorted(folder.glob("checkpoint-*.part")):
            name = path.name.removeprefix("checkpoint-").partition(".")[0]
            return bytes.fromhex(name), path.stat().st_size
    return b"", 0


def _keep_only(folder: Path, pattern: str, kept: Path) -> None:
    with host_faults(f"tidy {folder}"):
        for path in folder.glob(pattern):
            if path != kept:
                path.unlink(missing_ok=True)


def _rename(arrived: Path, path: Path) -> None:
    with host_faults(f"keep {path}"):
        with arrived.open("ab") as file:
            os.fsync(file.fileno())
        arrived.replace(path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _remove(path: Path) -> None:
    with host_faults(f"remove {path}"):
        path.unlink(missing_ok=True)


class MemoryBaggage:
    """See Baggage. For worlds, whose logs are short: what is too much of one is dropped."""

    def __init__(self) -> None:
        self._files: dict[tuple[str, str], bytes] = {}
        self._arriving: dict[str, tuple[bytes, bytes]] = {}

    async def input(self, job: str, *, offset: int, size_max: int) -> bytes:
        await trio.lowlevel.checkpoint()
        return self._files.get((job, "input"), b"")[offset : offset + size_max]

    async def put_input(self, job: str, archive: bytes) -> None:
        """What the job takes along."""
        await trio.lowlevel.checkpoint()
        self._files[job, "input"] = archive

    async def output_size(self, job: str) -> int:
        await trio.lowlevel.checkpoint()
        return len(self._files.get((job, "output"), b""))

    async def append_output(self, job: str, piece: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self._files[job, "output"] = self._files.get((job, "output"), b"") + piece

    async def log_size(self, job: str) -> int:
        await trio.lowlevel.checkpoint()
        return len(self._files.get((job, "log"), b""))

    async def append_log(self, job: str, piece: bytes, *, bytes_max: int) -> None:
        await trio.lowlevel.checkpoint()
        log = self._files.get((job, "log"), b"") + piece
        self._files[job, "log"] = log[:bytes_max]

    async def check_output(self, job: str, wanted: ArchiveName) -> None:
        await trio.lowlevel.checkpoint()
        if sha256(self._files.get((job, "output"), b"")).digest() != wanted.digest:
            self._files.pop((job, "output"), None)
            raise PeerFault("output.digest", "not what its owner signed")

    async def drop_output(self, job: str) -> None:
        await trio.lowlevel.checkpoint()
        self._files.pop((job, "output"), None)

    async def checkpoint(self, job: str, digest: bytes, *, offset: int, size_max: int) -> bytes:
        await trio.lowlevel.checkpoint()
        return self._files.get((job, digest.hex()), b"")[offset : offset + size_max]

    async def checkpoint_part(self, job: str) -> tuple[bytes, int]:
        await trio.lowlevel.checkpoint()
        digest, part = self._arriving.get(job, (b"", b""))
        return digest[:8], len(part)

    async def append_checkpoint(self, job: str, digest: bytes, piece: bytes) -> None:
        await trio.lowlevel.checkpoint()
        before, part = self._arriving.get(job, (digest, b""))
        self._arriving[job] = (digest, (part if before == digest else b"") + piece)

    async def keep_checkpoint(self, job: str, wanted: ArchiveName) -> None:
        await trio.lowlevel.checkpoint()
        _, part = self._arriving.pop(job, (b"", b""))
        if sha256(part).digest() != wanted.digest:
            raise PeerFault("checkpoint.digest", "not what its owner signed")
        self._files[job, wanted.digest.hex()] = part

    async def drop_checkpoints(self, job: str, but: bytes) -> None:
        await trio.lowlevel.checkpoint()
        for name in [name for owner, name in self._files if owner == job]:
            if len(name) == 64 and name != but.hex():
                del self._files[job, name]
