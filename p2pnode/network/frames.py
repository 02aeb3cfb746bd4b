"""Length-prefixed frames on a byte stream. A reset looks like an end, so every frame has a length.

SPEC.md 7.2: four bytes, big-endian, then that many bytes.
"""

import trio

from protocol.errors import PeerFault
from protocol.limits import FRAME_BYTES_MAX


async def write_frame(stream: trio.abc.Stream, frame: bytes) -> None:
    """Send one frame. Raises trio.BrokenResourceError."""
    assert len(frame) <= FRAME_BYTES_MAX, len(frame)
    await stream.send_all(len(frame).to_bytes(4, "big") + frame)


class FrameReader:
    """Frames out of a stream, one at a time."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._buffer = bytearray()

    async def next(self, size_max: int = FRAME_BYTES_MAX) -> bytes | None:
        """The next frame, or None at the end of the stream between two frames.

        Raises PeerFault `frame.size` for a frame longer than `size_max`, `frame.cut` for an end
        within one, and trio.BrokenResourceError.
        """
        if not await self._fill(4):
            return None
        size = int.from_bytes(self._buffer[:4], "big")
        if size > size_max:
            raise PeerFault("frame.size", f"{size} bytes, at most {size_max}")
        await self._fill(4 + size)
        frame = bytes(self._buffer[4 : 4 + size])
        del self._buffer[: 4 + size]
        return frame

    async def _fill(self, size: int) -> bool:
        """Whether so much is in the buffer; False at an end with nothing in it."""
        while len(self._buffer) < size:
            piece = await self._stream.receive_some(65_536)
            if not piece:
                if self._buffer:
                    raise PeerFault("frame.cut")
                return False
            self._buffer += piece
        return True
