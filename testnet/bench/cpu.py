"""Who had the processor meanwhile: figures taken on a busy machine say little without it."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuUse:
    """Processor seconds so far, of some processes and of the whole machine."""

    ours_s: float
    all_s: float
    at_s: float

    def cores_since(self, before: "CpuUse") -> dict[str, float]:
        """Cores used by those processes and by everybody else, on average since then."""
        wall_s = max(1e-9, self.at_s - before.at_s)
        ours = (self.ours_s - before.ours_s) / wall_s
        others = (self.all_s - before.all_s) / wall_s - ours
        return {"cores_used_by_nodes": round(ours, 2), "cores_used_by_others": round(others, 2)}


def cpu_use(pids: Iterable[int], at_s: float) -> CpuUse:
    """What they have used by now, which is `at_s`."""
    return CpuUse(ours_s=sum(_used_s(pid) for pid in pids), all_s=_busy_s(), at_s=at_s)


def _used_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def _busy_s() -> float:
    user, nice, system, _idle, _wait, *interrupts = Path("/proc/stat").read_text().split()[1:8]
    return sum(map(int, (user, nice, system, *interrupts))) / TICKS_PER_S
