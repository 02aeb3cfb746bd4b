"""Directories to archives and back, in threads. See archive_form for what an archive is."""

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import trio

from p2pnode.execution.archive_form import (
    END,
    MEMBERS_MAX,
    MODES,
    Check,
    Kind,
    Member,
    fault_of,
    header_of,
    padding,
    read_members,
)
from p2pnode.home import host_faults
from protocol.errors import PeerFault
from protocol.units import Digest

CHUNK_BYTES: Final = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """An archive that was written."""

    digest: Digest
    """SHA-256 of its bytes."""
    bytes: int
    """Its length."""
    members: int


async def pack(
    folder: Path, archive: Path, *, bytes_max: int, files: trio.CapacityLimiter
) -> Packed:
    """Write what is in `folder` to `archive`, whole or not at all, in a thread of `files`.

    `bytes_max` bounds the archive. Symbolic links are kept as such, hard links become copies.
    Raises PeerFault `archive.path`, `archive.kind`, `archive.size` or `archive.count` that names
    what cannot be packed and why; LocalFault of the host. Who packs their own directory is the
    peer at fault, and should be told as one of our users.
    """
    return await trio.to_thread.run_sync(
        lambda: pack_now(
            folder, archive, bytes_max=bytes_max, check=trio.from_thread.check_cancelled
        ),
        limiter=files,
    )


async def unpack(
    archive: Path, folder: Path, *, bytes_max: int, files: trio.CapacityLimiter
) -> int:
    """Make the tree of `archive` in `folder`, which must be empty or missing; how many members.

    `bytes_max` bounds the contents of all files together. Files are made with mode 0644 or 0755,
    directories with 0755, whatever the umask. Refused or cancelled, it leaves nothing behind.
    Raises PeerFault `archive.path`, `archive.kind`, `archive.size`, `archive.count` or
    `archive.form`; LocalFault of the host.
    """
    return await trio.to_thread.run_sync(
        lambda: unpack_now(
            archive, folder, bytes_max=bytes_max, check=trio.from_thread.check_cancelled
        ),
        limiter=files,
    )


def pack_now(folder: Path, archive: Path, *, bytes_max: int, check: Check) -> Packed:
    """See `pack`; blocks."""
    aside = archive.with_name(f".{archive.name}.part")
    members = 0
    with host_faults(f"pack {folder}"):
        try:
            with aside.open("wb") as file:
                writer = _Writer(file, bytes_max=bytes_max)
                for member in scan(folder):
                    check()
                    members += 1
                    if members > MEMBERS_MAX:
                        raise PeerFault("archive.count", f"more than {MEMBERS_MAX} files")
                    _pack_member(writer, folder, member, check)
                writer.write(END)
                file.flush()
                os.fsync(file.fileno())
            aside.replace(archive)
        finally:
            aside.unlink(missing_ok=True)
    return Packed(digest=writer.digest, bytes=writer.length, members=members)


class _Writer:
    """Counts and hashes what it writes."""

    def __init__(self, file: BinaryIO, *, bytes_max: int) -> None:
        self._file = file
        self._bytes_max = bytes_max
        self._hash = hashlib.sha256()
        self.length = 0

    @property
    def digest(self) -> Digest:
        return Digest(self._hash.digest())

    def reserve(self, size: int) -> None:
        """Raises PeerFault if so many more bytes are too many."""
        if self.length + size > self._bytes_max:
            raise PeerFault("archive.size", f"more than the {self._bytes_max} bytes agreed")

    def write(self, data: bytes) -> None:
        self.reserve(len(data))
        self._file.write(data)
        self._hash.update(data)
        self.length += len(data)


def scan(folder: Path) -> Iterator[Member]:
    """What is in the folder, in the order of an archive. Raises PeerFault or OSError."""
    # A job could put a link in the place of its own output, and have us pack what it points to.
    if not stat.S_ISDIR(folder.lstat().st_mode):
        raise PeerFault("archive.kind", f"{folder.name!a} is no directory")
    waiting = [folder]
    while waiting:
        path = waiting.pop()
        if path is not folder:
            yield _member_of(folder, path)
        if path is folder or (path.is_dir() and not path.is_symlink()):
            waiting += sorted(path.iterdir(), key=lambda child: child.name, reverse=True)


def _member_of(folder: Path, path: Path) -> Member:
    name = path.relative_to(folder).as_posix()
    status = path.lstat()
    mode = status.st_mode
    if stat.S_ISLNK(mode):
        member = Member(path=name, kind="link", target=path.readlink().as_posix())
    elif stat.S_ISDIR(mode):
        member = Member(path=name, kind="folder")
    elif stat.S_ISREG(mode):
        kind: Kind = "program" if mode & 0o100 else "file"
        member = Member(path=name, kind=kind, size=status.st_size)
    else:
        raise PeerFault("archive.kind", f"{name!a} is no file, directory or link")
    if why := fault_of(member):
        raise PeerFault("archive.path", f"{name!a}: {why}")
    return member


def _pack_member(writer: _Writer, folder: Path, member: Member, check: Check) -> None:
    writer.write(header_of(member))
    if member.kind not in {"file", "program"}:
        return
    # A hole of a terabyte is refused before any of it is read.
    writer.reserve(member.size + padding(member.size))
    left = member.size
    with _opened(folder / member.path) as file:
        while left:
            check()
            data = file.read(min(left, CHUNK_BYTES))
            if not data:
                raise PeerFault("archive.form", f"{member.path!a} became shorter meanwhile")
            writer.write(data)
            left -= len(data)
    writer.write(bytes(padding(member.size)))


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    # Whatever it has become since it was looked at: no link is followed, no pipe waited for.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags), "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise PeerFault("archive.kind", f"{path.name!a} is no file any more")
        yield file


def unpack_now(archive: Path, folder: Path, *, bytes_max: int, check: Check) -> int:
    """See `unpack`; blocks."""
    aside = folder.with_name(f".{folder.name}.part")
    with host_faults(f"unpack {archive}"), archive.open("rb") as file:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(mode=0o700)
        try:
            # All is judged before anything is written, so that a refusal is cheap.
            members = sum(1 for _ in read_members(file, bytes_max=bytes_max, check=check))
            file.seek(0)
            for member in read_members(file, bytes_max=bytes_max, check=check):
                _unpack_member(file, aside, member, check)
            aside.replace(folder)
        finally:
            with suppress(FileNotFoundError):
                shutil.rmtree(aside)
    return members


def _unpack_member(file: BinaryIO, root: Path, member: Member, check: Check) -> None:
    # Each directory above was made by us in this empty tree, so no link can be on the way.
    path = root / member.path
    mode = MODES[member.kind]
    if member.kind == "link":
        path.symlink_to(member.target)
        return
    if member.kind == "folder":
        path.mkdir()
        path.chmod(mode)
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    left = member.size
    with os.fdopen(os.open(path, flags, 0o600), "wb") as made:
        while left:
            check()
            data = file.read(min(left, CHUNK_BYTES))
            if not data:
                raise PeerFault("archive.form", "it ends early")
            made.write(data)
            left -= len(data)
        os.fchmod(made.fileno(), mode)
