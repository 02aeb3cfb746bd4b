"""The directory of a lease, its input as it arrives, its log and its records."""

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.execution.disk_use import disk_bytes
from p2pnode.execution.engine import RunId
from p2pnode.execution.records import claim_record, read_record, write_record
from p2pnode.execution.run_log import RunLog, read_part, segments
from p2pnode.execution.workspace import (
    Workspace,
    add_input,
    clear_work,
    finish_input,
    input_size,
    list_workspaces,
    make_job_folders,
    make_workspace,
    remove_workspace,
    socket_folder,
    workspace_of,
)
from protocol.errors import LocalFault, PeerFault
from protocol.job import Input
from protocol.units import Digest

RUN = RunId("ab" * 32)


def make(jobs: Path, run: RunId = RUN) -> Workspace:
    space = workspace_of(jobs, run)
    make_workspace(space)
    return space


def named(raw: bytes) -> Input:
    return Input(digest=Digest(hashlib.sha256(raw).digest()), bytes=len(raw))


def test_only_our_user_may_look_into_a_workspace_and_making_it_twice_is_harmless(
    tmp_path: Path,
) -> None:
    space = make(tmp_path)
    (space.work / "kept").touch()
    make(tmp_path)
    make_job_folders(space)
    for folder in (space.folder, space.work, space.out, space.scratch, space.log, space.records):
        assert folder.stat().st_mode & 0o777 == 0o700
    assert (space.work / "kept").exists()
    assert space.run == RUN


def test_only_workspaces_are_listed(tmp_path: Path) -> None:
    make(tmp_path, RunId("b" * 64))
    make(tmp_path, RunId("a" * 64))
    (tmp_path / "lost+found").mkdir()
    (tmp_path / ("c" * 64)).touch()
    assert [space.run for space in list_workspaces(tmp_path)] == ["a" * 64, "b" * 64]


def test_an_input_with_a_link_in_place_of_the_output_is_refused(tmp_path: Path) -> None:
    space = make(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    space.out.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LocalFault):
        make_job_folders(space)


def test_a_removed_workspace_is_gone_however_the_job_left_it(tmp_path: Path) -> None:
    space = make(tmp_path)
    make_job_folders(space)
    (tmp_path / "outside").mkdir(mode=0o755)
    (space.work / "shut").mkdir()
    (space.work / "shut" / "file").touch()
    (space.work / "shut").chmod(0)
    (space.work / "link").symlink_to(tmp_path / "outside")
    shortcut = socket_folder(space)
    remove_workspace(space)
    remove_workspace(space)
    assert [path.name for path in tmp_path.iterdir()] == ["outside"]
    assert (tmp_path / "outside").stat().st_mode & 0o777 == 0o755
    assert not shortcut.is_symlink()


def test_an_interrupted_removal_is_finished_by_the_next(tmp_path: Path) -> None:
    space = make(tmp_path)
    space.folder.rename(space.folder.with_name(f".{RUN}.removed"))
    assert list_workspaces(tmp_path) == ()
    make(tmp_path)
    remove_workspace(space)
    assert list(tmp_path.iterdir()) == []


def test_work_is_emptied_whatever_is_in_it(tmp_path: Path) -> None:
    space = make(tmp_path)
    make_job_folders(space)
    clear_work(space)
    assert list(space.work.iterdir()) == []
    assert space.work.stat().st_mode & 0o777 == 0o700


def test_a_broken_transfer_goes_on_where_it_ended(tmp_path: Path) -> None:
    space = make(tmp_path)
    raw = b"0123456789"
    assert input_size(space) == 0
    assert add_input(space, offset=0, data=raw[:4]) == 4
    for offset in (0, 3, 5):
        with pytest.raises(PeerFault, match=r"input\.offset"):
            add_input(space, offset=offset, data=b"x")
    with pytest.raises(PeerFault, match=r"archive\.size"):
        finish_input(space, named(raw))
    assert add_input(space, offset=4, data=raw[4:]) == 10
    finish_input(space, named(raw))
    finish_input(space, named(raw))
    assert (space.input.read_bytes(), input_size(space)) == (raw, 10)
    with pytest.raises(PeerFault, match=r"input\.offset"):
        add_input(space, offset=10, data=b"x")


def test_another_archive_than_was_named_starts_from_nothing_again(tmp_path: Path) -> None:
    space = make(tmp_path)
    add_input(space, offset=0, data=b"evil")
    with pytest.raises(PeerFault, match=r"archive\.digest"):
        finish_input(space, named(b"good"))
    assert input_size(space) == 0


@given(
    pieces=st.lists(st.binary(max_size=300), max_size=30),
    bound=st.integers(0, 400),
    reopened=st.integers(0, 30),
    size_max=st.integers(1, 100),
)
def test_a_log_is_bounded_and_each_offset_means_what_was_written_there(
    tmp_path_factory: pytest.TempPathFactory,
    pieces: list[bytes],
    bound: int,
    reopened: int,
    size_max: int,
) -> None:
    folder = tmp_path_factory.mktemp("log") / "log"
    log = RunLog(folder, bytes_max=bound)
    log.open()
    written = b"".join(pieces)
    for number, piece in enumerate(pieces):
        if number == reopened and bound >= 4:
            log.close()
            log = RunLog(folder, bytes_max=bound)
            log.open()
        log.append(piece)
    log.close()
    assert log.end == len(written)
    kept = offset = 0
    first = last = b""
    while (found := read_part(folder, offset, size_max))[1]:
        begin, data = found
        assert begin >= offset
        assert written[begin : begin + len(data)] == data
        first = first or data
        kept, offset, last = kept + len(data), begin + len(data), data
    assert kept <= bound
    if len(written) <= bound // 2:
        assert kept == len(written)
    elif bound >= 4:
        assert kept >= bound // 2
        assert written.startswith(first)
        assert written.endswith(last)


def test_a_follower_is_not_disturbed_by_a_segment_that_goes(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "log", bytes_max=40)
    log.open()
    log.append(bytes(range(100)))
    assert segments(tmp_path / "log") == [0, 80, 90]
    assert read_part(tmp_path / "log", 20, 99) == (80, bytes(range(80, 90)))
    assert read_part(tmp_path / "log", 95, 99) == (95, bytes(range(95, 100)))
    assert read_part(tmp_path / "log", 100, 99) == (100, b"")
    assert read_part(tmp_path / "none", 5, 99) == (5, b"")
    log.close()


def test_a_log_without_its_directory_loses_text_and_nothing_else(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "log", bytes_max=40)
    log.open()
    (tmp_path / "log").rmdir()
    log.append(b"lost")
    log.close()
    assert log.end == 4


def test_a_record_is_claimed_once_and_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "record"
    assert read_record(path) is None
    assert claim_record(path, {"a": "1 2", "b": "two\nlines", "c": ""})
    assert not claim_record(path, {"a": "other"})
    assert read_record(path) == {"a": "1 2", "b": "two lines", "c": ""}
    write_record(path, {"a": "3"})
    assert read_record(path) == {"a": "3"}
    assert list(tmp_path.iterdir()) == [path]


def test_disk_use_counts_holes_as_nothing_and_hard_links_once(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    with (tmp_path / "d" / "hole").open("wb") as file:
        file.truncate(1 << 40)
    before = disk_bytes(tmp_path)
    assert before < 1 << 20
    (tmp_path / "a").write_bytes(bytes(1 << 20))
    once = disk_bytes(tmp_path)
    assert once >= before + (1 << 20)
    (tmp_path / "d" / "again").hardlink_to(tmp_path / "a")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert once <= disk_bytes(tmp_path) < once + (1 << 16)
