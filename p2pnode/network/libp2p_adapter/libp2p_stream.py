"""One stream of libp2p as a trio stream; it knows nothing of hosts and protocols."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import trio
from libp2p.network.stream.net_stream import NetStream

log = logging.getLogger(__name__)

CHUNK_MAX: Final = 63 * 1024
"""Bytes in a frame at most; the library's own limit is 64 KiB with the header."""

READ_DEFAULT: Final = 64 * 1024

WINDOW_POLL_S: Final = 0.01
"""The library has no event for "the peer has made room"."""

CLOSE_S: Final = 2.0


class Libp2pStream(trio.abc.HalfCloseableStream):
    """See trio.abc.HalfCloseableStream.

    `aclose` delivers what was sent, then the end of stream; if it is cancelled, or after `abort`,
    the other side gets a reset. The library reports a reset and a lost connection as an end of
    stream; here both raise trio.BrokenResourceError. What a cancelled `send_all` has sent is
    unknown. Sending waits for as long as the peer does not read: deadlines are the caller's.
    """

    def __init__(self, stream: NetStream) -> None:
        # The outer stream only for its book-keeping: once a write has failed it refuses to read
        # what had arrived before.
        self._stream = stream
        self._muxed = stream.muxed_stream
        self._has_sent_eof = False
        self._is_closed = False

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """See trio.abc.SendStream."""
        self._check_sendable()
        rest = memoryview(data)
        await trio.lowlevel.checkpoint()
        while rest:
            # The library resets a stream whose window stays shut for five seconds, and does not
            # even tell the peer. So it is never given more than fits.
            await self.wait_send_all_might_not_block()
            chunk = bytes(rest[: min(CHUNK_MAX, self._muxed.send_window)])
            if not chunk:
                continue
            with self._library_errors():
                await self._muxed.write(chunk)
            rest = rest[len(chunk) :]

    async def wait_send_all_might_not_block(self) -> None:
        """See trio.abc.SendStream."""
        self._check_sendable()
        await trio.lowlevel.checkpoint()
        while self._muxed.send_window <= 0:
            if self._is_lost():
                raise trio.BrokenResourceError("the stream was reset")
            await trio.sleep(WINDOW_POLL_S)
            self._check_sendable()

    async def send_eof(self) -> None:
        """See trio.abc.HalfCloseableStream."""
        if self._is_closed:
            raise trio.ClosedResourceError
        if self._has_sent_eof:
            await trio.lowlevel.checkpoint()
            return
        self._has_sent_eof = True
        with self._library_errors():
            await self._muxed.close()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """See trio.abc.ReceiveStream."""
        if self._is_closed:
            raise trio.ClosedResourceError
        if max_bytes is not None and max_bytes < 1:
            raise ValueError("max_bytes must be at least 1")
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            data: bytes = await self._muxed.read(max_bytes or READ_DEFAULT)
        except Exception as error:
            # It raises the end of stream for a reset, and a reset for an end of stream that a
            # reset followed; the flags of the muxer tell the two apart.
            if self._is_closed:
                raise trio.ClosedResourceError from error
            if self._has_received_eof():
                return b""
            raise trio.BrokenResourceError("the stream was reset") from error
        if not data and not self._has_received_eof():
            raise trio.BrokenResourceError("the connection was lost")
        return data

    async def aclose(self) -> None:
        """See trio.abc.AsyncResource."""
        if self._is_closed:
            await trio.lowlevel.checkpoint()
            return
        try:
            # What is torn down half-way must not look complete: no end of stream if cancelled.
            await trio.lowlevel.checkpoint()
            with trio.move_on_after(CLOSE_S, shield=True):
                await self._send_eof_quietly()
        finally:
            with trio.move_on_after(CLOSE_S, shield=True):
                await self.abort()

    async def abort(self) -> None:
        """Close at once; the other side gets a reset unless both sides had ended already."""
        self._is_closed = True
        # Gives back the stream's place in its connection too, so it is never left out.
        with trio.move_on_after(CLOSE_S, shield=True):
            await self._stream.reset()

    async def _send_eof_quietly(self) -> None:
        await trio.lowlevel.checkpoint()
        try:
            await self.send_eof()
        except trio.BrokenResourceError:
            log.debug("stream was gone before it was closed")

    def _check_sendable(self) -> None:
        if self._is_closed or self._has_sent_eof:
            raise trio.ClosedResourceError

    def _is_lost(self) -> bool:
        return bool(self._muxed.reset_received or self._muxed.conn.event_shutting_down.is_set())

    def _has_received_eof(self) -> bool:
        # A connection that ends marks all its streams as ended, and drops what was not yet read.
        return bool(self._muxed.recv_closed and not self._muxed.conn.event_shutting_down.is_set())

    @contextmanager
    def _library_errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if self._is_closed:
                raise trio.ClosedResourceError from error
            raise trio.BrokenResourceError("the stream was reset") from error
