"""Rules of a home: names, modes, durable writes, one node at a time, faults of the host."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.home import (
    SOCKET_PATH_BYTES_MAX,
    Home,
    check_socket,
    find_home,
    host_faults,
    locked,
    make_folders,
    next_incarnation,
    read_if_there,
    write_durably,
    write_new,
)
from protocol.errors import LocalFault
from protocol.units import Millis


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = find_home(tmp_path / "h")
    make_folders(made)
    return made


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_named_folder_holds_everything(tmp_path: Path) -> None:
    home = find_home(tmp_path)
    names = ("config", "genesis", "keys", "certificate", "incarnation", "ledger", "guard", "jobs")
    files = [getattr(home, name) for name in (*names, "bootstrap", "lock", "pid", "log", "socket")]
    assert {path.parent for path in files} == {tmp_path}
    assert len(set(files)) == len(files)


def test_the_variable_names_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("P2PNODE_HOME", str(tmp_path))
    assert find_home() == find_home(tmp_path)


def test_a_named_folder_goes_before_the_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("P2PNODE_HOME", "/elsewhere")
    assert find_home(tmp_path).config == tmp_path / "config.toml"


def test_a_relative_folder_is_made_absolute(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_home(Path("h")).socket == tmp_path / "h" / "node.sock"


def test_else_the_folders_are_those_of_the_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("P2PNODE_HOME", raising=False)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    for name in ("CONFIG", "DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    home = find_home()
    assert home.config == tmp_path / "CONFIG" / "p2pnode" / "config.toml"
    assert home.genesis == tmp_path / "DATA" / "p2pnode" / "genesis.cbor"
    assert home.log == tmp_path / "STATE" / "p2pnode" / "node.log"
    assert home.lock.parent == home.genesis.parent


def test_the_guard_is_outside_the_database(tmp_path: Path) -> None:
    home = find_home(tmp_path)
    assert home.ledger not in (home.guard, *home.guard.parents)


def test_folders_are_for_our_user_only(home: Home) -> None:
    for folder in (home.data_dir, home.keys, home.ledger, home.guard, home.jobs):
        assert mode_of(folder) == 0o700


def test_a_folder_open_to_others_is_closed(home: Home) -> None:
    home.keys.chmod(0o755)
    make_folders(home)
    assert mode_of(home.keys) == 0o700


def test_a_folder_that_cannot_be_made_is_a_local_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(LocalFault, match="cannot make the directory"):
        make_folders(find_home(tmp_path / "file"))


def test_a_folder_of_another_user_is_refused(home: Home) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory away")
    os.chown(home.keys, 12_345, -1)
    with pytest.raises(LocalFault, match="belongs to another user"):
        make_folders(home)


def test_the_longest_socket_path_is_107_bytes() -> None:
    check_socket(Path("/" + "s" * (SOCKET_PATH_BYTES_MAX - 1)))
    with pytest.raises(LocalFault, match="108 bytes") as caught:
        check_socket(Path("/" + "s" * SOCKET_PATH_BYTES_MAX))
    assert "P2PNODE_HOME" in caught.value.cure


def test_a_socket_path_is_counted_in_bytes() -> None:
    with pytest.raises(LocalFault):
        check_socket(Path("/" + "ü" * 54))


def test_no_folder_is_made_if_the_socket_path_is_too_long(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 107)
    with pytest.raises(LocalFault):
        make_folders(find_home(deep))
    assert not deep.exists()


def test_what_is_written_is_there_for_our_user_only(home: Home) -> None:
    write_durably(home.genesis, b"one")
    write_durably(home.genesis, b"two")
    assert home.genesis.read_bytes() == b"two"
    assert mode_of(home.genesis) == 0o600


def test_a_write_that_fails_leaves_the_old_and_no_rest(home: Home) -> None:
    home.genesis.mkdir()
    with pytest.raises(LocalFault, match=r"cannot write .*genesis\.cbor: "):
        write_durably(home.genesis, b"new")
    home.genesis.rmdir()
    assert not [path for path in home.data_dir.iterdir() if "genesis" in path.name]


def test_a_new_file_never_replaces_one(home: Home) -> None:
    write_new(home.genesis, b"old")
    with pytest.raises(LocalFault, match="File exists"):
        write_new(home.genesis, b"new")
    assert home.genesis.read_bytes() == b"old"
    assert mode_of(home.genesis) == 0o600
    assert not [path for path in home.data_dir.iterdir() if path.name.startswith(".genesis")]


def test_a_file_that_is_not_there_reads_as_none(home: Home) -> None:
    assert read_if_there(home.genesis, size_max=10) is None


def test_a_file_is_read_up_to_its_largest_size(home: Home) -> None:
    write_durably(home.genesis, b"0123456789")
    assert read_if_there(home.genesis, size_max=10) == b"0123456789"
    with pytest.raises(LocalFault, match="larger than 9 bytes"):
        read_if_there(home.genesis, size_max=9)


def test_a_file_that_cannot_be_read_is_a_local_fault(home: Home) -> None:
    with pytest.raises(LocalFault, match="cannot read"):
        read_if_there(home.keys, size_max=10)


@pytest.mark.parametrize(
    ("number", "cure"),
    [
        (errno.ENOSPC, "free some space"),
        (errno.EDQUOT, "free some of your quota"),
        (errno.EACCES, "give your user the rights"),
        (errno.EROFS, "set P2PNODE_HOME"),
    ],
)
def test_a_fault_of_the_host_is_one_sentence_with_a_cure(number: int, cure: str) -> None:
    with pytest.raises(LocalFault) as caught, host_faults("write x"):
        raise OSError(number, os.strerror(number))
    assert caught.value.what == f"cannot write x: {os.strerror(number)}."
    assert caught.value.cure.startswith(cure)


def test_a_second_node_on_a_home_is_refused_with_the_pid_of_the_first(home: Home) -> None:
    script = (
        "import sys; from pathlib import Path; from p2pnode.home import find_home, locked\n"
        "with locked(find_home(Path(sys.argv[1]))):\n print('in', flush=True); input()"
    )
    arguments = [sys.executable, "-c", script, str(home.data_dir)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdin
        assert first.stdout
        assert first.stdout.readline() == b"in\n"
        with (
            pytest.raises(
                LocalFault, match=rf"^another node runs on this home \(pid {first.pid}\)"
            ),
            locked(home),
        ):
            pass
        first.kill()
    with locked(home):
        assert home.pid.read_text() == str(os.getpid())


def test_a_home_is_free_again_after_the_node(home: Home) -> None:
    for _ in range(2):
        with locked(home):
            pass
    assert not home.pid.exists()


def test_a_home_that_cannot_be_locked_is_a_local_fault(home: Home) -> None:
    home.lock.mkdir()
    with pytest.raises(LocalFault, match="cannot lock"), locked(home):
        pass


@pytest.mark.parametrize(
    ("last", "now", "number"),
    [(None, 100, 100), (b"99", 100, 100), (b"100", 100, 101), (b"5000", 100, 5001)],
)
def test_each_start_has_a_higher_number(
    home: Home, last: bytes | None, now: int, number: int
) -> None:
    if last is not None:
        write_durably(home.incarnation, last)
    assert next_incarnation(home, Millis(now)) == number
    assert home.incarnation.read_text() == str(number)


@pytest.mark.parametrize("text", [b"", b"x", b"-1", b"1\n", b"9223372036854775807", b"1" * 21])
def test_a_damaged_number_of_starts_is_refused(home: Home, text: bytes) -> None:
    write_durably(home.incarnation, text)
    with pytest.raises(LocalFault, match="incarnation"):
        next_incarnation(home, Millis(100))
    assert home.incarnation.read_bytes() == text


@given(clocks=st.lists(st.integers(1, 10**6), min_size=2, max_size=4))
def test_the_number_of_starts_grows_whatever_the_clock_does(
    tmp_path_factory: pytest.TempPathFactory, clocks: list[int]
) -> None:
    home = find_home(tmp_path_factory.mktemp("h"))
    numbers = [next_incarnation(home, Millis(now)) for now in clocks]
    assert numbers == sorted(set(numbers))
