"""All jobs of this renter: takes orders, runs a driver for each, remembers who failed."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

import trio
from msgspec import UNSET
from msgspec.structs import replace

from p2pnode.cabinet import Cabinet
from p2pnode.jobs.desk import Desk
from p2pnode.jobs.driver import Driver
from p2pnode.jobs.hybrid import HybridDriver, Primary, values_in
from p2pnode.jobs.jobfile import ENDED, AtPrimary, Fallback, JobFile, load_all, save
from p2pnode.matching.order import ANY, Choice
from protocol.advert import Tier
from protocol.auction import Need
from protocol.codec import decode, encode
from protocol.errors import LocalFault, PeerFault
from protocol.job import Input, Job, JobLimits, NoticeSignal
from protocol.limits import JOB_BYTES_MAX
from protocol.units import Micros, Millis, MillisSpan, PublicKey

STAGE_MS: Final = MillisSpan(120_000)
"""Added to the time limit when a lease is taken: inputs, start, outputs."""
NO_NOTICE: Final = MillisSpan(0)
MOVES_MAX: Final = 3
JOBS_MAX: Final = 10_000
ID_LETTERS: Final = "23456789abcdefghjkmnpqrstvwxyz"
ID_LENGTH: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What a person asks for."""

    id: str
    """From `Jobs.new_id`; the input archive is filed under it already."""
    argv: tuple[str, ...]
    variables: dict[str, str]
    image: str | None
    input: Input | None
    need: Need
    tier: Tier
    limits: JobLimits
    money: str
    ask_max: Micros | None
    total_max: Micros | None
    patience_ms: MillisSpan
    choice: Choice = ANY
    witnesses: tuple[PublicKey, ...] = ()
    quorum: int = 0
    """Of how many of the witnesses cosignatures are wanted."""
    notice_ms: MillisSpan = NO_NOTICE
    """Warning that the job needs to save its work."""
    notice_signal: NoticeSignal | None = None
    """What it is to be woken with then."""
    checkpoint_ms: MillisSpan | None = None
    """How often what it saves is fetched."""
    fallback: Fallback | None = None
    lease_ms: MillisSpan | None = None
    """No lease is taken for longer; the next one is taken in time. None: one for all of it."""
    start_ms: Millis | None = None
    """When it is to start; None: as soon as it can."""
    primary: AtPrimary | None = None
    """What the renter's own primary has to do with it; None: nothing."""


