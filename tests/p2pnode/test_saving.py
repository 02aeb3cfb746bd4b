"""What a job saves while it runs is taken whole, once, and from nowhere else than its directory."""

import os
import stat
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
import trio

from p2pnode.execution.archive import pack_now, unpack_now
from p2pnode.execution.engine import Notice, RunId
from p2pnode.execution.file_materials import FileMaterials
from p2pnode.execution.materials import Snapshot
from p2pnode.execution.workspace import (
    Workspace,
    make_job_folders,
    make_workspace,
    workspace_of,
    write_notice,
)
from p2pnode.jobs.baggage import Baggage, FileBaggage, MemoryBaggage
from protocol.errors import LocalFault, PeerFault
from protocol.job import Input
from protocol.tick import ArchiveName
from protocol.units import Digest, Millis
from tests.make_job import make_limits

RUN = RunId("ab" * 32)
LIMITS = make_limits()


@pytest.fixture
def space(tmp_path: Path) -> Workspace:
    space = workspace_of(tmp_path, RUN)
    make_workspace(space)
    make_job_folders(space)
    return space


@pytest.fixture
def materials(tmp_path: Path) -> FileMaterials:
    return FileMaterials(tmp_path, files=trio.CapacityLimiter(4))


def save(space: Workspace, name: str, content: bytes) -> None:
    """As a job does: under a name with a dot, then renamed."""
    aside = space.checkpoint / f".{name}"
    aside.write_bytes(content)
    aside.replace(space.checkpoint / name)


async def archive_of(materials: FileMaterials, found: Snapshot) -> bytes:
    wanted = found.archive
    raw = await materials.saved(RUN, wanted.digest, offset=0, size_max=wanted.bytes)
    assert sha256(raw).digest() == wanted.digest
    return raw


async def content_of(materials: FileMaterials, found: Snapshot, into: Path) -> dict[str, bytes]:
    archive = into / "archive"
    archive.write_bytes(await archive_of(materials, found))
    tree = into / f"tree-{found.archive.digest.hex()[:8]}"
    unpack_now(archive, tree, bytes_max=1 << 20, check=lambda: None)
    files = sorted(path for path in tree.rglob("*") if path.is_file())
    return {str(path.relative_to(tree)): path.read_bytes() for path in files}


async def test_nothing_is_saved_until_something_is_whole(
    space: Workspace, materials: FileMaterials
) -> None:
    assert await materials.save(RUN, LIMITS) is None
    (space.checkpoint / ".half").write_bytes(b"on its way")
    assert await materials.save(RUN, LIMITS) is None


async def test_the_newest_is_taken_alone_and_only_once(
    space: Workspace, materials: FileMaterials, tmp_path: Path
) -> None:
    save(space, "step-1", b"one")
    first = await materials.save(RUN, LIMITS)
    assert first is not None
    assert await content_of(materials, first, tmp_path) == {"step-1": b"one"}
    assert await materials.save(RUN, LIMITS) == first
    folder = space.checkpoint / ".step-2"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "a").write_bytes(b"two")
    (folder / "link").symlink_to("deep/a")
    folder.replace(space.checkpoint / "step-2")
    second = await materials.save(RUN, LIMITS)
    assert second is not None
    assert await content_of(materials, second, tmp_path) == {
        "step-2/deep/a": b"two",
        "step-2/link": b"two",
    }
    assert second.at_ms >= first.at_ms
    assert await materials.save(RUN, LIMITS) == second


async def test_a_job_that_clears_its_directory_has_still_saved(
    space: Workspace, materials: FileMaterials
) -> None:
    save(space, "step-1", b"one")
    first = await materials.save(RUN, LIMITS)
    (space.checkpoint / "step-1").unlink()
    assert await materials.save(RUN, LIMITS) == first


async def test_the_instant_cannot_be_set_back(space: Workspace, materials: FileMaterials) -> None:
    before = (space.folder / "records").stat().st_ctime_ns // 1_000_000
    save(space, "step-1", b"one")
    os.utime(space.checkpoint / "step-1", ns=(1, 1))
    found = await materials.save(RUN, LIMITS)
    assert found is not None
    assert found.at_ms >= before


async def test_of_what_was_packed_the_last_two_are_kept(
    space: Workspace, materials: FileMaterials
) -> None:
    found = []
    for number in range(3):
        save(space, f"step-{number}", bytes([number]))
        os.utime(space.checkpoint / f"step-{number}", ns=(number, number))
        found.append(await materials.save(RUN, LIMITS))
    digests = [each.archive.digest for each in found if each is not None]
    assert await materials.saved(RUN, digests[0], offset=0, size_max=9) == b""
    for digest in digests[1:]:
        assert len(await materials.saved(RUN, digest, offset=0, size_max=9)) == 9


