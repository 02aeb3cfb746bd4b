"""The directory of one lease: what its job reads and writes, and what its engine notes.

Everything is for our user alone. What the files mean is for engines and archives to know.
"""

import hashlib
import os
import re
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec

from p2pnode.execution.engine import Notice, RunId
from p2pnode.home import host_faults
from protocol.errors import PeerFault
from protocol.job import Input

SOCKET_FOLDER_BYTES_MAX: Final = 64
"""A socket's path has at most 107 bytes, and Python's own in a temporary directory take 36."""
Parcel = Literal["input", "resume"]
"""What a run starts with: what the renter sends along, and what the job saved elsewhere."""
NOTICE_FOLDER: Final = ".p2pnode"
NOTICE_FILE: Final = "notice.json"
_ID: Final = re.compile(r"[0-9a-f]{16,128}")
_READ_BYTES: Final = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """The paths of one lease; makes nothing by itself."""

    folder: Path

    @property
    def run(self) -> RunId:
        """The run that it is for."""
        return RunId(self.folder.name)

    @property
    def work(self) -> Path:
        """The job's working directory and home."""
        return self.folder / "work"

    @property
    def out(self) -> Path:
        """What the job leaves here is its output."""
        return self.work / "out"

    @property
    def checkpoint(self) -> Path:
        """Where the job saves its work, and finds what it saved elsewhere."""
        return self.work / "checkpoint"

    @property
    def notice(self) -> Path:
        """Appears when the units are taken back."""
        return self.work / NOTICE_FOLDER / NOTICE_FILE

    @property
    def scratch(self) -> Path:
        """The job's temporary files, which count as its disk."""
        return self.work / "tmp"

    @property
    def shortcut(self) -> Path:
        """Another name of `scratch`, short enough for sockets; only where it is needed."""
        name = hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"p2pnode-{name}"

    @property
    def input(self) -> Path:
        """The archive that the job starts with; complete and verified once it has this name."""
        return self.arrived("input")

    @property
    def input_partial(self) -> Path:
        """The same while it arrives, so that a broken transfer goes on where it ended."""
        return self.arriving("input")

    def arrived(self, what: Parcel) -> Path:
        """The archive; complete and verified once it has this name."""
        return self.folder / f"{what}.tar"

    def arriving(self, what: Parcel) -> Path:
        """The same on its way."""
        return self.folder / f"{what}.tar.part"

    def saved(self, digest: bytes) -> Path:
        """The archive of something that the job saved."""
        return self.folder / f"checkpoint-{digest.hex()[:16]}.tar"

    @property
    def output(self) -> Path:
        """The archive of `out`; complete once it has this name."""
        return self.folder / "output.tar"

    @property
    def log(self) -> Path:
        """A directory with the kept segments of the log, see p2pnode.execution.run_log."""
        return self.folder / "log"

    @property
    def records(self) -> Path:
        """A directory for what the engine must find again after a crash."""
        return self.folder / "records"


def workspace_of(jobs: Path, run: RunId) -> Workspace:
    """The workspace of the run under `jobs`, which is Home.jobs."""
    assert _ID.fullmatch(run), "a run is named by a lease's id in hex"
    return Workspace(folder=jobs / run)


def list_workspaces(jobs: Path) -> tuple[Workspace, ...]:
    """Those that are there, by rising id. Raises LocalFault if the host cannot read them."""
    with host_faults(f"list {jobs}"):
        names = sorted(path.name for path in jobs.iterdir() if path.is_dir())
    return tuple(Workspace(folder=jobs / name) for name in names if _ID.fullmatch(name))


def make_workspace(workspace: Workspace) -> None:
    """The directories are there, mode 0700 but for `work`, whose content is the job's affair.

    Before the input is unpacked into `work`, which must be empty then; `out` and `scratch` are
    made by `make_job_folders`. Nothing happens to what is there. Raises LocalFault.
    """
    with host_faults(f"make the directory {workspace.folder}"):
        for folder in (workspace.folder, workspace.work, workspace.log, workspace.records):
            folder.mkdir(mode=0o700, exist_ok=True)


def make_job_folders(workspace: Workspace) -> None:
    """What a job may rely on inside `work` is there, whatever its input held. Raises LocalFault.

    An input that has a file or a symbolic link in their place is the renter's fault, not ours.
    """
    folders = (workspace.out, workspace.scratch, workspace.checkpoint, workspace.notice.parent)
    for folder in folders:
        with host_faults(f"make the directory {folder}"):
            folder.mkdir(mode=0o700, exist_ok=True)
            if folder.is_symlink():
                raise NotADirectoryError(20, "the input has a symbolic link in its place")


