"""What a run wrote, bounded: the first half of the bound and at least its last quarter are kept.

A log is a directory of append-only segments, each named by the offset of its first byte, so an
offset means the same for ever and a follower sees where the gap is. The standard library alone:
the supervisor of a process loads this. A missing or full disk loses log, never the job.
"""

import os
from contextlib import suppress
from pathlib import Path


class RunLog:
    """Writes one log; the only one that does. Goes on where an earlier writer ended."""

    def __init__(self, folder: Path, *, bytes_max: int) -> None:
        self._folder = folder
        self._head = bytes_max // 2
        self._segment = bytes_max // 4
        self._start = 0
        self._end = 0
        self._tail: list[int] = []
        self._descriptor = -1

    @property
    def end(self) -> int:
        """How many bytes were ever written."""
        return self._end

    def open(self) -> None:
        """Continue what is there. Raises OSError if the directory cannot be made."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        starts = segments(self._folder)
        self._tail = [start for start in starts if start >= self._head > 0]
        if starts:
            self._start = starts[-1]
            self._end = end_of(self._folder)

    def append(self, data: bytes) -> None:
        """Take all of `data`, keep what the bound allows. Never fails and never blocks for long."""
        view = memoryview(data)
        while view:
            room = self._room()
            if room == 0:
                self._end += len(view)
                return
            part = view[:room]
            # A disk that is full costs a hole in the log, and the job does not notice.
            with suppress(OSError):
                self._write(part)
            self._end += len(part)
            view = view[len(part) :]

    def close(self) -> None:
        """Let go of the file; a later append would open it again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def _room(self) -> int:
        """How much fits into the current segment, after starting the next one if it is full."""
        if self._end < self._head:
            return self._head - self._end
        if self._segment == 0:
            return 0
        if not self._tail or self._end >= self._start + self._segment:
            self._begin()
        return self._start + self._segment - self._end

    def _begin(self) -> None:
        self.close()
        # Two segments of the tail at most, so the older goes before the newer comes.
        while len(self._tail) > 1:
            with suppress(OSError):
                path_of(self._folder, self._tail.pop(0)).unlink()
        self._start = self._end
        self._tail.append(self._start)

    def _write(self, part: memoryview) -> None:
        if self._descriptor < 0:
            self._descriptor = os.open(
                path_of(self._folder, self._start),
                os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW,
                0o600,
            )
        # By offset, so that what a full disk has swallowed shifts nothing that comes after it.
        os.pwrite(self._descriptor, part, self._end - self._start)


def path_of(folder: Path, start: int) -> Path:
    """Where the segment that begins at this offset lies."""
    return folder / f"{start:020d}"


def segments(folder: Path) -> list[int]:
    """The offsets at which the kept segments begin, rising. A missing log has none."""
    with suppress(FileNotFoundError):
        return sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal())
    return []


def gap_line(size: int) -> bytes:
    """What stands in a log where so many bytes were not kept."""
    return b"\n[p2pnode] %d bytes of the log were not kept\n" % size


def end_of(folder: Path) -> int:
    """How many bytes were ever written, as far as the files tell. Raises OSError of the host."""
    starts = segments(folder)
    return starts[-1] + path_of(folder, starts[-1]).stat().st_size if starts else 0


def read_part(folder: Path, offset: int, size_max: int) -> tuple[int, bytes]:
    """(offset, data): what is kept at `offset`, or else the next that is kept after it.

    Empty data, with the offset given, if there is nothing yet. Raises OSError of the host.
    """
    starts = segments(folder)
    here = [start for start in starts if start <= offset][-1:]
    for start in (*here, *(start for start in starts if start > offset)):
        begin = max(offset, start)
        # The writer may have dropped the segment meanwhile; then the next one is the answer.
        with suppress(FileNotFoundError), path_of(folder, start).open("rb") as file:
            file.seek(begin - start)
            if data := file.read(size_max):
                return begin, data
    return offset, b""
