"""The one form of an archive: a tar of which equal trees have exactly one. Pure but for reading.

Names ascend part by part, each directory comes before what is in it; owners, times and all of the
mode but the right to execute are left out. Only that form is read: every header is made again from
what it says and must give the bytes that came, so no two programs can read an archive differently.
(tarfile's own reader, whose `filter="data"` judges members one by one, takes bombs in the headers
of pax and sparse files before the filter is asked, and writes as it goes.)
"""

import os
import re
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import BinaryIO, Final, Literal

from protocol.errors import PeerFault

MEMBERS_MAX: Final = 16_384
"""To judge so many takes a second. Larger data sets of small files belong into one file."""
DEPTH_MAX: Final = 32
NAME_BYTES_MAX: Final = 255
"""What Linux allows for one part of a path."""
PATH_BYTES_MAX: Final = 1_024
"""Leaves three quarters of what Linux allows for the directory above."""
PAX_BYTES_MAX: Final = 4_096
"""Path and target of a link, both at their longest, and a size take 2,150."""
BLOCK_BYTES: Final = tarfile.BLOCKSIZE
END: Final = bytes(2 * BLOCK_BYTES)
_PAX_LINE: Final = re.compile(rb"([1-9][0-9]{0,4}) (path|linkpath|size)=")
_CONTROL: Final = re.compile(r"[\0-\x1f\x7f-\x9f]")

Kind = Literal["file", "program", "folder", "link"]
_TYPES: Final[dict[Kind, bytes]] = {
    "file": tarfile.REGTYPE,
    "program": tarfile.REGTYPE,
    "folder": tarfile.DIRTYPE,
    "link": tarfile.SYMTYPE,
}
MODES: Final[dict[Kind, int]] = {"file": 0o644, "program": 0o755, "folder": 0o755, "link": 0o777}

Check = Callable[[], None]
"""Called between pieces of work; raises to break it off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One thing in an archive."""

    path: str
    """Relative, with slashes."""
    kind: Kind
    size: int = 0
    target: str = ""

    @property
    def parts(self) -> tuple[str, ...]:
        """What members are ordered by."""
        return PurePosixPath(self.path).parts


def fault_of(member: Member) -> str:
    """Why a member cannot be in an archive; empty if it can.

    A link may climb only at the beginning of its target and no higher than the tree's root. The
    directories above it are no links, so however it is followed, it stays inside.
    """
    if why := _fault_of_path(member.path, DEPTH_MAX):
        return why
    if member.kind != "link":
        return ""
    climbed = member.target
    while climbed.startswith("../"):
        climbed = climbed[3:]
    climb = (len(member.target) - len(climbed)) // 3
    if climb >= len(member.parts):
        return "a link out of the tree"
    return _fault_of_path(climbed, DEPTH_MAX) and "its target is no plain path inside the tree"


def _fault_of_path(path: str, depth_max: int) -> str:
    parts = path.split("/")
    try:
        encoded = path.encode("utf-8")
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    if _CONTROL.search(path):
        return "its name has control characters"
    if any(part in {"", ".", ".."} for part in parts):
        return "no plain relative path"
    if len(parts) > depth_max or len(encoded) > PATH_BYTES_MAX:
        return "its path is too long"
    if any(len(part.encode("utf-8")) > NAME_BYTES_MAX for part in parts):
        return "its name is too long"
    return ""


def header_of(member: Member) -> bytes:
    """The one header of a member: 512 bytes, or more if path, target or size need it."""
    info = tarfile.TarInfo(member.path)
    info.type = _TYPES[member.kind]
    info.mode = MODES[member.kind]
    info.size = member.size
    info.linkname = member.target
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")


def padding(size: int) -> int:
    """How many zero bytes follow a content of this size."""
    return -size % BLOCK_BYTES


