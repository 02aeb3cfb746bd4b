"""Files of a renter's job: what an owner sends stays within what the job asked for."""

from hashlib import sha256
from pathlib import Path

import pytest

from p2pnode.jobs.baggage import FileBaggage
from protocol.errors import LocalFault, PeerFault
from protocol.tick import ArchiveName
from protocol.units import Digest

LINES = b"".join(b"line %06d\n" % number for number in range(5_000))


async def test_a_log_that_never_ends_keeps_a_beginning_and_an_end(tmp_path: Path) -> None:
    baggage = FileBaggage(tmp_path)
    for at in range(0, len(LINES), 700):
        await baggage.append_log("j", LINES[at : at + 700], bytes_max=10_000)
    assert await baggage.log_size("j") == len(LINES)
    kept = sum(file.stat().st_size for file in (tmp_path / "j" / "log").iterdir())
    assert 7_500 <= kept <= 10_000
    assert await baggage.read_log("j", offset=0, size_max=5_000) == (0, LINES[:5_000])
    begin, piece = await baggage.read_log("j", offset=5_000, size_max=1 << 20)
    assert begin > 5_000
    assert piece == LINES[begin : begin + len(piece)]
    assert await baggage.read_log("j", offset=len(LINES), size_max=9) == (len(LINES), b"")


async def test_a_job_that_printed_nothing_has_an_empty_log(tmp_path: Path) -> None:
    baggage = FileBaggage(tmp_path)
    assert await baggage.log_size("j") == 0
    assert await baggage.read_log("j", offset=0, size_max=9) == (0, b"")


async def test_an_output_that_is_not_the_signed_one_is_dropped(tmp_path: Path) -> None:
    baggage = FileBaggage(tmp_path)
    for piece in (b"one", b"two"):
        await baggage.append_output("j", piece)
    assert await baggage.output_size("j") == 6
    right = ArchiveName(digest=Digest(sha256(b"onetwo").digest()), bytes=6)
    await baggage.check_output("j", right)
    await baggage.append_output("j", b"!")
    with pytest.raises(PeerFault, match=r"output\.digest"):
        await baggage.check_output("j", right)
    assert await baggage.output_size("j") == 0


async def test_a_directory_that_cannot_be_made_is_said_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "j").write_text("in the way")
    with pytest.raises(LocalFault, match="cannot write"):
        await FileBaggage(tmp_path).append_log("j", b"x", bytes_max=9)
