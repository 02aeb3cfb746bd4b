"""Copies a container's log into the run's own, each byte once, however often it is begun anew.

Docker sends frames: a kind, three zeros, the length in four bytes, then an instant, a blank and a
piece of at most 16 KiB. Where to go on is an instant, since Docker drops the oldest pieces. Only
within one kind do instants ascend: stdout and stderr are stamped side by side, so that a piece of
the one may be written down after pieces of the other that bear later instants.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from p2pnode.execution.records import read_record, write_record
from p2pnode.execution.run_log import RunLog

_HEADER: Final = 8
_KINDS: Final = (1, 2)
"""stdout, stderr."""
_LATE_S: Final = 60
"""How long before the latest instant a copy goes on: no piece is written down later than that."""
_SAVE_BYTES: Final = 2**20
"""How much is sent again at the most after a crash."""


@dataclass(slots=True)
class _Place:
    """How far one kind was taken, and how far it was when this copy began."""

    at: str = ""
    """The latest instant of a piece that was taken."""
    seen: int = 0
    """How many pieces with that instant were."""
    before: str = ""
    skipped: int = 0
    """How many with the instant `before` are still to be sent again."""

    def is_new(self, at: str) -> bool:
        """Count the piece, unless it was taken before the copy was begun."""
        if at < self.before:
            return False
        if at == self.before and self.skipped:
            self.skipped -= 1
            return False
        if at > self.at:
            self.at, self.seen = at, 0
        self.seen += at == self.at
        return True


class LogCopy:
    """One run's log on its way. Used by one thread at a time."""

    def __init__(self, log: RunLog, record: Path) -> None:
        self._log = log
        self._record = record
        self._waiting = bytearray()
        self._places: dict[int, _Place] = {}
        self._saved_end = 0
        self._ignore_bytes = 0

    def open(self) -> str:
        """Go on where an earlier copy ended; what to ask Docker for as `since`. Raises OSError."""
        self._log.open()
        facts = read_record(self._record) or {}
        self._places = {kind: _place_of(facts, kind) for kind in _KINDS}
        self._saved_end = int(facts.get("end", 0))
        # What came after the last save is in the log already.
        self._ignore_bytes = max(0, self._log.end - self._saved_end)
        self._waiting.clear()
        return _since(max(place.at for place in self._places.values()))

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
            kind, frame = self._waiting[0], bytes(self._waiting[_HEADER:end])
            del self._waiting[:end]
            at, _, piece = frame.partition(b" ")
            place = self._places.setdefault(kind, _Place())
            if place.is_new(at.decode("ascii", "replace")):
                self._take_piece(piece)

    def _take_piece(self, piece: bytes) -> None:
        fresh = piece[self._ignore_bytes :]
        self._ignore_bytes -= len(piece) - len(fresh)
        self._log.append(fresh)
        if self._log.end - self._saved_end >= _SAVE_BYTES and not self._ignore_bytes:
            with suppress(OSError):
                self._save()

    def _save(self) -> None:
        if self._ignore_bytes:
            return
        facts = {"end": str(self._log.end)}
        for kind in _KINDS:
            place = self._places[kind]
            facts |= {f"at_{kind}": place.at, f"seen_{kind}": str(place.seen)}
        write_record(self._record, facts)
        self._saved_end = self._log.end


def _place_of(facts: dict[str, str], kind: int) -> _Place:
    at, seen = facts.get(f"at_{kind}", ""), int(facts.get(f"seen_{kind}", 0))
    return _Place(at=at, seen=seen, before=at, skipped=seen)


def _since(latest: str) -> str:
    """Docker's seconds for one of its own instants, early enough for what is written down late."""
    if not latest:
        return "0"
    whole = latest.removesuffix("Z").partition(".")[0]
    return f"{int(datetime.fromisoformat(whole + '+00:00').timestamp()) - _LATE_S}"
