"""The Store on LevelDB; the only importer of plyvel. SPEC.md section 5."""

from collections.abc import Iterator
from typing import Final, NoReturn

import plyvel

from ledger.store import Batch, DamagedStore
from protocol.errors import LocalFault, Unavailable

_CACHE_BYTES: Final = 64 * 2**20
"""Holds the indices and hot blocks of some ten thousand feeds."""
_BLOOM_BITS: Final = 10
"""One look-up in a hundred of an absent key reads a block in vain."""


class LevelDbStore:
    """See Store. `open_leveldb` makes one."""

    def __init__(self, database: "plyvel.DB", path: str) -> None:
        self._database = database
        self._path = path

    def get(self, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._database.get(key, verify_checksums=True)
        except plyvel.Error as error:
            _raise(error, self._path)
        return value

    def range(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        # The iterator is made here and not at the first step: it shows the store as it is now.
        iterator = self._database.iterator(start=start, stop=stop, verify_checksums=True)
        return self._steps(iterator)

    def _steps(self, iterator: "plyvel.Iterator") -> Iterator[tuple[bytes, bytes]]:
        with iterator:
            try:
                yield from iterator
            except plyvel.Error as error:
                _raise(error, self._path)

    def write(self, batch: Batch, *, sync: bool) -> None:
        try:
            writes = self._database.write_batch(sync=sync)
            for key, value in batch.items():
                if value is None:
                    writes.delete(key)
                else:
                    writes.put(key, value)
            writes.write()
        except plyvel.Error as error:
            _raise(error, self._path)

    def close(self) -> None:
        self._database.close()


def open_leveldb(path: str) -> LevelDbStore:
    """The store in this directory, which is made if it is not there.

    Raises LocalFault if another process has it or the disk is full, DamagedStore; else Unavailable.
    """
    try:
        database = plyvel.DB(
            path,
            create_if_missing=True,
            paranoid_checks=True,
            bloom_filter_bits=_BLOOM_BITS,
            lru_cache_size=_CACHE_BYTES,
        )
    except plyvel.Error as error:
        _raise(error, path)
    return LevelDbStore(database, path)


def _raise(error: "plyvel.Error", path: str) -> NoReturn:
    said = str(error)
    if isinstance(error, plyvel.CorruptionError) or "corrupt" in said.lower():
        raise DamagedStore(f"The ledger in {path} is damaged: {said}") from error
    if "/LOCK: " in said and "No such file" not in said:
        raise LocalFault(
            f"The ledger in {path} is in use by another process.",
            "stop the other node, or give this one another home",
        ) from error
    if "No space left" in said:
        raise LocalFault(f"The disk of {path} is full.", "free some space, then start again") from (
            error
        )
    raise Unavailable(f"The ledger in {path} cannot be used: {said}") from error
