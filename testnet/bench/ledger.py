"""`bench ledger`: every bar of the ledger, each a ratio to a limit of the same machine and run.

A part measures some bars. To add bars is to write a part and name it in PARTS.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from protocol.errors import LocalFault
from testnet.bench import (
    ledger_append,
    ledger_credit,
    ledger_forks,
    ledger_ingest,
    ledger_sync,
)
from testnet.bench.report import Bar, Figures, Report, machine
from testnet.bench.timing import Measured

PARTS: Final[dict[str, Callable[[Path, int], Measured]]] = {
    "append": ledger_append.measure_cpu,
    "disk": ledger_append.measure_disk,
    "group": ledger_append.measure_group,
    "ingest": ledger_ingest.measure_ingest,
    "evidence": ledger_ingest.measure_evidence,
    "loopback": ledger_sync.measure_loopback,
    "sets": ledger_sync.measure_sets,
    "credit": ledger_credit.measure_max_flow,
    "forks": ledger_forks.measure_forks,
}
"""Name -> measures in a folder on the disk, in so many rounds."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerWish:
    """What to measure; all parts if none is named."""

    rounds: int
    only: tuple[str, ...]

    def names(self) -> list[str]:
        """In their order. Raises LocalFault."""
        unknown = [name for name in self.only if name not in PARTS]
        if unknown:
            raise LocalFault(f"there is no part {unknown[0]}", f"one of: {', '.join(PARTS)}")
        return [name for name in PARTS if not self.only or name in self.only]


def run(wish: LedgerWish, say: Say) -> Report:
    """All parts, or those that are wished for. Raises LocalFault if there is no such part."""
    figures: Figures = machine()
    bars: list[Bar] = []
    names = wish.names()
    with tempfile.TemporaryDirectory(prefix="p2pnode-bench-") as folder:
        for name in names:
            say(f"measuring {name}")
            found = PARTS[name](Path(folder), wish.rounds)
            figures |= found.figures
            bars += found.bars
    return Report(name="ledger", figures=figures, bars=tuple(bars))
