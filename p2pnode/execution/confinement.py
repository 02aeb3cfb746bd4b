"""What a job's process is bound by, set between fork and exec: limits, priority, signals.

The standard library alone: the supervisor of a process loads this. Linux only.
"""

import ctypes
import os
import resource
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from p2pnode.execution.process_tree import threads_of_user

MIB = 2**20
OPEN_FILES_MAX = 65_536
"""Data loaders open thousands; more than this is a leak."""
NICENESS = 10
"""The owner's own programs, the node among them, come first."""
OOM_SCORE = 800
"""Of 1,000: if the host runs out of memory, the kernel takes the job, not the node."""
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
# Loaded before any fork: the child of a fork should not load libraries.
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """protocol.job.JobLimits, as far as the kernel is told of it."""

    time_ms: int
    memory_mib: int
    cpus_milli: int
    pids: int
    disk_mib: int


def adopt_orphans() -> None:
    """From now on, orphaned descendants become children of this process. Raises OSError."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def confine(bounds: Bounds, *, parent: int, threads_max: int | None) -> None:
    """Bind this process, which is about to become the job. Raises OSError or ValueError."""
    # What Python or the node's parent had ignored or blocked would stay so through the exec.
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with suppress(OSError):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # A job that nobody watches would have no time limit, so it ends with its supervisor.
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    os.umask(0o077)
    os.nice(NICENESS)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(f"{OOM_SCORE}", "ascii")
    os.sched_setaffinity(0, cores(bounds.cpus_milli, sorted(os.sched_getaffinity(0)), parent))
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_NOFILE, OPEN_FILES_MAX)
    _limit(resource.RLIMIT_FSIZE, bounds.disk_mib * MIB)
    _limit(resource.RLIMIT_CPU, bounds.time_ms * bounds.cpus_milli // 10**6 + 2)
    if threads_max is not None:
        _limit(resource.RLIMIT_NPROC, threads_max)
    # Last, because this process itself needs memory. A wall behind the supervisor's measuring,
    # with room for what lies between two measurements; not RLIMIT_AS, under which CUDA, that
    # reserves addresses by the terabyte, would not even start.
    _limit(resource.RLIMIT_DATA, (bounds.memory_mib * 5 // 4 + 64) * MIB)


def cores(cpus_milli: int, usable: list[int], seed: int) -> list[int]:
    """The cores of a job with so many thousandths of one: whole ones, beginning anywhere."""
    count = min(max(1, -(-cpus_milli // 1_000)), len(usable))
    return [usable[(seed + index) % len(usable)] for index in range(count)]


def threads_max_of(bounds: Bounds) -> int | None:
    """RLIMIT_NPROC for a job that starts now; None for root, whom the kernel does not bind.

    It counts all threads of the user, so those that are there come on top.
    """
    user = os.geteuid()
    return None if user == 0 else threads_of_user(user) + bounds.pids


def _limit(what: int, value: int) -> None:
    _, hard = resource.getrlimit(what)
    # A limit of the protocol may exceed what the kernel can count to.
    bound = min(value, 2**62 if hard == resource.RLIM_INFINITY else hard)
    resource.setrlimit(what, (bound, bound))


def _prctl(option: int, value: int) -> None:
    if _LIBC.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
