"""A byte stream within one process that ends as real ones do: by an end, or by a reset."""

from typing import Final

import trio

BUFFERED_MAX: Final = 262_144
"""As much as a real stream's window; a writer then waits for the reader."""


class _Pipe:
    """One direction."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.is_ended = False  # the writer is done
        self.is_reset = False  # the writer is gone
        self.is_refused = False  # nobody reads any more
        self._waiting = trio.lowlevel.ParkingLot()

    def changed(self) -> None:
        """Wake whoever waits for a state that may have come."""
        self._waiting.unpark_all()

    async def put(self, data: bytes) -> None:
        while data:
            if self.is_refused:
                raise trio.BrokenResourceError
            room = BUFFERED_MAX - len(self.buffer)
            if not room:
                await self._waiting.park()
                continue
            self.buffer += data[:room]
            data = data[room:]
            self.changed()
        await trio.lowlevel.checkpoint()

    async def get(self, size_max: int) -> bytes:
        await trio.lowlevel.checkpoint()
        while not self.buffer:
            if self.is_reset:
                raise trio.BrokenResourceError
            if self.is_ended:
                return b""
            await self._waiting.park()
        data = bytes(self.buffer[:size_max])
        del self.buffer[:size_max]
        self.changed()
        return data


class MemoryStream(trio.abc.HalfCloseableStream):
    """See trio.abc.Stream."""

    def __init__(self, incoming: _Pipe, outgoing: _Pipe) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._is_closed = False

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closed or self._outgoing.is_ended:
            raise trio.ClosedResourceError
        await self._outgoing.put(bytes(data))

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def send_eof(self) -> None:
        self._outgoing.is_ended = True
        self._outgoing.changed()
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if self._is_closed:
            raise trio.ClosedResourceError
        return await self._incoming.get(max_bytes or BUFFERED_MAX)

    async def aclose(self) -> None:
        """End the stream; in a cancelled scope reset it, so that half does not look whole."""
        if not self._is_closed:
            self._is_closed = True
            self._incoming.is_refused = True
            self._incoming.changed()
            try:
                await trio.lowlevel.checkpoint()
            except trio.Cancelled:
                self.reset()
                raise
            self._outgoing.is_ended = True
            self._outgoing.changed()
        await trio.lowlevel.checkpoint()

    def reset(self) -> None:
        """Break both directions for both sides."""
        for pipe in (self._incoming, self._outgoing):
            pipe.is_refused = True
            pipe.is_reset = True
            pipe.changed()


def memory_streams() -> tuple[MemoryStream, MemoryStream]:
    """The two ends of one stream."""
    forth, back = _Pipe(), _Pipe()
    return MemoryStream(back, forth), MemoryStream(forth, back)
