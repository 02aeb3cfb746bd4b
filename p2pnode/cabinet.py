"""Small records that survive a crash: the Cabinet port, on files and in memory."""

from pathlib import Path
from typing import Final, Protocol

from p2pnode.home import host_faults, read_if_there, write_durably
from protocol.codec import Wire, decode, encode
from protocol.errors import LocalFault, PeerFault

RECORD_BYTES_MAX: Final = 2_097_152


class Cabinet(Protocol):
    """Records by name; a name is one or more words joined by slashes."""

    def put(self, name: str, record: bytes) -> None:
        """Keep the record; durable on return, old or new after a crash. Raises LocalFault."""

    def get(self, name: str) -> bytes | None:
        """The record, or None. Raises LocalFault."""

    def names(self, folder: str) -> list[str]:
        """The names in this folder, sorted, each with the folder in front. Raises LocalFault."""

    def remove(self, name: str) -> None:
        """Forget the record if there is one. Raises LocalFault."""


def put_record(cabinet: Cabinet, name: str, record: Wire) -> None:
    """Keep what can be read back. Raises LocalFault if it could not, and as `put`."""
    raw = encode(record)
    try:
        decode(raw, type(record), size_max=RECORD_BYTES_MAX)
    except PeerFault as fault:
        raise LocalFault(f"This cannot be kept: {fault.detail or fault.rule}.") from fault
    cabinet.put(name, raw)


class FileCabinet:
    """See Cabinet. One file for each record, for our user alone."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, name: str, record: bytes) -> None:
        path = self._root / name
        with host_faults(f"make the directory {path.parent}"):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_durably(path, record)

    def get(self, name: str) -> bytes | None:
        return read_if_there(self._root / name, size_max=RECORD_BYTES_MAX)

    def names(self, folder: str) -> list[str]:
        where = self._root / folder
        with host_faults(f"list {where}"):
            if not where.is_dir():
                return []
            return sorted(f"{folder}/{entry.name}" for entry in where.iterdir())

    def remove(self, name: str) -> None:
        with host_faults(f"remove {self._root / name}"):
            (self._root / name).unlink(missing_ok=True)


class MemoryCabinet:
    """See Cabinet. Survives what its owner survives: a world keeps it while it kills nodes."""

    def __init__(self) -> None:
        self._records: dict[str, bytes] = {}

    def put(self, name: str, record: bytes) -> None:
        self._records[name] = record

    def get(self, name: str) -> bytes | None:
        return self._records.get(name)

    def names(self, folder: str) -> list[str]:
        depth = folder.count("/") + 2
        return sorted(
            {
                "/".join(name.split("/")[:depth])
                for name in self._records
                if name.startswith(f"{folder}/")
            }
        )

    def remove(self, name: str) -> None:
        self._records.pop(name, None)
