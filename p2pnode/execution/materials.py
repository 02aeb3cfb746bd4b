"""What a job starts with and leaves behind: the Materials port, and its form in memory."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

import trio

from p2pnode.execution.engine import RunId
from p2pnode.execution.workspace import Parcel
from protocol.errors import PeerFault
from protocol.job import Input, JobLimits
from protocol.tick import ArchiveName
from protocol.units import Digest, Millis


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Something that a job has saved."""

    at_ms: Millis
    archive: ArchiveName


class Materials(Protocol):
    """Archives of runs. All of it is kept until `remove`, also over a crash."""

    async def have(self, run: RunId, what: Parcel = "input") -> int:
        """How many bytes of it have arrived."""

    async def take(self, run: RunId, *, offset: int, piece: bytes, what: Parcel = "input") -> int:
        """Keep a piece of it; what there is then. A gap or an overlap is PeerFault."""

    async def prepare(
        self,
        run: RunId,
        wanted: Input | None,
        limits: JobLimits,
        /,
        *,
        resumed: Input | None = None,
    ) -> None:
        """Make the run's directory, with its input unpacked in it; repeating it is harmless.

        `resumed` is what the job saved elsewhere. Raises PeerFault `archive.*` if either is not
        what was named, or is not safe.
        """

    async def collect(self, run: RunId, limits: JobLimits, /) -> ArchiveName | None:
        """Pack what the run left as output; None if it left nothing. The same when repeated.

        Raises PeerFault `archive.*` if it is too large or of a kind that is not packed.
        """

    async def output(self, run: RunId, *, offset: int, size_max: int) -> bytes:
        """A piece of the packed output; empty at its end."""

    async def save(self, run: RunId, limits: JobLimits, /) -> Snapshot | None:
        """Pack the last whole thing that the job saved; None if there is none.

        The same while the job saves nothing newer. Raises PeerFault `archive.*` as `collect`.
        """

    async def saved(self, run: RunId, digest: Digest, *, offset: int, size_max: int) -> bytes:
        """A piece of what `save` packed; empty at its end, or if it is no longer kept."""

    async def remove(self, run: RunId) -> None:
        """Forget everything of the run."""


class MemoryMaterials:
    """See Materials. For worlds: inputs are checked and forgotten, outputs are what they say."""

    def __init__(
        self,
        outputs: Mapping[RunId, bytes],
        checkpoints: Mapping[RunId, tuple[Millis, bytes]] | None = None,
    ) -> None:
        """`checkpoints` is what the jobs have saved last, and when."""
        self._outputs = outputs
        self._checkpoints = {} if checkpoints is None else checkpoints
        self._parcels: dict[tuple[RunId, Parcel], bytes] = {}

    def resumed(self, run: RunId) -> bytes:
        """What the run found of its work elsewhere."""
        return self._parcels.get((run, "resume"), b"")

    async def have(self, run: RunId, what: Parcel = "input") -> int:
        await trio.lowlevel.checkpoint()
        return len(self._parcels.get((run, what), b""))

    async def take(self, run: RunId, *, offset: int, piece: bytes, what: Parcel = "input") -> int:
        await trio.lowlevel.checkpoint()
        before = self._parcels.get((run, what), b"")
        if offset != len(before):
            raise PeerFault("input.offset")
        self._parcels[run, what] = before + piece
        return len(self._parcels[run, what])

    async def prepare(
        self,
        run: RunId,
        wanted: Input | None,
        _limits: JobLimits,
        *,
        resumed: Input | None = None,
    ) -> None:
        await trio.lowlevel.checkpoint()
        parcels: tuple[tuple[Parcel, Input | None], ...] = (("input", wanted), ("resume", resumed))
        for what, named in parcels:
            got = self._parcels.get((run, what), b"")
            if named is not None and sha256(got).digest() != named.digest:
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

    async def save(self, run: RunId, limits: JobLimits) -> Snapshot | None:
        await trio.lowlevel.checkpoint()
        if run not in self._checkpoints:
            return None
        at_ms, archive = self._checkpoints[run]
        if len(archive) > limits.output_bytes:
            raise PeerFault("archive.size")
        name = ArchiveName(digest=Digest(sha256(archive).digest()), bytes=len(archive))
        return Snapshot(at_ms=at_ms, archive=name)

    async def saved(self, run: RunId, digest: Digest, *, offset: int, size_max: int) -> bytes:
        await trio.lowlevel.checkpoint()
        _, archive = self._checkpoints.get(run, (0, b""))
        is_kept = sha256(archive).digest() == digest
        return archive[offset : offset + size_max] if is_kept else b""

    async def remove(self, run: RunId) -> None:
        await trio.lowlevel.checkpoint()
        self._parcels.pop((run, "input"), None)
