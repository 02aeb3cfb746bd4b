"""An ordered map from bytes to bytes that survives a crash: the Store port and its memory form."""

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from typing import Final, Protocol

from protocol.errors import LocalFault

Batch = Mapping[bytes, bytes | None]
"""What is written together or not at all; None takes the key away."""


class DamagedStore(LocalFault):
    """What is read is not what was written. Nothing is repaired in place."""

    def __init__(self, what: str) -> None:
        super().__init__(what, DAMAGE_CURE)


DAMAGE_CURE: Final = (
    "start the node, which moves the damaged ledger aside and has the peers send the entries again"
)


class Store(Protocol):
    """Where a ledger keeps its bytes. One owner, no other writer."""

    def get(self, key: bytes) -> bytes | None:
        """The value of the key, or None."""

    def range(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values from `start` up to but not including `stop`, in the order of the keys.

        Shows the store as it was when called; later writes do not.
        """

    def write(self, batch: Batch, *, sync: bool) -> None:
        """Sets all keys of the batch, or none; with `sync` it is on the disk on return.

        Raises LocalFault where our user must act, else Unavailable. All raise DamagedStore.
        """

    def close(self) -> None:
        """Lets go of the files; nothing else may be called afterwards."""


class MemoryStore:
    """See Store. Keeps nothing beyond its own life."""

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []

    def get(self, key: bytes) -> bytes | None:
        return self._values.get(key)

    def range(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        first, end = bisect_left(self._keys, start), bisect_left(self._keys, stop)
        return iter([(key, self._values[key]) for key in self._keys[first:end]])

    def write(self, batch: Batch, *, sync: bool) -> None:  # noqa: ARG002  memory has no disk
        for key, value in batch.items():
            if value is None:
                if self._values.pop(key, None) is not None:
                    del self._keys[bisect_left(self._keys, key)]
                continue
            if key not in self._values:
                insort(self._keys, key)
            self._values[key] = value

    def close(self) -> None:
        pass
