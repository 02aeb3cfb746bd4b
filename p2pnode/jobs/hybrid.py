"""Drives a job that may run on its renter's own primary as well: there or here, never at both.

As with a lease, each step is durable before the next. Where it cannot be known whether a job was
started there, it is asked; before the job goes elsewhere, the primary has to know nothing of it.
"""

import logging
from typing import Final, Protocol

import trio
from msgspec import UNSET
from msgspec.structs import replace

from p2pnode.jobs.desk import Desk
from p2pnode.jobs.driver import Driver
from p2pnode.jobs.jobfile import After, AtPrimary, JobFile, State
from p2pnode.jobs.primary_template import Said, Template, Values, Verb, values_of
from p2pnode.quantities import parse_span
from protocol.codec import decode
from protocol.errors import Unavailable
from protocol.job import Job
from protocol.limits import JOB_BYTES_MAX
from protocol.units import Millis

log = logging.getLogger(__name__)

RETRY_STOP_S: Final = 1.0
RETRY_START_S: Final = 10.0
LOG_BYTES: Final = 4_194_304
WHY_LETTERS_MAX: Final = 200
STILL_STARTING: Final = "what was to start it still runs"


class StillStarting(Unavailable):
    """What was to start the job in an earlier life of ours still does."""


class Primary(Protocol):
    """The renter's own place for jobs. What asks raises Unavailable without an answer in time."""

    @property
    def template(self) -> Template:
        """How it is spoken to."""

    async def ask(self, verb: Verb, values: Values) -> tuple[int, str]:
        """The exit code of the command and what it has printed. Raises StillStarting."""

    def is_starting(self, values: Values) -> bool:
        """Whether what was to start the job, in an earlier life of ours perhaps, still runs."""

    async def read_log(self, values: Values, *, skip: int, size_max: int) -> bytes:
        """What the job has printed, from this offset on."""

    def check(self, values: Values) -> None:
        """Raises LocalFault if the job cannot be sent there."""


