"""Logs as JSON lines: time, level, event, and the facts of the event. Bounded on disk.

Calls give a constant event and its facts: `log.info("lease ended", extra={"lease": id})`.
"""

import logging
import logging.handlers
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

BYTES_MAX: Final = 10_000_000
FILES_KEPT: Final = 3
"""A node's log takes at most 40 MB."""

_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}


class JsonLines(logging.Formatter):
    """One JSON object for each record."""

    def format(self, record: logging.LogRecord) -> str:
        """Time in UTC, level, logger, event, then what the call gave as `extra`."""
        at = datetime.fromtimestamp(record.created, tz=UTC)
        line: dict[str, object] = {
            "at": at.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        line.update((key, value) for key, value in record.__dict__.items() if key not in _STANDARD)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=repr).decode()


def log_to(path: Path) -> None:
    """Send our events of INFO and above to this file, and the libraries' serious ones."""
    handler = logging.handlers.RotatingFileHandler(
        path, maxBytes=BYTES_MAX, backupCount=FILES_KEPT, encoding="utf-8"
    )
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("p2pnode").setLevel(logging.INFO)
    # The library logs each connection and each failed handshake, as errors.
    logging.getLogger("libp2p").setLevel(logging.CRITICAL)
