"""What a running job has saved, taken without trust in the directory, which is the job's.

A job may put links in the place of its directories while we look. So everything is reached from
one open directory to the next, and held still under names of ours before it is packed.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from p2pnode.execution.workspace import Workspace, make_way
from p2pnode.home import host_faults
from protocol.errors import PeerFault

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
LINKS_MAX = 16_384
"""As many as an archive may have members."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Something whole that a job has saved."""

    name: str
    inode: int
    mtime_ns: int
    at_ms: int
    """When it got its name, which a job cannot set back."""

    def is_same(self, other: "Found") -> bool:
        """Whether nothing was saved in between. Holding it still moves `at_ms`, so not by that."""
        return (self.name, self.inode, self.mtime_ns) == (other.name, other.inode, other.mtime_ns)


def newest_saved(workspace: Workspace) -> Found | None:
    """The last whole thing that the job saved; None if there is none. Raises LocalFault.

    Whole is what has a name that does not begin with a dot: a job writes a file or a directory
    under such a name, and renames it.
    """
    found = []
    with host_faults(f"list {workspace.checkpoint}"), _opened(workspace.checkpoint) as folder:
        for entry in () if folder is None else os.scandir(folder):
            is_kind = entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)
            if not is_kind or entry.name.startswith("."):
                continue
            with suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                found.append(
                    Found(
                        name=entry.name,
                        inode=status.st_ino,
                        mtime_ns=status.st_mtime_ns,
                        at_ms=status.st_ctime_ns // 1_000_000,
                    )
                )
    return max(found, key=lambda each: (each.mtime_ns, each.name), default=None)


@contextmanager
def held_still(workspace: Workspace, name: str) -> Iterator[Path]:
    """A directory of ours with this one thing in it, while the block runs.

    Links, not copies, so it costs no room. Raises PeerFault `archive.form` if it has gone,
    `archive.count`; LocalFault.
    """
    still = workspace.folder / "saving"
    make_way(still)
    try:
        with host_faults(f"hold {name!a} still"), _opened(workspace.checkpoint) as folder:
            still.mkdir(mode=0o700)
            try:
                _link(folder, name, still)
            except FileNotFoundError as gone:
                raise PeerFault("archive.form", f"{name!a} has gone meanwhile") from gone
        yield still
    finally:
        make_way(still)


def _link(folder: int | None, name: str, still: Path) -> None:
    if folder is None:
        raise FileNotFoundError(name)
    try:
        os.link(name, still / name, src_dir_fd=folder, follow_symlinks=False)
    except (PermissionError, IsADirectoryError):
        # A directory, which has no links; each in it is made anew.
        count = 0
        for path, folders, files, here in os.fwalk(name, dir_fd=folder, follow_symlinks=False):
            (still / path).mkdir(mode=0o700)
            count += 1 + len(folders) + len(files)
            if count > LINKS_MAX:
                raise PeerFault("archive.count", f"more than {LINKS_MAX} files") from None
            for each in files:
                os.link(each, still / path / each, src_dir_fd=here, follow_symlinks=False)
            for each in folders:
                status = os.stat(each, dir_fd=here, follow_symlinks=False)
                if stat.S_ISLNK(status.st_mode):
                    os.link(each, still / path / each, src_dir_fd=here, follow_symlinks=False)
        if count == 0:
            raise FileNotFoundError(name) from None


@contextmanager
def _opened(path: Path) -> Iterator[int | None]:
    """The directory itself, through no link; None if there is none."""
    try:
        folder = os.open(path, _FOLDER)
    except OSError as error:
        if error.errno not in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}:
            raise
        yield None
        return
    try:
        yield folder
    finally:
        os.close(folder)
