"""A store and a guard that stop at a chosen step, as a crash would."""

from collections.abc import Iterator

from ledger.entry import Draft
from ledger.guard import Guard
from ledger.store import Batch, MemoryStore, Store


class Crash(Exception):
    """The process is gone."""


class Fuse:
    """Blows at the n-th write, before or after that write is done."""

    def __init__(self, n: int, *, after: bool) -> None:
        self.left = n
        """Steps yet to begin, the one that blows included."""
        self._after = after
        self.is_blown = False

    def step(self, *, done: bool) -> None:
        if not done:
            self.left -= 1
        if self.left == 0 and done == self._after:
            self.is_blown = True
            raise Crash


class FaultyStore:
    """See Store."""

    def __init__(self, store: Store, fuse: Fuse) -> None:
        self._store = store
        self._fuse = fuse

    def get(self, key: bytes) -> bytes | None:
        return self._store.get(key)

    def range(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._store.range(start, stop)

    def write(self, batch: Batch, *, sync: bool) -> None:
        self._fuse.step(done=False)
        self._store.write(batch, sync=sync)
        self._fuse.step(done=True)

    def close(self) -> None:
        self._store.close()


class FaultyGuard:
    """See Guard."""

    def __init__(self, guard: Guard, fuse: Fuse) -> None:
        self._guard = guard
        self._fuse = fuse

    def reserved(self) -> Draft | None:
        return self._guard.reserved()

    def reserve(self, draft: Draft) -> None:
        self._fuse.step(done=False)
        self._guard.reserve(draft)
        self._fuse.step(done=True)


def copy_of(store: Store) -> MemoryStore:
    """What a backup of the store would hold."""
    copy = MemoryStore()
    copy.write(dict(store.range(b"\0", b"\xff")), sync=True)
    return copy
