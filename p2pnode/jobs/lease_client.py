"""The renter's end of streams about one lease: sends the input, receives log and output.

SPEC.md section 14. Everything goes on from where it was; a lost connection is for the caller.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import trio
from msgspec import UNSET

from p2pnode.execution.lease_door import PROTOCOL
from p2pnode.execution.run_log import gap_line
from p2pnode.jobs.baggage import Baggage
from p2pnode.network.frames import FrameReader, write_frame
from protocol.codec import decode, encode
from protocol.errors import PeerFault, Unavailable
from protocol.job import Input
from protocol.lease_stream import Open, Part, Want
from protocol.limits import FRAME_BYTES_MAX, PART_BYTES_MAX
from protocol.tick import ArchiveName
from protocol.units import Digest, PeerId

PieceOf = Callable[..., Awaitable[bytes]]
"""piece_of(offset=, size_max=): of an archive that is sent."""
CheckSaved = Callable[[bytes], ArchiveName]
"""check(sealed): what the owner says that was saved. Raises PeerFault."""
OpenStream = Callable[[PeerId, str], Awaitable[trio.abc.Stream]]
"""A stream to a peer that we have greeted. Raises Unavailable."""

Shift = Callable[[int], None]
"""shift(n): our copy of the log is n bytes longer now, against the owner's, than it was."""


class LeaseClient:
    """Talks with the owner of one lease."""

    def __init__(
        self, *, peer: PeerId, lease: Digest, open_stream: OpenStream, baggage: Baggage
    ) -> None:
        self._peer = peer
        self._lease = lease
        self._open_stream = open_stream
        self._baggage = baggage

    async def send_input(self, job: str, size: int) -> None:
        """Return when the owner has all of the input. Raises Unavailable or PeerFault."""
        await self._send("input", size, partial(self._baggage.input, job))

    async def send_checkpoint(self, job: str, named: Input) -> None:
        """Return when the owner has all that the job saved. Raises Unavailable or PeerFault."""
        piece_of = partial(self._baggage.checkpoint, job, named.digest)
        await self._send("resume", named.bytes, piece_of)

    async def _send(self, want: Want, size: int, piece_of: PieceOf) -> None:
        async with self._stream(want, 0) as (stream, reader):
            first = await _next(reader)
            if first.outcome is not UNSET:
                return  # the job has ended before it began
            have = first.offset
            while have < size:
                piece = await piece_of(offset=have, size_max=PART_BYTES_MAX)
                if not piece:
                    raise PeerFault("input.short", "the archive is shorter than the job says")
                await write_frame(stream, encode(Part(offset=have, b=piece)))
                have += len(piece)
            if (await _next(reader)).offset < size:
                raise PeerFault("input.size")

    async def fetch_checkpoint(self, job: str, check: CheckSaved) -> bytes | None:
        """What the job saved last is here, whole; the sealed word for it, None if there is none.

        Raises Unavailable or PeerFault, also what `check` raises.
        """
        known, have = await self._baggage.checkpoint_part(job)
        async with self._stream("checkpoint", have) as (_, reader):
            first = await _next(reader)
            if first.saved is UNSET:
                return None
            wanted = check(first.saved)
            at_hand = partial(self._baggage.checkpoint, job, wanted.digest)
            if await at_hand(offset=0, size_max=1):
                return first.saved
            if have and known != wanted.digest[: len(known)]:
                # The one on its way has been overtaken; its rest is of no use.
                await self._baggage.append_checkpoint(job, wanted.digest, b"")
                raise Unavailable("the job has saved again meanwhile")
            while have < wanted.bytes:
                part = await _next(reader)
                if part.b is UNSET or part.offset != have or have + len(part.b) > wanted.bytes:
                    raise PeerFault("checkpoint.form")
                await self._baggage.append_checkpoint(job, wanted.digest, part.b)
                have += len(part.b)
        await self._baggage.keep_checkpoint(job, wanted)
        return first.saved

    async def follow_log(self, job: str, *, offset: int, shift: Shift, bytes_max: int) -> bytes:
        """Append the log as it comes, from `offset` of this lease's log on; the sealed outcome.

        What the owner did not keep is replaced by a line that says so; we keep `bytes_max`.

        Raises Unavailable or PeerFault.
        """
        async with self._stream("log", offset) as (_, reader):
            while True:
                part = await _next(reader)
                if part.outcome is not UNSET:
                    return part.outcome
                if part.b is UNSET or part.offset < offset:
                    raise PeerFault("log.form")
                if part.offset > offset:
                    gap = gap_line(part.offset - offset)
                    await self._baggage.append_log(job, gap, bytes_max=bytes_max)
                    shift(len(gap) - (part.offset - offset))
                await self._baggage.append_log(job, part.b, bytes_max=bytes_max)
                offset = part.offset + len(part.b)

    async def fetch_output(self, job: str, size: int) -> None:
        """Append the output from where it is to its end. Raises Unavailable or PeerFault."""
        have = await self._baggage.output_size(job)
        if have >= size:
            return
        async with self._stream("output", have) as (_, reader):
            while have < size:
                part = await _next(reader)
                if part.b is UNSET or part.offset != have or have + len(part.b) > size:
                    raise PeerFault("output.form")
                await self._baggage.append_output(job, part.b)
                have += len(part.b)

    @asynccontextmanager
    async def _stream(
        self, want: Want, offset: int
    ) -> AsyncIterator[tuple[trio.abc.Stream, FrameReader]]:
        """A stream on which we have said what we want; what breaks it becomes Unavailable."""
        stream = await self._open_stream(self._peer, PROTOCOL)
        try:
            async with stream:
                opening = Open(lease=self._lease, want=want, offset=offset)
                await write_frame(stream, encode(opening))
                yield stream, FrameReader(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise Unavailable("the connection was lost") from error


async def _next(reader: FrameReader) -> Part:
    frame = await reader.next()
    if frame is None:
        raise Unavailable("the owner closed the stream")
    part = decode(frame, Part, size_max=FRAME_BYTES_MAX)
    if part.rule is not UNSET:
        raise Unavailable(f"the owner refuses: {part.rule}")
    return part
