"""How long work takes: rounds of several kinds of work in turn, so that all meet the same machine.

A ratio of two kinds in one round says more than either figure: the machine is in both.
"""

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import process_time, thread_time
from timeit import default_timer

from testnet.bench.report import Bar, Figures

Work = Callable[[], float]
"""Does something once and returns seconds for each piece of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one part of a benchmark found."""

    figures: Figures
    bars: tuple[Bar, ...]


def cpu_s(work: Callable[[], object], pieces: int) -> float:
    """Processor seconds of this process, all its threads, for each piece."""
    began = process_time()
    work()
    return (process_time() - began) / pieces


def wall_s(work: Callable[[], object], pieces: int = 1) -> float:
    """Seconds for each piece."""
    began = default_timer()
    work()
    return (default_timer() - began) / pieces


def waits_s(work: Callable[[], object]) -> float:
    """Seconds in which the work was not on the processor: it waited for the disk, mostly."""
    began, used = default_timer(), thread_time()
    work()
    return (default_timer() - began) - (thread_time() - used)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """What each kind of work took in each round, in microseconds for each piece."""

    us: Mapping[str, Sequence[float]]

    def middle(self, name: str) -> float:
        """The median of one kind of work."""
        return median(self.us[name])

    def ratio(self, name: str, to: str) -> float:
        """The median of the ratios of two kinds of work, each of one round."""
        return median(one / other for one, other in zip(self.us[name], self.us[to], strict=True))


def in_turn(works: Mapping[str, Work], rounds: int) -> Rounds:
    """All kinds of work in turn, so many rounds."""
    # What the benchmark itself holds is not to be walked again and again by the collector.
    gc.collect()
    gc.freeze()
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            taken[name].append(work() * 1e6)
    gc.unfreeze()
    return Rounds(us=taken)