async def test_a_link_in_the_place_of_the_directory_leads_nowhere(
    space: Workspace, materials: FileMaterials, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_bytes(b"of the host")
    space.checkpoint.rmdir()
    space.checkpoint.symlink_to(secret)
    assert await materials.save(RUN, LIMITS) is None


async def test_links_inside_are_saved_as_links(
    space: Workspace, materials: FileMaterials, tmp_path: Path
) -> None:
    folder = space.checkpoint / ".step"
    folder.mkdir()
    (folder / "out").symlink_to("/etc")
    folder.replace(space.checkpoint / "step")
    with pytest.raises(PeerFault, match=r"archive\.path"):
        await materials.save(RUN, LIMITS)


async def test_more_than_was_agreed_is_not_packed(
    space: Workspace, materials: FileMaterials
) -> None:
    save(space, "step", bytes(LIMITS.output_bytes + 1))
    with pytest.raises(PeerFault, match=r"archive\.size"):
        await materials.save(RUN, LIMITS)
    assert sorted(path.name for path in space.folder.iterdir()) == ["log", "records", "work"]


async def test_what_was_saved_elsewhere_is_there_when_the_job_begins(
    tmp_path: Path, materials: FileMaterials
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "step-7").write_bytes(b"seven")
    packed = pack_now(source, tmp_path / "packed", bytes_max=1 << 20, check=lambda: None)
    raw = (tmp_path / "packed").read_bytes()
    named = Input(digest=packed.digest, bytes=packed.bytes)
    with pytest.raises(PeerFault, match=r"archive\.size"):
        await materials.prepare(RUN, None, LIMITS, resumed=named)
    for offset in range(0, len(raw), 1_000):
        piece = raw[offset : offset + 1_000]
        await materials.take(RUN, offset=offset, piece=piece, what="resume")
    assert await materials.have(RUN, "resume") == len(raw)
    assert await materials.have(RUN) == 0
    await materials.prepare(RUN, None, LIMITS, resumed=named)
    space = workspace_of(tmp_path, RUN)
    make_job_folders(space)
    assert (space.checkpoint / "step-7").read_bytes() == b"seven"
    # The same again is what the renter has already.
    found = await materials.save(RUN, LIMITS)
    assert found is not None
    assert found.archive == ArchiveName(digest=packed.digest, bytes=packed.bytes)


def notice(**changes: object) -> Notice:
    fields = {"deadline_ms": Millis(7), "reason": 'the "owner"', "signal": None, **changes}
    return Notice(**fields)  # type: ignore[arg-type]


def test_a_notice_is_whole_and_says_until_when(space: Workspace) -> None:
    write_notice(space, notice())
    write_notice(space, notice(deadline_ms=Millis(8)))
    assert space.notice.read_text() == '{"deadline_ms":8,"reason":"the \\"owner\\""}'
    assert stat.S_IMODE(space.notice.stat().st_mode) & 0o444 == 0o444
    assert [path.name for path in space.notice.parent.iterdir()] == ["notice.json"]


def test_a_notice_goes_nowhere_else(space: Workspace, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    space.notice.parent.rmdir()
    space.notice.parent.symlink_to(elsewhere)
    with pytest.raises(LocalFault):
        write_notice(space, notice())
    assert list(elsewhere.iterdir()) == []


def baggages(tmp_path: Path) -> Iterator[Baggage]:
    yield FileBaggage(tmp_path)
    yield MemoryBaggage()


@pytest.mark.parametrize("kind", [0, 1], ids=["files", "memory"])
async def test_a_checkpoint_on_its_way_goes_on_and_gives_way_to_a_newer_one(
    tmp_path: Path, kind: int
) -> None:
    baggage = list(baggages(tmp_path))[kind]
    (tmp_path / "j").mkdir()
    one, two = (
        ArchiveName(digest=Digest(sha256(raw).digest()), bytes=len(raw)) for raw in (b"one", b"two")
    )
    assert await baggage.checkpoint_part("j") == (b"", 0)
    await baggage.append_checkpoint("j", one.digest, b"on")
    assert await baggage.checkpoint_part("j") == (one.digest[:8], 2)
    assert await baggage.checkpoint("j", one.digest, offset=0, size_max=9) == b""
    await baggage.append_checkpoint("j", two.digest, b"tw")
    await baggage.append_checkpoint("j", two.digest, b"o")
    await baggage.keep_checkpoint("j", two)
    assert await baggage.checkpoint("j", two.digest, offset=1, size_max=9) == b"wo"
    assert await baggage.checkpoint_part("j") == (b"", 0)
    await baggage.append_checkpoint("j", one.digest, b"oen")
    with pytest.raises(PeerFault, match=r"checkpoint\.digest"):
        await baggage.keep_checkpoint("j", one)
    await baggage.append_checkpoint("j", one.digest, b"one")
    await baggage.keep_checkpoint("j", one)
    await baggage.drop_checkpoints("j", one.digest)
    assert await baggage.checkpoint("j", one.digest, offset=0, size_max=9) == b"one"
    assert await baggage.checkpoint("j", two.digest, offset=0, size_max=9) == b""
