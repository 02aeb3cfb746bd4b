"""What a job starts with and leaves behind: the Materials port, and its form in memory."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Protocol

import trio

from p2pnode.execution.engine import RunId
from protocol.errors import PeerFault
from protocol.job import Input, JobLimits
from protocol.tick import ArchiveName
from protocol.units import Digest


class Materials(Protocol):
    """Archives of runs. All of it is kept until `remove`, also over a crash."""

    async def have(self, run: RunId) -> int:
        """How many bytes of the input have arrived."""

    async def take(self, run: RunId, *, offset: int, piece: bytes) -> int:
        """Keep a piece of the input; what there is then. A gap or an overlap is PeerFault."""

    async def prepare(self, run: RunId, wanted: Input | None, limits: JobLimits, /) -> None:
        """Make the run's directory, with its input unpacked in it; repeating it is harmless.

        Raises PeerFault `archive.*` if the input is not what was named, or is not safe.
        """

    async def collect(self, run: RunId, limits: JobLimits, /) -> ArchiveName | None:
        """Pack what the run left as output; None if it left nothing. The same when repeated.

        Raises PeerFault `archive.*` if it is too large or of a kind that is not packed.
        """

    async def output(self, run: RunId, *, offset: int, size_max: int) -> bytes:
        """A piece of the packed output; empty at its end."""

    async def remove(self, run: RunId) -> None:
        """Forget everything of the run."""


class MemoryMaterials:
    """See Materials. For worlds: inputs are checked and forgotten, outputs are what they say."""

    def __init__(self, outputs: Mapping[RunId, bytes]) -> None:
        self._outputs = outputs
        self._inputs: dict[RunId, bytes] = {}

    async def have(self, run: RunId) -> int:
        await trio.lowlevel.checkpoint()
        return len(self._inputs.get(run, b""))

    async def take(self, run: RunId, *, offset: int, piece: bytes) -> int:
        await trio.lowlevel.checkpoint()
        before = self._inputs.get(run, b"")
        if offset != len(before):
            raise PeerFault("input.offset")
        self._inputs[run] = before + piece
        return len(self._inputs[run])

    async def prepare(self, run: RunId, wanted: Input | None, _limits: JobLimits) -> None:
        await trio.lowlevel.checkpoint()
        got = self._inputs.get(run, b"")
        if wanted is not None and sha256(got).digest() != wanted.digest:
            raise PeerFault("archive.digest")

    async def collect(self, run: RunId, _limits: JobLimits) -> ArchiveName | None:
        await trio.lowlevel.checkpoint()
        output = self._outputs.get(run)
        if output is None:
            return None
        return ArchiveName(digest=Digest(sha256(output).digest()), bytes=len(output))

    async def output(self, run: RunId, *, offset: int, size_max: int) -> bytes:
        await trio.lowlevel.checkpoint()
        return self._outputs.get(run, b"")[offset : offset + size_max]

    async def remove(self, run: RunId) -> None:
        await trio.lowlevel.checkpoint()
        self._inputs.pop(run, None)
