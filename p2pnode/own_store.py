"""The ledger's database and guard on the disk: what is damaged is moved aside and never deleted."""

import logging
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import TypeVar

from ledger.file_guard import FileGuard, newest, open_file_guard
from ledger.leveldb_store import LevelDbStore, open_leveldb
from ledger.store import DamagedStore, Store
from p2pnode.home import host_faults, sync_folder
from protocol.errors import LocalFault
from protocol.units import NetId

T = TypeVar("T")

log = logging.getLogger(__name__)


@contextmanager
def opened_store(path: Path, build: Callable[[Store], T]) -> Iterator[T]:
    """What `build` makes of the database in this directory, which is closed afterwards.

    If the database is damaged, `build` gets an empty one, whose entries must be fetched again; if
    that shows only later, within the block, the next opening does so.
    Raises LocalFault and Unavailable as `open_leveldb`, `build` and `set_aside`.
    """
    try:
        store, built = _built(path, build)
    except DamagedStore as damage:
        set_aside(path, str(damage))
        store, built = _built(path, build)
    try:
        with closing(store):
            yield built
    except DamagedStore as damage:
        set_aside(path, str(damage))
        raise
    except BaseExceptionGroup as group:
        if (damages := group.subgroup(DamagedStore)) is not None:
            set_aside(path, str(damages))
        raise


def _built(path: Path, build: Callable[[Store], T]) -> tuple[LevelDbStore, T]:
    store = open_own_store(path)
    try:
        return store, build(store)
    except BaseException:
        store.close()
        raise


def open_own_store(path: Path) -> LevelDbStore:
    """The store in this directory, which is there again after a loss of power.

    Raises LocalFault and Unavailable as `open_leveldb`.
    """
    check_current(path)
    store = open_leveldb(str(path))
    # LevelDB syncs what it writes, but not the rename by which it begins to use it. It renames
    # when it is opened and never later.
    sync_folder(path)
    return store


def check_current(path: Path) -> None:
    """Without CURRENT, LevelDB makes a new database and deletes the files of the old one.

    Raises DamagedStore if that would happen here.
    """
    if not path.exists() or (path / "CURRENT").exists():
        return
    if any(any(path.glob(kind)) for kind in ("MANIFEST-*", "*.log", "*.ldb", "*.sst")):
        raise DamagedStore(f"The ledger in {path} is damaged: CURRENT is missing.")


def open_own_guard(path: Path, net: NetId) -> FileGuard:
    """The guard in this file; an empty one if what was there is damaged. Raises LocalFault."""
    guard = open_file_guard(path, net)
    with host_faults(f"read {path}"):
        raw = path.read_bytes()
    try:
        newest(raw, net, str(path))
    except LocalFault as damage:
        set_aside(path, str(damage))
        guard = open_file_guard(path, net)
    return guard


def set_aside(path: Path, why: str) -> None:
    """Give the file or directory another name, beside its own, and tell. Raises LocalFault."""
    with host_faults(f"move {path} aside"):
        names = (path.with_name(f"{path.name}.damaged-{n}") for n in count(1))
        aside = next(name for name in names if not name.exists())
        path.rename(aside)
        if aside.is_dir():
            path.mkdir(mode=0o700)
    sync_folder(path.parent)
    log.error("damaged, set aside", extra={"why": why, "path": str(aside)})
