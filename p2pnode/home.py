"""Where a node keeps its things, written so that a crash at any time leaves old or new, not half.

An OSError of the host leaves here as a LocalFault. What the files mean is for others to know.
"""

import errno
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import platformdirs

from p2pnode.config import home_variable
from protocol.errors import LocalFault
from protocol.limits import INT_MAX
from protocol.units import Millis

SOCKET_PATH_BYTES_MAX: Final = 107
"""sun_path of Linux holds 108 with the closing zero."""

_CURES: Final = {
    errno.ENOSPC: "free some space on that disk",
    errno.EDQUOT: "free some of your quota on that disk",
    errno.EROFS: "set P2PNODE_HOME to a directory that can be written",
    errno.EACCES: "give your user the rights to it, or set P2PNODE_HOME to another directory",
    errno.EPERM: "give your user the rights to it, or set P2PNODE_HOME to another directory",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """The directories of one node; every path that it uses is named here."""

    config_dir: Path
    data_dir: Path
    state_dir: Path
    runtime_dir: Path

    @property
    def config(self) -> Path:
        """The owner's choices, see p2pnode.config."""
        return self.config_dir / "config.toml"

    @property
    def genesis(self) -> Path:
        """The network that the node belongs to."""
        return self.data_dir / "genesis.cbor"

    @property
    def bootstrap(self) -> Path:
        """The first peers that an invite named."""
        return self.data_dir / "bootstrap"

    @property
    def keys(self) -> Path:
        """The directory of root.key, feed.key, peer.key, x25519.key and next-feed.key."""
        return self.data_dir / "keys"

    @property
    def certificate(self) -> Path:
        """What lets the keys act for the account; can be made again from root.key."""
        return self.data_dir / "certificate.cbor"

    @property
    def new_feed(self) -> Path:
        """There while no entry of our feed has been signed; holds the feed's key in hex."""
        return self.data_dir / "feed-is-new"

    @property
    def succession(self) -> Path:
        """What our feed says of the one that it follows, signed by the root key."""
        return self.data_dir / "succession.cbor"

    @property
    def incarnation(self) -> Path:
        """The number of the latest start, in decimal."""
        return self.data_dir / "incarnation"

    @property
    def ledger(self) -> Path:
        """The directory of the database."""
        return self.data_dir / "ledger"

    @property
    def guard(self) -> Path:
        """What keeps a restored database from forking our feed, so it is never inside `ledger`."""
        return self.data_dir / "guard"

    @property
    def feed_guard(self) -> Path:
        """The guard of the feed that we write."""
        return self.guard / "feed"

    @property
    def jobs(self) -> Path:
        """The directory of what jobs read and write."""
        return self.data_dir / "jobs"

    @property
    def rentals(self) -> Path:
        """The directory of inputs, logs and outputs of the jobs that we have run elsewhere."""
        return self.data_dir / "rentals"

    @property
    def records(self) -> Path:
        """The directory of small durable records, see p2pnode.cabinet."""
        return self.data_dir / "records"

    @property
    def lock(self) -> Path:
        """Held while a node runs; beside the data, which is what two nodes must not share."""
        return self.data_dir / "node.lock"

    @property
    def pid(self) -> Path:
        """Who holds the lock, only for people to read."""
        return self.data_dir / "node.pid"

    @property
    def log(self) -> Path:
        """What the node tells."""
        return self.state_dir / "node.log"

    @property
    def socket(self) -> Path:
        """Where the running node answers its command line."""
        return self.runtime_dir / "node.sock"


def find_home(folder: Path | None = None) -> Home:
    """The home in `folder`, or in P2PNODE_HOME, or else in the user's usual directories.

    Makes nothing. Raises LocalFault if the host has no safe place for the socket.
    """
    chosen = folder or home_variable()
    if chosen is not None:
        one = chosen.expanduser().absolute()
        return Home(config_dir=one, data_dir=one, state_dir=one, runtime_dir=one)
    usual = platformdirs.PlatformDirs("p2pnode", appauthor=False)
    with host_faults("find a directory for the socket"), warnings.catch_warnings():
        # Without XDG_RUNTIME_DIR there is a private directory under /tmp, which does as well.
        warnings.simplefilter("ignore", UserWarning)
        runtime_dir = usual.user_runtime_path
    return Home(
        config_dir=usual.user_config_path,
        data_dir=usual.user_data_path,
        state_dir=usual.user_state_path,
        runtime_dir=runtime_dir,
    )


def make_folders(home: Home) -> None:
    """All directories of the home are there, and only our user may look into them.

    Raises LocalFault if one cannot be made or is another user's, or as `check_socket` does.
    """
    check_socket(home.socket)
    own = (home.config_dir, home.data_dir, home.state_dir, home.runtime_dir)
    for folder in dict.fromkeys(
        (*own, home.keys, home.ledger, home.guard, home.jobs, home.rentals)
    ):
        with host_faults(f"make the directory {folder}"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = folder.stat()
            if status.st_uid != os.geteuid():
                raise LocalFault(
                    f"{folder} belongs to another user.",
                    "set P2PNODE_HOME to a directory of your own",
                )
            if status.st_mode & 0o077:
                folder.chmod(0o700)


def check_socket(path: Path) -> None:
    """Raises LocalFault if the host allows no socket with so long a path."""
    length = len(os.fsencode(path))
    if length > SOCKET_PATH_BYTES_MAX:
        raise LocalFault(
            f"the path of the socket {path} has {length} bytes, and the system allows "
            f"{SOCKET_PATH_BYTES_MAX}.",
            "set P2PNODE_HOME to a shorter path",
        )


@contextmanager
def locked(home: Home) -> Iterator[None]:
    """While inside, this is the only node on the home; enter before anything is opened.

    After `make_folders`. Raises LocalFault if another node is inside.
    """
    # The command line loads this module at each call and never locks: it is spared the 50 ms.
    from filelock import FileLock, Timeout  # noqa: PLC0415

    lock = FileLock(home.lock, timeout=0, mode=0o600)
    with host_faults(f"lock {home.lock}"):
        try:
            lock.acquire()
        except Timeout as error:
            pid = (read_if_there(home.pid, size_max=20) or b"unknown").decode("ascii", "replace")
            raise LocalFault(
                f"another node runs on this home (pid {pid}).",
                "stop it, or set P2PNODE_HOME to another directory",
            ) from error
    try:
        write_durably(home.pid, b"%d" % os.getpid())
        yield
    finally:
        # Nobody reads the number unless the lock is held, so a file that stays does no harm.
        with suppress(OSError):
            home.pid.unlink(missing_ok=True)
        lock.release()


def next_incarnation(home: Home, now: Millis) -> int:
    """The number of this start: higher than that of each before, and durable once returned.

    It is the instant unless the clock was set back. Raises LocalFault if the file is damaged.
    """
    text = read_if_there(home.incarnation, size_max=20)
    if text is not None and not (text.isdigit() and int(text) < INT_MAX):
        raise LocalFault(
            f"{home.incarnation} does not hold a number.",
            "make sure that the clock is right, then delete that file",
        )
    number = max(now, int(text or 0) + 1)
    write_durably(home.incarnation, b"%d" % number)
    return number


def write_durably(path: Path, data: bytes) -> None:
    """The file holds `data` or, if we crash before the end, still what it held; mode 0600.

    Raises LocalFault if the host cannot.
    """
    with host_faults(f"write {path}"), _written_aside(path, data) as aside:
        aside.replace(path)


def write_new(path: Path, data: bytes) -> None:
    """As `write_durably`, but raises LocalFault and changes nothing if the file is there."""
    with host_faults(f"make {path}"), _written_aside(path, data) as aside:
        path.hardlink_to(aside)


@contextmanager
def _written_aside(path: Path, data: bytes) -> Iterator[Path]:
    """A temporary file with `data`, safe on disk; afterwards its directory is safe as well."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    aside = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield aside
    finally:
        aside.unlink(missing_ok=True)
    _sync(path.parent)


def remove_durably(path: Path) -> None:
    """The file is gone, also after a loss of power. Raises LocalFault if the host cannot."""
    with host_faults(f"remove {path}"):
        path.unlink(missing_ok=True)
        _sync(path.parent)


def sync_folder(path: Path) -> None:
    """The names in the directory are durable. Raises LocalFault if the host cannot."""
    with host_faults(f"sync {path}"):
        _sync(path)


def _sync(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_if_there(path: Path, *, size_max: int) -> bytes | None:
    """The bytes of the file; None if there is none.

    Raises LocalFault if the host cannot read it or it is larger than `size_max`.
    """
    with host_faults(f"read {path}"), suppress(FileNotFoundError), path.open("rb") as file:
        data = file.read(size_max + 1)
        if len(data) > size_max:
            raise LocalFault(f"{path} is larger than {size_max} bytes.", f"ls -l {path}")
        return data
    return None


@contextmanager
def host_faults(doing: str) -> Iterator[None]:
    """An OSError inside becomes a LocalFault that says what was not possible and why."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        cure = _CURES.get(error.errno or 0, "")
        raise LocalFault(f"cannot {doing}: {why}.", cure) from error
