"""A program of its own: starts one job, watches it, ends it at its limits, records how it ended.

It outlives the node, so it uses the standard library alone and asks nothing of the node but files.
Its own life is the claim on the run: whoever writes `claim` first is the run's only supervisor.
"""

import errno
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from p2pnode.execution.confinement import MIB, adopt_orphans, confine, threads_max_of
from p2pnode.execution.disk_use import disk_bytes
from p2pnode.execution.process_tree import (
    descendants,
    identify,
    memory_bytes,
    oom_kills,
)
from p2pnode.execution.records import claim_record, read_record, write_record
from p2pnode.execution.run_log import RunLog
from p2pnode.execution.spec import Spec, read_spec

MEASURE_S = 0.5
"""How often memory and processes are counted; it costs some milliseconds each time."""
WEIGH_S = 1.0
"""How often the disk is summed, or less often where that takes over a twentieth of the time."""
GRACE_MS = 10_000
"""If somebody else than the node asks us to end, for example the host that shuts down."""
LOG_READ_BYTES = 65_536
RECORD_TRIES = 30
"""Once a second: an owner whose disk is full gets half a minute to make room for an ending."""
STARTED = b"started"


class Supervisor:
    """One job's life. Single-threaded; signals arrive through a pipe."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._log = RunLog(spec.log, bytes_max=spec.log_bytes)
        self._output = self._wakeup = self._job = -1
        self._popen: subprocess.Popen[bytes] | None = None
        self._returned: int | None = None
        self._cause = self._detail = ""
        self._peak = 0
        self._kill_at = self._time_out = float("inf")
        self._measure_at = self._weigh_at = 0.0
        self._started_ms = 0
        self._oom_kills = 0

    def prepare(self) -> bool:
        """Be the run's supervisor; False if it has or had one. Raises OSError: nothing is done."""
        adopt_orphans()
        self._wakeup, writer = os.pipe()
        for end in (self._wakeup, writer):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, _note)
        self._log.open()
        own = identify(os.getpid())
        self._started_ms = _wall_ms()
        facts = {"supervisor": str(own), "started_ms": str(self._started_ms)}
        return claim_record(self._spec.records / "claim", facts)

    def start(self) -> None:
        """Execute the job, or have the ending of one that cannot be executed."""
        self._oom_kills = oom_kills()
        self._time_out = _now() + self._spec.bounds.time_ms / 1_000
        self._output, output = os.pipe()
        os.set_blocking(self._output, False)
        try:
            self._job = self._spawn(output)
            facts = {"job": str(identify(self._job))}
            write_record(self._spec.records / "job", facts)
        except (OSError, subprocess.SubprocessError) as error:
            self._fail(error)
        finally:
            os.close(output)

    def watch(self) -> None:
        """Return once nothing of the job goes on and all that it wrote is in the log."""
        while self._job >= 0 and self._returned is None and _now() < self._kill_at:
            self._listen(min(self._kill_at, self._time_out, self._measure_at, self._weigh_at))
            self._reap()
            self._judge()
        # Whoever is left, if the job has ended by itself too: a run ends as a whole.
        pause_s = 0.01
        while self._reap():
            _signal_all(signal.SIGKILL)
            self._listen(_now() + pause_s)
            # Somebody who hangs in a driver cannot be killed now, and may be waited for long.
            pause_s = min(2 * pause_s, 1.0)
        while self._read_output():
            pass
        self._log.close()
        # The other, short name of the temporary directory lies outside the workspace.
        shortcut = Path(self._spec.variables["TMPDIR"])
        with suppress(OSError):
            if shortcut.is_symlink():
                shortcut.unlink()

    def record(self) -> None:
        """The ending is durable, or the disk stayed full for too long: then OSError."""
        facts = self._ending()
        for _ in range(RECORD_TRIES):
            with suppress(OSError):
                claim_record(self._spec.records / "ending", facts)
                return
            select.select((), (), (), 1.0)
        claim_record(self._spec.records / "ending", facts)

    def _spawn(self, output: int) -> int:
        parent, threads_max = os.getpid(), threads_max_of(self._spec.bounds)
        if not self._spec.work.is_dir():
            raise subprocess.SubprocessError("the working directory is gone")
        # Kept, because a Popen that is let go of reaps its child, and the status with it.
        self._popen = subprocess.Popen(  # noqa: S603 - to run what the renter says is the purpose
            self._spec.argv,
            cwd=self._spec.work,
            env=self._spec.variables,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=lambda: confine(  # noqa: PLW1509 - this program has one thread
                self._spec.bounds, parent=parent, threads_max=threads_max
            ),
        )
        return self._popen.pid

    def _fail(self, error: Exception) -> None:
        """What a shell would return for a program that cannot be executed, or a fault of ours."""
        if self._job >= 0 or not isinstance(error, OSError):
            self._cause, self._detail, self._kill_at = "engine", str(error), 0.0
            return
        missing = error.errno in {errno.ENOENT, errno.ENOTDIR}
        self._cause, self._returned = "exit", (127 if missing else 126) << 8
        self._detail = f"{self._spec.argv[0]}: {error.strerror}"
        self._log.append(f"{self._detail}\n".encode())

    def _listen(self, until: float) -> None:
        """Take what the job writes and what signals say, at least once, at most until then."""
        wait_s = min(max(until - _now(), 0.0), MEASURE_S)
        sources = [source for source in (self._wakeup, self._output) if source >= 0]
        ready, _, _ = select.select(sources, (), (), wait_s)
        if self._output in ready:
            self._read_output()
        if self._wakeup in ready and {signal.SIGTERM, signal.SIGINT} & set(
            os.read(self._wakeup, 4_096)
        ):
            self._stop()

    def _read_output(self) -> bool:
        """Whether there was something to read. At the end of the stream, there is none for ever."""
        if self._output < 0:
            return False
        try:
            data = os.read(self._output, LOG_READ_BYTES)
        except BlockingIOError:
            return False
        self._log.append(data)
        if not data:
            os.close(self._output)
            self._output = -1
        return bool(data)

    def _reap(self) -> bool:
        """Whether children are left."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            self._peak = max(self._peak, usage.ru_maxrss * 1_024)
            if pid == self._job:
                self._returned = status

    def _judge(self) -> None:
        """Condemn a job that is beyond a limit."""
        now, bounds = _now(), self._spec.bounds
        if now >= self._time_out:
            self._condemn("time", f"ran {bounds.time_ms} ms")
        if now >= self._measure_at:
            self._measure_at = now + MEASURE_S
            family = descendants(os.getpid())
            if (tasks := sum(status.threads for status in family)) > bounds.pids:
                self._condemn("pids", f"{tasks} threads and processes of {bounds.pids}")
            enough = bounds.memory_mib * MIB
            if (held := memory_bytes([status.pid for status in family], enough=enough)) > enough:
                self._condemn("memory", f"{held // MIB} MiB of {bounds.memory_mib}")
        if now >= self._weigh_at:
            used = disk_bytes(self._spec.work)
            self._weigh_at = _now() + max(WEIGH_S, 20 * (_now() - now))
            if used > bounds.disk_mib * MIB:
                self._condemn("disk", f"{used // MIB} MiB of {bounds.disk_mib}")

    def _condemn(self, cause: str, detail: str) -> None:
        if self._returned is None and not self._cause:
            self._cause, self._detail = cause, detail
        self._kill_at = 0.0

    def _stop(self) -> None:
        if self._job < 0 or self._returned is not None:
            return
        asked = read_record(self._spec.records / "stop") or {}
        grace_s = int(asked.get("grace_ms", GRACE_MS)) / 1_000
        self._cause = self._cause or "stopped"
        self._kill_at = min(self._kill_at, _now() + grace_s)
        _signal_all(signal.SIGTERM)
        # One that was stopped by a signal would not see the TERM before its end.
        _signal_all(signal.SIGCONT)

    def _ending(self) -> dict[str, str]:
        returned = None if self._returned is None else os.waitstatus_to_exitcode(self._returned)
        facts = {
            "cause": self._cause or self._own_cause(returned),
            "detail": self._detail,
            "started_ms": str(self._started_ms),
            "ended_ms": str(max(self._started_ms, _wall_ms())),
        }
        if returned is not None:
            facts["exit_code" if returned >= 0 else "signal"] = str(abs(returned))
        return facts

    def _own_cause(self, returned: int | None) -> str:
        """Why a job ended that we did not end: by itself, or because the kernel refused it more."""
        assert returned is not None, "a job that we do not end returns"
        if returned != 0 and self._peak > self._spec.bounds.memory_mib * MIB:
            self._detail = f"one process held {self._peak // MIB} MiB"
            return "memory"
        if returned >= 0:
            return "exit"
        if -returned == signal.SIGKILL and oom_kills() > self._oom_kills:
            self._detail = "the host ran out of memory"
            return "memory"
        return {int(signal.SIGXFSZ): "disk", int(signal.SIGXCPU): "time"}.get(-returned, "signal")


def _note(_number: int, _frame: object) -> None:
    """A handler only so that the wakeup pipe is written, and so that an exec resets it."""


def _signal_all(number: int) -> None:
    """Signal every descendant, by its process group.

    A group takes a signal as one, so that no member can fork away from it; the job began a session
    of its own, and nobody outside can be in a group of that or of a session that it began.
    """
    groups = {status.group for status in descendants(os.getpid())} - {os.getpgrp()}
    for group in sorted(groups):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)


def _now() -> float:
    """Seconds since the boot, also while the host slept: a lease's time goes on then."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _wall_ms() -> int:
    # p2pnode.clock belongs to the node; these instants are for people, and decide nothing.
    return time.clock_gettime_ns(time.CLOCK_REALTIME) // 10**6


