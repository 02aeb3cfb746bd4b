"""The ledger's database in its directory on the disk."""

from pathlib import Path

from ledger.leveldb_store import LevelDbStore, open_leveldb
from p2pnode.home import sync_folder


def open_own_store(path: Path) -> LevelDbStore:
    """The store in this directory, which is there again after a loss of power.

    Raises LocalFault and Unavailable as `open_leveldb`.
    """
    store = open_leveldb(str(path))
    # LevelDB syncs what it writes, but not the rename by which it begins to use it. It renames
    # when it is opened and never later.
    sync_folder(path)
    return store