class HybridDriver(Driver):
    """Owns one job's file, wherever the job is."""

    def __init__(self, desk: Desk, file: JobFile, primary: Primary | None) -> None:
        super().__init__(desk, file)
        self._primary = primary

    async def _step(self) -> None:
        if self.file.state != "primary":
            await super()._step()
        elif self._primary is None:
            self._end("failed", "no primary is configured any more: look for the job there")
        else:
            await self._step_there(self._primary)

    def _end(self, state: State, why: str) -> None:
        """Who finds nobody on the market in time may have a primary to fall back on."""
        at = self.file.primary
        fits_nobody = self.file.state == "matching" and not self.cancelled.is_set()
        if fits_nobody and at is not UNSET and (at.mode, at.phase) == ("fallback", "untried"):
            self.change(state="primary", why=why, taking=UNSET)
        else:
            super()._end(state, why)

    async def _step_there(self, primary: Primary) -> None:
        match self._at().phase:
            case "untried":
                await self._start(primary)
            case "starting":
                await self._find_out(primary)
            case "waiting" | "running":
                await self._look(primary)
            case "leaving":
                await self._see_it_gone(primary)
            case "left":
                await self._go_on()

    async def _start(self, primary: Primary) -> None:
        begin = await self._desk.baggage.log_size(self.file.id)
        if self.cancelled.is_set():
            self._end("failed", "cancelled")
            return
        self._change_there(phase="starting", since_ms=self._desk.clock.now(), log_from=begin)
        await self._tell(primary)

    async def _tell(self, primary: Primary) -> None:
        """Have it started; without a clear answer it is as if it was."""
        try:
            code, printed = await primary.ask("start", self._values())
        except StillStarting as error:
            if self._is_late(primary):
                self._end("failed", f"the primary: {error}; look for {self.file.id} there")
            else:
                await self._pause(primary)
            return
        except Unavailable as error:
            self._withdraw("elsewhere", str(error))
            return
        said, _ = primary.template.read(code, printed)
        if said == "refused":
            self._change_there(phase="left", after="elsewhere", why=_last_line(printed))
        elif said == "out_of_stock" or code != 0:
            self._withdraw("elsewhere", _last_line(printed))
        else:
            self._change_there(phase="waiting")

    async def _find_out(self, primary: Primary) -> None:
        """We died while it was told: it has the job, or it is told now."""
        said, _ = await self._ask_state(primary)
        if self.cancelled.is_set():  # also while it was asked: it may have the job even so
            self._withdraw("cancelled", "")
        elif said == "absent":
            await self._tell(primary)
        elif said not in {"unclear", "refused"}:
            self._change_there(phase="waiting")
        elif self._is_late(primary):
            self._withdraw("elsewhere", "it does not say whether it has the job")
        else:
            await self._pause(primary)

    async def _look(self, primary: Primary) -> None:
        """What has become of it, and what it has printed."""
        if self.cancelled.is_set():
            self._withdraw("cancelled", "")
            return
        said, code = await self._ask_state(primary)
        if said == "running" and self._at().phase == "waiting":
            self._change_there(phase="running", since_ms=self._desk.clock.now())
        at = self._at()
        if at.phase == "running" or said in {"ended", "failed"}:
            await self._fetch_log(primary)
        if said == "ended":
            self._change_there(exit_code=code)
            self._withdraw("ended", "")
        elif said == "out_of_stock":
            self._withdraw("elsewhere", "out of stock")
        elif said == "failed" or (said == "absent" and at.phase == "running"):
            self._withdraw("failed", f"it {'failed' if said == 'failed' else 'is gone'} there")
        elif at.phase == "waiting" and self._is_late(primary):
            self._withdraw("elsewhere", f"does not run after {primary.template.start_within}")
        elif at.phase == "running" and self._since() > self.job().limits.time_ms:
            self._withdraw("time", "")
        else:
            await self._pause(primary)

    async def _see_it_gone(self, primary: Primary) -> None:
        """Never at both places: it says that nothing is left there, or the job ends here."""
        why, at = "it does not say that it let go", self._at()
        try:
            await primary.ask("stop", self._values())
        except Unavailable as error:
            why = str(error)
        if at.after in {"ended", "failed"}:
            self._change_there(phase="left")
            return
        said, code, is_gone = "unclear", None, False
        # First: what ends after this look has done its work before the answer to come.
        is_starting = primary.is_starting(self._values())
        try:
            answer = await primary.ask("state", self._values())
            said, code = primary.template.read(*answer)
            is_gone = primary.template.is_gone(*answer)
        except Unavailable as error:
            why = str(error)
        if said == "ended":  # before it could be stopped
            await self._fetch_log(primary)
            self._change_there(phase="left", after="ended", exit_code=code)
        elif is_gone and not is_starting:
            self._change_there(phase="left")
        elif self._is_late(primary):
            why = STILL_STARTING if is_starting else why
            self._end(
                "failed",
                f"the primary: {why}; look for {self.file.id} there before it is run again",
            )
        else:
            self._change_there(why=STILL_STARTING if is_starting else why)
            await trio.sleep(RETRY_STOP_S)

    async def _go_on(self) -> None:
        """Nothing of it is there any more."""
        at = self._at()
        assert at.after is not UNSET
        match at.after:
            case "ended":
                self._end("done", "")
            case "failed":
                self._end("failed", f"the primary: {at.why}")
            case "time" | "cancelled":
                self._end("failed", at.after)
            case "elsewhere":
                await self._go_elsewhere(at)

    async def _go_elsewhere(self, at: AtPrimary) -> None:
        now, why = self._desk.clock.now(), f"the primary: {at.why}"
        if self.cancelled.is_set():
            self._end("failed", "cancelled")
        elif at.mode == "first":
            log.info("job goes to the market", extra={"job": self.file.id, "why": why})
            give_up = Millis(now + self.file.patience_ms)
            self.change(state="matching", give_up_ms=give_up, why=why)
        elif at.mode == "fallback":
            self._end("failed", f"{self.file.why}; {why}")
        elif now < self.file.give_up_ms:
            with trio.move_on_after(RETRY_START_S):
                await self.cancelled.wait()
            self._change_there(phase="untried")
        else:
            self._end("failed", f"no match: {why}")

    async def _ask_state(self, primary: Primary) -> tuple[Said, int | None]:
        try:
            return primary.template.read(*await primary.ask("state", self._values()))
        except Unavailable as error:
            log.info("primary unclear", extra={"job": self.file.id, "why": str(error)})
            return "unclear", None

    async def _fetch_log(self, primary: Primary) -> None:
        """What it has printed since, behind what we have of it."""
        if not primary.template.log:
            return
        job, baggage = self.file.id, self._desk.baggage
        try:
            while True:
                have = await baggage.log_size(job) - self._at().log_from
                piece = await primary.read_log(self._values(), skip=have, size_max=LOG_BYTES)
                await baggage.append_log(job, piece, bytes_max=self._log_bytes())
                if len(piece) < LOG_BYTES:
                    return
        except Unavailable as error:
            log.info("no log of the primary", extra={"job": job, "why": str(error)})

    async def _pause(self, primary: Primary) -> None:
        with trio.move_on_after(parse_span(primary.template.poll) / 1_000):
            await self.cancelled.wait()

    def _withdraw(self, after: After, why: str) -> None:
        """The job is to be gone from there; `after` says what comes then."""
        now = self._desk.clock.now()
        self._change_there(phase="leaving", after=after, since_ms=now, why=why)

    def _is_late(self, primary: Primary) -> bool:
        return self._since() > parse_span(primary.template.start_within)

    def _since(self) -> int:
        return self._desk.clock.now() - self._at().since_ms

    def _at(self) -> AtPrimary:
        assert self.file.primary is not UNSET
        return self.file.primary

    def _change_there(self, **changes: object) -> None:
        self.change(primary=replace(self._at(), **changes))

    def _values(self) -> Values:
        return values_in(self.file)


def values_in(file: JobFile) -> Values:
    """What a template may name of this job."""
    assert file.primary is not UNSET
    job, need = decode(file.job, Job, size_max=JOB_BYTES_MAX), file.need
    return values_of(
        name=file.id,
        argv=job.argv,
        variables=job.variables,
        image=None if job.image is UNSET else job.image,
        input_folder=None if file.primary.input is UNSET else file.primary.input,
        models=() if need.models is UNSET else need.models,
        regions=() if need.regions is UNSET else need.regions,
        gpus=need.gpus,
        vram_mib=need.vram_mib_min,
        cpus_milli=job.limits.cpus_milli,
        memory_mib=job.limits.memory_mib,
        disk_mib=job.limits.disk_mib,
        time_ms=job.limits.time_ms,
    )


def _last_line(printed: str) -> str:
    """What a command said last, fit to be shown."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    last = lines[-1] if lines else "out of stock"
    return "".join(letter if letter.isprintable() else "?" for letter in last)[:WHY_LETTERS_MAX]
