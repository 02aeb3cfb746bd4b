"""A primary behind commands of this host: see p2pnode.jobs.hybrid.Primary."""

import fcntl
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import trio

from p2pnode.home import host_faults, write_durably
from p2pnode.jobs.hybrid import STILL_STARTING, StillStarting
from p2pnode.jobs.primary_template import Template, Values, Verb
from p2pnode.quantities import parse_span
from protocol.errors import LocalFault, Unavailable

PRINTED_BYTES_MAX: Final = 4_194_304
"""Kept of what a command prints."""
READ_BYTES: Final = 65_536
LINGER_S: Final = 1.0
"""A command may leave something running that keeps its output open."""


class CommandPrimary:
    """See Primary. `root` has a directory for each job."""

    def __init__(self, template: Template, root: Path) -> None:
        self.template: Final = template
        self._root = root

    def check(self, values: Values) -> None:
        self.template.check(values)
        program = self.template.start[0]
        if shutil.which(program) is None:
            raise LocalFault(
                f"{program}, which starts jobs on the primary, is not here.",
                "install it, or run --primary never",
            )

    async def ask(self, verb: Verb, values: Values) -> tuple[int, str]:
        folder = self._folder(values)
        # dstack wants this ending; nobody else cares.
        file = folder / f"{values['name']}.dstack.yml"
        words = self.template.words(verb, {**values, "file": str(file)})
        printed = _Printed(skip=0, size_max=PRINTED_BYTES_MAX)
        if verb != "start":
            code = await self._command(words, folder, self.template.answer_within).run(printed)
        else:
            write_durably(file, self.template.document(values))
            with _starting(folder) as lock:
                command = self._command(words, folder, self.template.start_within)
                code = await command.run(printed, kept=(lock,))
        return code, printed.kept.decode("utf-8", "replace")

    def is_starting(self, values: Values) -> bool:
        try:
            with _starting(self._folder(values)):
                return False
        except StillStarting:
            return True

    async def read_log(self, values: Values, *, skip: int, size_max: int) -> bytes:
        words = self.template.words("log", values)
        printed = _Printed(skip=skip, size_max=size_max)
        command = self._command(words, self._folder(values), self.template.answer_within)
        code = await replace(command, errors=subprocess.DEVNULL).run(printed)
        if code not in self.template.log_exits:
            raise Unavailable(f"{words[0]} has no log")
        return bytes(printed.kept)

    def _command(self, words: list[str], folder: Path, within: str) -> "_Command":
        return _Command(words, folder, parse_span(within) / 1_000)

    def _folder(self, values: Values) -> Path:
        folder = self._root / str(values["name"])
        with host_faults(f"make the directory {folder}"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder


@contextmanager
def _starting(folder: Path) -> Iterator[int]:
    """A descriptor that the command which starts the job holds, even after our own death.

    Raises StillStarting while another does.
    """
    with host_faults(f"lock {folder}"), (folder / "start.lock").open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StillStarting(STILL_STARTING) from error
        yield file.fileno()


class _Printed:
    """What a command has printed, between two offsets."""

    def __init__(self, *, skip: int, size_max: int) -> None:
        self._skip, self._size_max = skip, size_max
        self.kept = bytearray()

    def take(self, piece: bytes) -> None:
        """The next piece."""
        new = piece[self._skip :]
        self._skip -= len(piece) - len(new)
        self.kept += new[: self._size_max - len(self.kept)]


@dataclass(frozen=True, slots=True)
class _Command:
    words: list[str]
    folder: Path
    within_s: float
    errors: int = subprocess.STDOUT

    async def run(self, printed: _Printed, *, kept: tuple[int, ...] = ()) -> int:
        """The exit code. Raises Unavailable if it cannot be run or does not end in time."""
        try:
            process = await trio.lowlevel.open_process(
                self.words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self.errors,
                cwd=self.folder,
                start_new_session=True,
                pass_fds=kept,
            )
        except OSError as error:
            raise Unavailable(f"{self.words[0]}: {error.strerror}") from error
        try:
            with trio.move_on_after(self.within_s) as scope:
                await _ended(process, printed.take)
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                with trio.CancelScope(shield=True):
                    await process.wait()
            if process.stdout is not None:
                await trio.aclose_forcefully(process.stdout)
        if scope.cancelled_caught:
            raise Unavailable(f"{self.words[0]} does not answer within {self.within_s:g} s")
        assert process.returncode is not None
        return process.returncode


async def _ended(process: trio.Process, take: Callable[[bytes], None]) -> None:
    """The process has, and all that it printed is taken."""
    assert process.stdout is not None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(_read, process.stdout, take))
        await process.wait()
        nursery.cancel_scope.deadline = trio.current_time() + LINGER_S


async def _read(stream: trio.abc.ReceiveStream, take: Callable[[bytes], None]) -> None:
    while piece := await stream.receive_some(READ_BYTES):
        take(bytes(piece))
