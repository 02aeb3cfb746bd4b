"""How long work takes: rounds of several kinds of work in turn, so that all meet the same machine.

A ratio of medians out of one run says more than either figure: the machine is in both.
"""

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from time import process_time
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


def in_turn(works: Mapping[str, Work], rounds: int) -> dict[str, float]:
    """The median of each work's rounds, in microseconds for each piece."""
    # What the benchmark itself holds is not to be walked again and again by the collector.
    gc.collect()
    gc.freeze()
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            taken[name].append(work() * 1e6)
    gc.unfreeze()
    return {name: median(values) for name, values in taken.items()}
