"""Whose a process on a GPU is. Reads /proc, and nothing else."""

import os
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
GENERATIONS_MAX: Final = 64
_CONTAINERS: Final = ("docker", "libpod")


def is_ours(pid: int, proc: Path = PROC) -> bool:
    """Whether a process may be a job of ours: begun by this one, or in a container.

    Whose a container is, its processes do not say; an engine that runs others' containers too is
    not seen through. A process that has ended meanwhile is nobody's.
    """
    try:
        group = (proc / str(pid) / "cgroup").read_text()
    except (OSError, UnicodeDecodeError):
        return True
    return any(word in group for word in _CONTAINERS) or _is_descendant(pid, proc)


def _is_descendant(pid: int, proc: Path) -> bool:
    own = os.getpid()
    for _ in range(GENERATIONS_MAX):
        if pid == own:
            return True
        try:
            status = (proc / str(pid) / "status").read_text()
        except (OSError, UnicodeDecodeError):
            return False
        parent = next((line for line in status.splitlines() if line.startswith("PPid:")), "0")
        pid = int(parent.split()[-1])
        if pid <= 1:
            return False
    return False