class Jobs:
    """Owns the drivers."""

    def __init__(
        self,
        desk: Callable[["Jobs"], Desk],
        *,
        cabinet: Cabinet,
        primary: Primary | None = None,
    ) -> None:
        self._cabinet = cabinet
        self._primary = primary
        self._desk = desk(self)
        self._drivers: dict[str, Driver] = {}
        self._to_drive, self._driven = trio.open_memory_channel[Driver](JOBS_MAX)
        self._failed: dict[PublicKey, int] = {}

    async def run(
        self,
        may_begin: Callable[[], Awaitable[None]],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Go on with the jobs of before, then drive each new one, until cancelled.

        Started when they can be seen; driven once `may_begin` returns. Raises LocalFault if our
        own disk fails.
        """
        for file in load_all(self._cabinet):
            self._drivers[file.id] = HybridDriver(self._desk, file, self._primary)
        of_before = list(self._drivers.values())
        task_status.started()
        await may_begin()
        async with trio.open_nursery() as nursery:
            for driver in of_before:
                if driver.file.state not in ENDED:
                    nursery.start_soon(driver.run)
            async for driver in self._driven:
                nursery.start_soon(driver.run)

    def new_id(self) -> str:
        """A fresh name for a job."""
        while True:
            drawn = self._desk.random_bytes(ID_LENGTH)
            name = "job-" + "".join(ID_LETTERS[byte % len(ID_LETTERS)] for byte in drawn)
            if name not in self._drivers:
                return name

    def submit(self, submission: Submission) -> JobFile:
        """Take the job; durable on return. Raises LocalFault."""
        file = self._with_primary(self.draft(submission))
        self.take(file)
        return file

    def take(self, file: JobFile) -> Driver:
        """Drive this job from now on; durable on return. Raises LocalFault."""
        save(self._cabinet, file)
        driver = self._drivers[file.id] = HybridDriver(self._desk, file, self._primary)
        self._to_drive.send_nowait(driver)
        return driver

    def draft(self, submission: Submission) -> JobFile:
        """The job as it would be kept, judged; nothing is kept yet. Raises LocalFault."""
        if len(self._drivers) >= JOBS_MAX:
            raise LocalFault(f"{JOBS_MAX} jobs are kept already.", "remove old ones")
        now = self._desk.clock.now()
        raw = encode(
            Job(
                argv=submission.argv,
                variables=submission.variables,
                image=UNSET if submission.image is None else submission.image,
                input=UNSET if submission.input is None else submission.input,
                notice_signal=submission.notice_signal or UNSET,
                outlasts=UNSET if submission.lease_ms is None else "yes",
                limits=submission.limits,
                nonce=self._desk.random_bytes(16),
            )
        )
        if len(raw) > JOB_BYTES_MAX:
            raise LocalFault(
                f"The job takes {len(raw)} bytes, at most {JOB_BYTES_MAX}.",
                "put large things into the input directory",
            )
        try:
            decode(raw, Job, size_max=JOB_BYTES_MAX)
        except PeerFault as fault:
            raise LocalFault(
                f"The job cannot be sent: {fault.detail}.",
                "an image is named as NAME@sha256:DIGEST or sha256:DIGEST",
            ) from fault
        return JobFile(
            id=submission.id,
            created_ms=now,
            job=raw,
            need=submission.need,
            tier=submission.tier,
            span_ms=_span_of(submission),
            notice_ms=submission.notice_ms,
            checkpoint_ms=UNSET if submission.checkpoint_ms is None else submission.checkpoint_ms,
            fallback=submission.fallback or UNSET,
            start_ms=submission.start_ms or UNSET,
            is_renewable="yes" if submission.lease_ms is not None else UNSET,
            money=submission.money,
            ask_max=UNSET if submission.ask_max is None else submission.ask_max,
            total_max=UNSET if submission.total_max is None else submission.total_max,
            choice=submission.choice,
            patience_ms=submission.patience_ms,
            witnesses=submission.witnesses or UNSET,
            quorum=submission.quorum or UNSET,
            give_up_ms=Millis(now + submission.patience_ms),
            moves_max=MOVES_MAX,
            primary=UNSET if submission.primary is None else submission.primary,
        )

    def _with_primary(self, file: JobFile) -> JobFile:
        """The job where it begins. Raises LocalFault if the primary cannot take it."""
        if file.primary is UNSET:
            return file
        if self._primary is None:
            raise LocalFault("There is no primary.", 'write template = "..." under [primary]')
        self._primary.check(values_in(file))
        return file if file.primary.mode == "fallback" else replace(file, state="primary")

    def files(self) -> list[JobFile]:
        """All jobs, newest first."""
        files = [driver.file for driver in self._drivers.values()]
        return sorted(files, key=lambda file: (-file.created_ms, file.id))

    def driver(self, name: str) -> Driver:
        """The job with this id or unique prefix; "@" is the newest. Raises LocalFault."""
        files = self.files()
        if name == "@" and files:
            return self._drivers[files[0].id]
        found = [file.id for file in files if file.id.startswith(name)]
        if len(found) != 1:
            what = "no job" if not found else f"{len(found)} jobs"
            raise LocalFault(f"There is {what} called {name!r}.", "p2pnode job list")
        return self._drivers[found[0]]

    def owner_failed(self, owner: PublicKey) -> None:
        """An owner did not finish a job."""
        self._failed[owner] = self._failed.get(owner, 0) + 1

    @property
    def failures(self) -> Mapping[PublicKey, int]:
        """Owner -> jobs that it did not finish, since this node came up."""
        return self._failed


def _span_of(submission: Submission) -> MillisSpan:
    """How long the job's first lease is taken for."""
    whole = MillisSpan(submission.limits.time_ms + STAGE_MS)
    return whole if submission.lease_ms is None else min(whole, submission.lease_ms)
