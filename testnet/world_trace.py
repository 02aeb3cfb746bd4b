"""The canonical trace of a world: each log record's event and facts in order, as one digest."""

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Final

import trio

who: ContextVar[str] = ContextVar("who", default="world")
"""The node in whose task a record is written."""

_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}
_LOGGERS: Final = ("p2pnode", "testnet")


class Trace(logging.Handler):
    """Digests records; with a path it writes them there as lines too, to compare two runs."""

    def __init__(self, path: Path | None) -> None:
        super().__init__(logging.DEBUG)
        self._path = path
        self._digest = hashlib.sha256()
        self._lines: list[str] = []
        self.records = 0

    def emit(self, record: logging.LogRecord) -> None:
        """One record: virtual time, node, event, facts in order of their names."""
        facts = sorted(
            (name, value) for name, value in record.__dict__.items() if name not in _STANDARD
        )
        failed = record.exc_info[0] if record.exc_info else None
        line = (
            f"{trio.current_time():.6f} {who.get()} {record.levelname} {record.name} "
            f"{record.getMessage()} {facts} {failed}"
        )
        self.records += 1
        self.add(line)

    def add(self, line: str) -> None:
        """Another line of the trace."""
        self._digest.update(line.encode() + b"\n")
        if self._path is not None:
            self._lines.append(line)

    def add_stored(self, name: str, records: Iterable[tuple[bytes, bytes]]) -> None:
        """All that a node's ledger holds at the end."""
        for key, value in records:
            self.add(f"{name} {key.hex()} {value.hex()}")

    def hexdigest(self) -> str:
        """Of everything so far."""
        return self._digest.hexdigest()

    def keep(self) -> None:
        """Write the lines down, if there is a path for them."""
        if self._path is not None:
            self._path.write_text("\n".join(self._lines) + "\n")


@contextmanager
def traced(trace: Trace) -> Iterator[None]:
    """Within the block the trace sees every record of ours, and nobody else does."""
    before: Mapping[str, tuple[int, bool]] = {
        name: (logging.getLogger(name).level, logging.getLogger(name).propagate)
        for name in _LOGGERS
    }
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.addHandler(trace)
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
    try:
        yield
    finally:
        for name, (level, propagate) in before.items():
            logger = logging.getLogger(name)
            logger.removeHandler(trace)
            logger.setLevel(level)
            logger.propagate = propagate
