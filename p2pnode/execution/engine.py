"""The port through which the node runs jobs. It knows neither leases nor money, only runs.

`process_engine` runs them as plain processes, `docker_engine` in containers, `fake_engine` only on
paper; one suite of tests holds for all. A run belongs to the engine, not to the node: it goes on
while the node is down, and its ending is kept until its workspace is removed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NewType, Protocol

from protocol.advert import Isolation
from protocol.job import JobLimits, NoticeSignal
from protocol.units import Millis, MillisSpan

RunId = NewType("RunId", str)
"""The lease's id in lower-case hex; it names the run's workspace too, see `workspace_of`."""

Cause = Literal[
    "exit",
    "signal",
    "memory",
    "time",
    "disk",
    "pids",
    "stopped",
    "preempted",
    "renewed",
    "engine",
]
"""Why a run ended.

`exit`: by itself; `exit_code` says how, 127 if there is no such program and 126 if it cannot be
executed. `signal`: by a signal that the engine did not send. `memory`, `time`, `disk`, `pids`: the
engine ended it at that limit, or the kernel did. `stopped`: the node asked for it. `preempted`: the
same after a notice; `renewed`: it goes on in the next lease; neither is told by an engine.
`engine`: the engine or its host failed; the job is not to blame.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One program to run once, in the workspace that has its id.

    The job's own directory there is `work`, where its input lies already; it finds the path of
    `work/out` in P2PNODE_OUT, and what it leaves in it is its output. Likewise P2PNODE_CHECKPOINT
    is where it saves its work, and P2PNODE_NOTICE the file that a notice makes appear.
    """

    id: RunId
    argv: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    """What the renter adds to the environment, which is otherwise the engine's."""
    image: str | None = None
    """By digest; engines without images refuse a run that names one."""
    units: tuple[bytes, ...] = ()
    """The leased GPUs, 16 bytes each, as in adverts."""
    devices: tuple[str, ...] = ()
    """The same GPUs in the same order as CUDA names them, for example "GPU-4f6c..."."""
    limits: JobLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a run ended. Instants are the host's wall clock."""

    cause: Cause
    exit_code: int | None = None
    """What the program returned, also after a stop that it obeyed; None if it was killed."""
    signal: int | None = None
    """What killed it. Engines that see only exit codes report 128 + n as an exit code."""
    detail: str = ""
    """One line for people."""
    started_ms: Millis
    ended_ms: Millis


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A job is to save its work: its units are taken back."""

    deadline_ms: Millis
    """What goes on then is killed."""
    reason: str
    signal: NoticeSignal | None
    """What the job says that it handles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPart:
    """A piece of what a run has written to stdout and stderr, in the order of arrival."""

    offset: int
    """Where `data` begins, counted over all that was ever written."""
    data: bytes


class Engine(Protocol):
    """Runs jobs. Each method may be called by several tasks at once."""

    @property
    def isolation(self) -> Isolation:
        """How runs are kept apart from the host."""

    @property
    def description(self) -> str:
        """One line for receipts: what this engine enforces, and what it does not."""

    async def images(self) -> tuple[bytes, ...] | None:
        """SHA-256 of the images that runs may name, newest first; None where runs name none.

        Raises LocalFault or Unavailable.
        """

    async def start(self, run: Run) -> None:
        """Start the run; returns once it runs, or has ended already.

        A run is started at most once in its life: if the id was started before, by this node or
        by one that died, nothing happens. A program that cannot be executed is no error here but
        an ending. Raises LocalFault if the run asks for what this engine has not, or if the host
        cannot start it; Unavailable if the engine does not answer, and then the same call may be
        repeated.
        """

    async def wait(self, run: RunId) -> Ending:
        """Wait for the end and return it, at once if it is over.

        Nothing of the run goes on by then, grandchildren included. Raises LocalFault if the run
        was never started here; Unavailable if the engine does not answer.
        """

    async def stop(self, run: RunId, *, grace_ms: MillisSpan) -> Ending:
        """End the run: TERM to all of it, KILL to what is left after the grace.

        Returns when nothing goes on. Of a run that is over, the ending it had. Raises as `wait`.
        """

    async def warn(self, run: RunId, notice: Notice) -> None:
        """Let the run's job know: the file appears, then its process group gets the signal.

        May be repeated; nothing happens to a run that is over. Raises as `wait`.
        """

    async def adopt(self) -> tuple[RunId, ...]:
        """The runs that were ever started and not yet removed, sorted; the node calls it once up.

        `wait` works for each: those that ended while nobody looked return their ending at once.
        Raises LocalFault or Unavailable if they cannot be listed.
        """

    async def read_log(self, run: RunId, *, offset: int, size_max: int) -> LogPart:
        """At most `size_max` bytes of the log from `offset` on; empty if there is no more yet.

        Of a log larger than `limits.log_bytes` the first half and at least the last quarter of
        that many bytes are kept; an offset that fell into the gap is moved up to its end. Raises
        as `wait`.
        """