def main() -> NoReturn:
    """Leave the node's process group, then supervise. Exit 0 once the job runs or has ended.

    On exit 1, stderr says why nothing was started.
    """
    spec = read_spec(sys.stdin.buffer.read())
    told, tell = os.pipe()
    if os.fork() == 0:
        os.close(told)
        _supervise(spec, tell)
    os.close(tell)
    with os.fdopen(told, "rb") as file:
        answer = file.read()
    if answer != STARTED:
        sys.stderr.buffer.write(answer or b"the supervisor died")
        sys.stderr.flush()
    os._exit(answer != STARTED)


def _supervise(spec: Spec, tell: int) -> NoReturn:
    os.setsid()
    os.chdir("/")
    os.umask(0o077)
    supervisor = Supervisor(spec)
    try:
        _let_go(spec.records / "supervisor.err")
        is_ours = supervisor.prepare()
    except OSError as error:
        os.write(tell, str(error).encode())
        os._exit(1)
    if is_ours:
        supervisor.start()
    os.write(tell, STARTED)
    os.close(tell)
    if is_ours:
        supervisor.watch()
        supervisor.record()
    os._exit(0)


def _let_go(complaints: Path) -> None:
    """Hold nothing that the node gave us; a bug of ours is told to a file beside the records."""
    nothing = os.open(os.devnull, os.O_RDWR)
    errors = os.open(complaints, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, target in ((nothing, 0), (nothing, 1), (errors, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(errors)


if __name__ == "__main__":
    main()
