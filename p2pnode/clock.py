"""The instant now, for what is signed and shown; waiting is trio's. Nothing else asks the host."""

import time
from collections.abc import Callable
from typing import Protocol

from protocol.units import Millis


class WallClock(Protocol):
    """Where the instant comes from: the host, or a simulation."""

    def now(self) -> Millis:
        """The instant; never before one that it has told already."""


class SystemClock:
    """See WallClock. `nanoseconds` is the host's clock, which may be set back; this one stays."""

    def __init__(self, nanoseconds: Callable[[], int] = time.time_ns) -> None:
        self._nanoseconds = nanoseconds
        self._latest = Millis(0)

    def catch_up(self, told: Millis) -> None:
        """Never tell an instant before this one: it was told when we ran before."""
        self._latest = max(self._latest, told)

    def now(self) -> Millis:
        self._latest = max(self._latest, Millis(self._nanoseconds() // 10**6))
        return self._latest