def read_members(file: BinaryIO, *, bytes_max: int, check: Check) -> Iterator[Member]:
    """The members of the archive; the file stands at the content of each while it is out.

    Raises PeerFault as `unpack`. Reads no content, and at most a few kilobytes at once.
    """
    length = os.fstat(file.fileno()).st_size
    previous: tuple[str, ...] = ()
    folders: set[tuple[str, ...]] = {()}
    count = total = 0
    while (member := _read_header(file)) is not None:
        check()
        content = file.tell()
        count += 1
        total += member.size
        if count > MEMBERS_MAX:
            raise PeerFault("archive.count", f"more than {MEMBERS_MAX}")
        if total > bytes_max:
            raise PeerFault("archive.size", f"more than {bytes_max} bytes")
        if member.parts <= previous:
            raise PeerFault("archive.form", "a name twice or out of order")
        if member.parts[:-1] not in folders:
            raise PeerFault("archive.path", "its directory is not there before it")
        if member.kind == "folder":
            folders.add(member.parts)
        previous = member.parts
        end = content + member.size + padding(member.size)
        if end > length:
            raise PeerFault("archive.form", "it ends early")
        yield member
        file.seek(content + member.size)
        if any(file.read(padding(member.size))):
            raise PeerFault("archive.form", "padding is not zero")
    if file.read(1):
        raise PeerFault("archive.form", "something after the end")


def _read_header(file: BinaryIO) -> Member | None:
    """The next member; None at the end of the archive."""
    block = file.read(BLOCK_BYTES)
    if block == bytes(BLOCK_BYTES):
        if file.read(BLOCK_BYTES) != bytes(BLOCK_BYTES):
            raise PeerFault("archive.form", "no proper end")
        return None
    info = _parse(block)
    raw, extra = block, {}
    if info.type == tarfile.XHDTYPE:
        if not 0 < info.size <= PAX_BYTES_MAX:
            raise PeerFault("archive.form", "a long extended header")
        raw += file.read(info.size + padding(info.size))
        extra = _pax(raw[BLOCK_BYTES : BLOCK_BYTES + info.size])
        block = file.read(BLOCK_BYTES)
        info = _parse(block)
        raw += block
    member = _judged(info, extra)
    # What two programs could read differently is not the one encoding of what we have read.
    if header_of(member) != raw:
        raise PeerFault("archive.form", "not the form that pack gives it")
    return member


def _parse(block: bytes) -> tarfile.TarInfo:
    try:
        return tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError) as error:
        raise PeerFault("archive.form", f"{str(error)!a}") from error


def _pax(payload: bytes) -> dict[str, str]:
    """The values of an extended header, of the three kinds that we write."""
    values: dict[str, str] = {}
    while payload:
        start = _PAX_LINE.match(payload)
        if start is None:
            raise PeerFault("archive.form", "an unknown extended header")
        length = int(start[1])
        value, end = payload[start.end() : length - 1], payload[length - 1 : length]
        if length <= start.end() or end != b"\n":
            raise PeerFault("archive.form", "a broken extended header")
        values[start[2].decode("ascii")] = value.decode("utf-8", "surrogateescape")
        payload = payload[length:]
    return values


def _judged(info: tarfile.TarInfo, extra: dict[str, str]) -> Member:
    kinds: dict[bytes, Kind] = {
        tarfile.REGTYPE: "program" if info.mode == MODES["program"] else "file",
        tarfile.DIRTYPE: "folder",
        tarfile.SYMTYPE: "link",
    }
    kind = kinds.get(info.type)
    if kind is None:
        raise PeerFault("archive.kind", f"type {info.type!a}")
    size = extra.get("size", f"{info.size}")
    if not (size.isascii() and size.isdecimal() and len(size) <= 19):
        raise PeerFault("archive.size", "no size of a file")
    if kind in {"folder", "link"} and size != "0":
        raise PeerFault("archive.form", "content that belongs to no file")
    path = extra.get("path", info.name)
    if kind == "folder":
        path = path.removesuffix("/")
    member = Member(
        path=path, kind=kind, size=int(size), target=extra.get("linkpath", info.linkname)
    )
    if why := fault_of(member):
        raise PeerFault("archive.path", why)
    return member