def socket_folder(workspace: Workspace) -> Path:
    """`scratch`, by a name that leaves room for the sockets that libraries make in it.

    Without this, a data loader with several workers fails under a home with a long path. The
    other name is a link that goes when the run ends, or else with the workspace.
    """
    if len(os.fsencode(workspace.scratch)) <= SOCKET_FOLDER_BYTES_MAX:
        return workspace.scratch
    shortcut = workspace.shortcut
    with host_faults(f"make {shortcut}"):
        with suppress(FileExistsError):
            shortcut.symlink_to(workspace.scratch)
        # Anybody may write in that directory: only a link of ours to our own is followed.
        is_ours = shortcut.lstat().st_uid == os.geteuid()
        return (
            shortcut if is_ours and shortcut.readlink() == workspace.scratch else workspace.scratch
        )


def remove_workspace(workspace: Workspace) -> None:
    """All of it is gone; nothing happens if it is already. Raises LocalFault.

    Only after the run's end. What remains of an interrupted removal has a name that no run has.
    """
    doomed = workspace.folder.with_name(f".{workspace.folder.name}.removed")
    with host_faults(f"remove {workspace.folder}"):
        if workspace.shortcut.is_symlink() and (workspace.shortcut.readlink() == workspace.scratch):
            workspace.shortcut.unlink()
        # A half-removed workspace without its records would look like one never started.
        if workspace.folder.exists() and not doomed.exists():
            workspace.folder.rename(doomed)
        for folder in (doomed, workspace.folder):
            if folder.exists():
                _remove_tree(folder)


def _remove_tree(folder: Path) -> None:
    """As rmtree, but also of directories that the job has made unreadable."""
    for parent, folders, _ in os.walk(folder):
        for name in folders:
            path = Path(parent, name)
            if not path.is_symlink():
                path.chmod(0o700)
    shutil.rmtree(folder)


def clear_work(workspace: Workspace) -> None:
    """`work` is there and empty, whatever a crash has left in it. Raises LocalFault."""
    with host_faults(f"empty {workspace.work}"):
        if workspace.work.exists():
            _remove_tree(workspace.work)
        workspace.work.mkdir(mode=0o700)


def make_way(path: Path) -> None:
    """Nothing is there. Raises LocalFault."""
    with host_faults(f"remove {path}"):
        if path.is_dir() and not path.is_symlink():
            _remove_tree(path)
        else:
            path.unlink(missing_ok=True)


def input_size(workspace: Workspace, what: Parcel = "input") -> int:
    """How many bytes of it have arrived: where a broken transfer goes on."""
    with host_faults(f"look at {workspace.folder}"):
        for path in (workspace.arrived(what), workspace.arriving(what)):
            if path.exists():
                return path.stat().st_size
    return 0


def add_input(workspace: Workspace, *, offset: int, data: bytes, what: Parcel = "input") -> int:
    """The partial input with `data` at its end, and its length now.

    How long it may get is the caller's to bound. Raises PeerFault `input.offset` if that is not
    where the next piece belongs, and then nothing has changed; LocalFault of the host.
    """
    size = input_size(workspace, what)
    if offset != size or workspace.arrived(what).exists():
        raise PeerFault("input.offset", f"there are {size} bytes")
    partial = workspace.arriving(what)
    with host_faults(f"write {partial}"), partial.open("ab") as file:
        file.write(data)
    return size + len(data)


def finish_input(workspace: Workspace, expected: Input, what: Parcel = "input") -> None:
    """The input is complete, verified and durable under its final name.

    Raises PeerFault `archive.size` if bytes are missing; `archive.digest` if it is another
    archive, and then it starts from nothing again; LocalFault of the host.
    """
    arrived = workspace.arrived(what)
    if arrived.exists():
        return
    if (size := input_size(workspace, what)) != expected.bytes:
        raise PeerFault("archive.size", f"{size} of the {expected.bytes} bytes announced")
    partial = workspace.arriving(what)
    with host_faults(f"read {partial}"), partial.open("a+b") as file:
        file.seek(0)
        found = hashlib.sha256()
        while data := file.read(_READ_BYTES):
            found.update(data)
        if found.digest() != expected.digest:
            partial.unlink()
            raise PeerFault("archive.digest")
        os.fsync(file.fileno())
        partial.rename(arrived)


def write_notice(workspace: Workspace, notice: Notice) -> None:
    """The job finds the notice, whole, in P2PNODE_NOTICE. Raises LocalFault.

    The directory is the job's: whatever it has put in our way, nothing outside is touched.
    """
    text = msgspec.json.encode({"deadline_ms": notice.deadline_ms, "reason": notice.reason})
    flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    aside = f".{NOTICE_FILE}.part"
    with host_faults(f"write {workspace.notice}"):
        work = os.open(workspace.work, flags)
        try:
            with suppress(FileExistsError):
                os.mkdir(NOTICE_FOLDER, 0o755, dir_fd=work)
            folder = os.open(NOTICE_FOLDER, flags, dir_fd=work)
        finally:
            os.close(work)
        try:
            with suppress(FileNotFoundError):
                os.unlink(aside, dir_fd=folder)
            made = os.open(
                aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=folder
            )
            with os.fdopen(made, "wb") as file:
                file.write(text)
            os.replace(aside, NOTICE_FILE, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            os.close(folder)
