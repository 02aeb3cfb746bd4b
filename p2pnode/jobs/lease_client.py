"""The renter's end of streams about one lease: sends the input, receives log and output.

SPEC.md section 14. Everything goes on from where it was; a lost connection is for the caller.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio
from msgspec import UNSET

from p2pnode.execution.lease_door import PROTOCOL
from p2pnode.execution.run_log import gap_line
from p2pnode.jobs.baggage import Baggage
from p2pnode.network.frames import FrameReader, write_frame
from protocol.codec import decode, encode
from protocol.errors import PeerFault, Unavailable
from protocol.lease_stream import Open, Part, Want
from protocol.limits import FRAME_BYTES_MAX, PART_BYTES_MAX
from protocol.units import Digest, PeerId

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
        async with self._stream("input", 0) as (stream, reader):
            have = (await _next(reader)).offset
            while have < size:
                piece = await self._baggage.input(job, offset=have, size_max=PART_BYTES_MAX)
                if not piece:
                    raise PeerFault("input.short", "the archive is shorter than the job says")
                await write_frame(stream, encode(Part(offset=have, b=piece)))
                have += len(piece)
            if (await _next(reader)).offset < size:
                raise PeerFault("input.size")

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
