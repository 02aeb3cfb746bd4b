"""Copies a container's log into the run's own, each byte once, however often it is begun anew.

Docker sends frames: a kind, three zeros, the length in four bytes, then an instant, a blank and a
piece of at most 16 KiB. Where to go on is an instant, since Docker drops the oldest pieces.
"""

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final

from p2pnode.execution.records import read_record, write_record
from p2pnode.execution.run_log import RunLog

_HEADER: Final = 8
_SAVE_BYTES: Final = 2**20
"""How much is sent again at the most after a crash."""


class LogCopy:
    """One run's log on its way. Used by one thread at a time."""

    def __init__(self, log: RunLog, record: Path) -> None:
        self._log = log
        self._record = record
        self._waiting = bytearray()
        self._at = ""
        """The latest instant of a piece that was taken."""
        self._from = ""
        """The instant where this copy goes on."""
        self._seen = 0
        """How many pieces with that instant were."""
        self._saved_end = 0
        self._ignore_pieces = 0
        self._ignore_bytes = 0

    def open(self) -> str:
        """Go on where an earlier copy ended; what to ask Docker for as `since`. Raises OSError."""
        self._log.open()
        facts = read_record(self._record) or {}
        self._at = facts.get("at", "")
        self._from = self._at
        self._seen = 0
        self._ignore_pieces = int(facts.get("seen", 0))
        self._saved_end = int(facts.get("end", 0))
        # What came after the last save is in the log already.
        self._ignore_bytes = max(0, self._log.end - self._saved_end)
        self._waiting.clear()
        return _since(self._at)

    def take(self, chunks: Iterable[bytes]) -> None:
        """Copy until the chunks end, or break off as the socket is shut."""
        with suppress(OSError, ValueError, AttributeError):
            for chunk in chunks:
                self._waiting += chunk
                self._take_frames()

    def close(self) -> None:
        """Remember where to go on; if that fails, a little more is sent again next time."""
        with suppress(OSError):
            self._save()
        self._log.close()

    def _take_frames(self) -> None:
        while len(self._waiting) >= _HEADER:
            end = _HEADER + int.from_bytes(self._waiting[4:_HEADER], "big")
            if len(self._waiting) < end:
                return
            frame = bytes(self._waiting[_HEADER:end])
            del self._waiting[:end]
            at, _, piece = frame.partition(b" ")
            self._take_piece(at.decode("ascii", "replace"), piece)

    def _take_piece(self, at: str, piece: bytes) -> None:
        # Only what came before the place where we go on: of stdout and stderr, which Docker reads
        # side by side, the later piece may bear the earlier instant.
        if at < self._from:
            return
        if at == self._at and self._seen < self._ignore_pieces:
            self._seen += 1
            return
        if at > self._at:
            self._at, self._seen, self._ignore_pieces = at, 0, 0
        self._seen += at == self._at
        fresh = piece[self._ignore_bytes :]
        self._ignore_bytes -= len(piece) - len(fresh)
        self._log.append(fresh)
        if self._log.end - self._saved_end >= _SAVE_BYTES and not self._ignore_bytes:
            with suppress(OSError):
                self._save()

    def _save(self) -> None:
        if self._ignore_bytes or not self._at:
            return
        seen = max(self._seen, self._ignore_pieces)
        facts = {"at": self._at, "seen": str(seen), "end": str(self._log.end)}
        write_record(self._record, facts)
        self._saved_end = self._log.end


def _since(at: str) -> str:
    """Docker's seconds and nanoseconds for one of its own instants, exactly."""
    if not at:
        return "0"
    whole, _, rest = at.removesuffix("Z").partition(".")
    return f"{int(datetime.fromisoformat(whole + '+00:00').timestamp())}.{rest or '0'}"
