"""Where a node dies: counts durable writes and sent frames, and ends a life at a chosen one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NoReturn

Step = Literal["write", "frame"]


class Killed(BaseException):
    """The node is gone. No error of the node's: nothing in it may catch this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """An instant in the life of a node, or of a whole network."""

    step: Step
    n: int
    """The how-manieth of its kind, from 1."""
    is_done: bool
    """Whether the step itself still happens."""

    def __str__(self) -> str:
        return f"{'after' if self.is_done else 'before'} {self.step} {self.n}"


class Fuse:
    """Counts the steps of all lives that share it; without a point it never blows."""

    def __init__(self, point: Point | None = None) -> None:
        self._point = point
        self.counts: dict[Step, int] = {"write": 0, "frame": 0}
        self.is_blown = False

    def begins(self, step: Step) -> bool:
        """Another step is about to be made; whether somebody dies of it first."""
        self.counts[step] += 1
        return self._is_at(step, is_done=False)

    def has_done(self, step: Step) -> bool:
        """The step was made; whether somebody dies of it now."""
        return self._is_at(step, is_done=True)

    def _is_at(self, step: Step, *, is_done: bool) -> bool:
        point = self._point
        if self.is_blown or point is None or (point.step, point.is_done) != (step, is_done):
            return False
        # Steps overlap, so that the next may have begun before this one is done.
        self.is_blown = self.counts[step] >= point.n
        return self.is_blown


class Life:
    """One life of a node, from its start to its death; after it no port of it does anything."""

    def __init__(self, fuse: Fuse, *, on_death: Callable[[], None]) -> None:
        self._fuse = fuse
        self._on_death = on_death
        self.is_over = False

    def look(self) -> None:
        """Something is read. Raises Killed."""
        if self.is_over:
            raise Killed

    def begin(self, step: Step) -> None:
        """Before a step. Raises Killed."""
        self.look()
        if self._fuse.begins(step):
            self.end()

    def finish(self, step: Step) -> None:
        """After a step. Raises Killed."""
        self.look()
        if self._fuse.has_done(step):
            self.end()

    def end(self) -> NoReturn:
        """Die here."""
        self.die()
        raise Killed

    def die(self) -> None:
        """From now on nothing happens any more."""
        self.is_over = True
        self._on_death()
