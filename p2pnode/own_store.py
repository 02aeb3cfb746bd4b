"""The ledger's database in its directory on the disk."""

import os
from pathlib import Path

from ledger.leveldb_store import LevelDbStore, open_leveldb
from p2pnode.home import host_faults


def open_own_store(path: Path) -> LevelDbStore:
    """The store in this directory, which is there again after a loss of power.

    Raises LocalFault and Unavailable as `open_leveldb`.
    """
    store = open_leveldb(str(path))
    # LevelDB syncs what it writes, but not the rename by which it begins to use it. It renames
    # when it is opened and never later.
    with host_faults(f"sync {path}"):
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    return store
