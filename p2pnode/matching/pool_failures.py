"""Owners that failed a job on several nodes, which its next attempts leave out. Pure."""

from collections.abc import Iterator
from typing import Final

from protocol.units import Millis, MillisSpan, PublicKey

LEFT_OUT_MS: Final = MillisSpan(300_000)
"""An owner that did not hold or did not grant may be free again, or mended, by then."""
FAILURES_MAX: Final = 32


class Failures:
    """Of one job; in memory, as a node that starts anew may ask everybody once more."""

    def __init__(self) -> None:
        self._at: dict[PublicKey, Millis] = {}
        """When each failed last, that of longest ago first."""

    def note(self, owner: PublicKey, now: Millis) -> None:
        """It did not hold what it advertises, or did not grant what it held."""
        self._at.pop(owner, None)
        self._at[owner] = now
        while len(self._at) > FAILURES_MAX:
            del self._at[next(iter(self._at))]

    def left_out(self, now: Millis) -> Iterator[set[PublicKey]]:
        """Whom to leave out: all that failed lately, else all but that of longest ago, and so on.

        The last is the empty set, so that nobody is left out where nobody else is left.
        """
        lately = [owner for owner, at in self._at.items() if now - at < LEFT_OUT_MS]
        for number in range(len(lately) + 1):
            yield set(lately[number:])
