"""When an owner uses its GPUs itself. Pure: loads and instants are arguments.

Load above a bound for a while is use; use ends when the load has stayed below half of the bound
for a longer while, so that a film that is paused does not let a job in.
"""

from dataclasses import dataclass
from typing import Final

from protocol.units import Millis, MillisSpan


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """From when on load is use."""

    load_ppm: int
    after_ms: MillisSpan
    idle_ms: MillisSpan


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What is known of one unit."""

    load_ppm: int
    """Of others than our jobs, at the last look."""
    since_ms: Millis
    """From when on the load has been on its side of the bound that matters now."""
    used_since_ms: Millis | None = None
    """None: it is not in use."""


class Detector:
    """Owns the states."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds: Final = bounds
        self.states: Final[dict[bytes, State]] = {}

    def note(self, unit: bytes, load_ppm: int, now: Millis) -> bool:
        """What a look at a unit has shown; whether it is in use now."""
        old = self.states.get(unit)
        used = None if old is None else old.used_since_ms
        bound = self.bounds.load_ppm if used is None else self.bounds.load_ppm // 2
        # The side that would change the state: above when idle, below when in use.
        is_beyond = (load_ppm > bound) is (used is None)
        was_beyond = old is not None and (old.load_ppm > bound) is (used is None)
        since = old.since_ms if old is not None and is_beyond and was_beyond else now
        wait = self.bounds.after_ms if used is None else self.bounds.idle_ms
        if is_beyond and now - since >= wait:
            used, since = (now, now) if used is None else (None, now)
        self.states[unit] = State(load_ppm=load_ppm, since_ms=since, used_since_ms=used)
        return used is not None

    @property
    def in_use(self) -> frozenset[bytes]:
        """The units that their owner uses."""
        return frozenset(
            unit for unit, state in self.states.items() if state.used_since_ms is not None
        )
