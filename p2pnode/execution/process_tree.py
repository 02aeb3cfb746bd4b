"""Processes as Linux shows them in /proc: who they are, whose children, what they use.

The standard library alone: the supervisor of a process loads this.
"""

import os
import signal
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process for good: the kernel gives its pid to others later, but not all three."""

    pid: int
    ticks: int
    """When it started, in clock ticks since the boot."""
    boot: str
    """The kernel's random id of that boot."""

    @classmethod
    def parse(cls, text: str) -> "Process":
        """The process that `str` of it named. Raises ValueError."""
        pid, ticks, boot = text.split()
        return cls(pid=int(pid), ticks=int(ticks), boot=boot)

    def __str__(self) -> str:
        return f"{self.pid} {self.ticks} {self.boot}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A line of /proc/PID/stat."""

    pid: int
    state: str
    parent: int
    group: int
    threads: int
    ticks: int


def status_of(pid: int) -> Status | None:
    """What the kernel says of the process; None if there is none."""
    try:
        text = (PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    # The name in brackets may hold anything, brackets and blanks too; the rest is numbers.
    fields = text[text.rindex(b")") + 2 :].split()
    return Status(
        pid=pid,
        state=fields[0].decode("ascii"),
        parent=int(fields[1]),
        group=int(fields[2]),
        threads=int(fields[17]),
        ticks=int(fields[19]),
    )


def boot_id() -> str:
    """The kernel's random id of this boot."""
    return (PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()


def identify(pid: int) -> Process | None:
    """The process that has this pid now; None if there is none."""
    status = status_of(pid)
    return None if status is None else Process(pid=pid, ticks=status.ticks, boot=boot_id())


def is_alive(process: Process) -> bool:
    """Whether it still runs; a zombie does not."""
    status = status_of(process.pid)
    return (
        status is not None
        and status.ticks == process.ticks
        and status.state not in "ZX"
        and process.boot == boot_id()
    )


def open_process(process: Process) -> int | None:
    """A pidfd of exactly this process, to be closed by the caller; None if it is gone."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return None
    # Only now can the pid no longer change its owner, so only now is it worth comparing.
    if is_alive(process):
        return descriptor
    os.close(descriptor)
    return None


def send_signal(process: Process, number: int) -> None:
    """Signal exactly this process; nothing happens if it is gone or not ours."""
    if (descriptor := open_process(process)) is not None:
        with suppress(OSError):
            signal.pidfd_send_signal(descriptor, number)
        os.close(descriptor)


def all_processes() -> list[Status]:
    """Every process that we can see, by rising pid."""
    pids = sorted(int(name) for name in os.listdir(PROC) if name.isdecimal())  # noqa: PTH208
    return [status for pid in pids if (status := status_of(pid)) is not None]


def descendants(root: int) -> list[Status]:
    """Children, grandchildren and so on of the process, parents first; no zombies."""
    children: defaultdict[int, list[Status]] = defaultdict(list)
    for status in all_processes():
        children[status.parent].append(status)
    found: list[Status] = []
    level = [root]
    while level:
        born = [child for pid in level for child in children.pop(pid, ())]
        found += born
        level = [child.pid for child in born]
    return [status for status in found if status.state not in "ZX"]


def memory_bytes(pids: list[int], *, enough: int) -> int:
    """The memory that these processes hold together, exact only above `enough`.

    Pages shared by a fork are first counted for each, which is cheap and never too little; only
    where that exceeds `enough` is the kernel asked for fair shares, which walks the page tables.
    """
    rough = sum(map(_resident_bytes, pids))
    return rough if rough <= enough else sum(map(_fair_bytes, pids))


def _resident_bytes(pid: int) -> int:
    with suppress(OSError):
        return int((PROC / str(pid) / "statm").read_bytes().split()[1]) * PAGE_BYTES
    return 0


def _fair_bytes(pid: int) -> int:
    try:
        lines = (PROC / str(pid) / "smaps_rollup").read_bytes().splitlines()
    except OSError:
        return _resident_bytes(pid)
    return sum(int(line.split()[1]) * 1_024 for line in lines if line.startswith(b"Pss:"))


def with_variable(variable: bytes) -> list[Process]:
    """The processes whose environment began with this `NAME=value` in it, as far as we may look."""
    boot = boot_id()
    found = []
    for status in all_processes():
        with suppress(OSError):
            environment = (PROC / str(status.pid) / "environ").read_bytes()
            if variable in environment.split(b"\0"):
                found.append(Process(pid=status.pid, ticks=status.ticks, boot=boot))
    return found


def threads_of_user(user: int) -> int:
    """How many threads the user has on this host, which is what RLIMIT_NPROC counts."""
    total = 0
    for status in all_processes():
        with suppress(OSError):
            if (PROC / str(status.pid)).stat().st_uid == user:
                total += status.threads
    return total


def oom_kills() -> int:
    """How often the kernel has killed for want of memory since the boot, on the whole host."""
    with suppress(OSError):
        for line in (PROC / "vmstat").read_text("ascii").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0
