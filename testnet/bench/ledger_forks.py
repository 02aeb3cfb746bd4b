"""How soon replicas that talk at random all know of a fork."""

import math
from pathlib import Path
from typing import Final

from testnet.bench.report import at_most
from testnet.bench.timing import Measured
from testnet.replicas import KNOWN_PERCENT, rounds_until_known

REPLICAS: Final = 1_000
SILENT: Final = 300
SEEDS: Final = 3
ROUNDS_MAX: Final = 16


def measure_forks(_folder: Path, _rounds: int) -> Measured:
    """The slowest of a few seeds: in no time at all, but in rounds of one session each."""
    found = [
        rounds_until_known(seed=seed, count=REPLICAS, silent=SILENT) for seed in range(1, SEEDS + 1)
    ]
    slowest = max((math.inf if rounds is None else rounds) for rounds in found)
    name = (
        f"rounds until {KNOWN_PERCENT} % of the honest that speak hold the proof,"
        f" {SILENT} of {REPLICAS} silent"
    )
    return Measured(
        figures={"fork_known_rounds": found}, bars=(at_most(name, slowest, ROUNDS_MAX),)
    )
