import pytest
import trio
from trio.testing import memory_stream_pair

from p2pnode.network.frames import FrameReader, write_frame
from protocol.errors import PeerFault
from protocol.limits import FRAME_BYTES_MAX


async def read_all(pieces: list[bytes], size_max: int = FRAME_BYTES_MAX) -> list[bytes]:
    ours, theirs = memory_stream_pair()
    frames: list[bytes] = []
    async with trio.open_nursery() as nursery:

        async def send() -> None:
            for piece in pieces:
                await ours.send_all(piece)
            await ours.aclose()

        nursery.start_soon(send)
        reader = FrameReader(theirs)
        while (frame := await reader.next(size_max)) is not None:
            frames.append(frame)
    return frames


async def test_frames_come_back_as_they_were_written() -> None:
    ours, theirs = memory_stream_pair()
    for frame in (b"", b"a", b"b" * 70_000):
        await write_frame(ours, frame)
    reader = FrameReader(theirs)
    assert [await reader.next() for _ in range(3)] == [b"", b"a", b"b" * 70_000]


async def test_how_the_bytes_are_cut_on_the_way_does_not_matter() -> None:
    whole = b"\0\0\0\3abc\0\0\0\1d"
    assert await read_all([whole[i : i + 1] for i in range(len(whole))]) == [b"abc", b"d"]


async def test_a_frame_of_the_largest_size_passes_and_one_more_byte_does_not() -> None:
    assert await read_all([b"\0\0\0\5" + b"x" * 5], size_max=5) == [b"xxxxx"]
    with pytest.RaisesGroup(pytest.RaisesExc(PeerFault, match=r"frame\.size")):
        await read_all([b"\0\0\0\6" + b"x" * 6], size_max=5)


async def test_a_huge_length_is_refused_before_anything_is_read() -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(PeerFault, match=r"frame\.size")):
        await read_all([b"\xff\xff\xff\xff"])


@pytest.mark.parametrize("whole", [b"\0", b"\0\0\0", b"\0\0\0\5abcd"])
async def test_an_end_within_a_frame_is_a_fault(whole: bytes) -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(PeerFault, match=r"frame\.cut")):
        await read_all([whole])
