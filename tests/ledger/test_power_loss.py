"""What is left of files after a loss of power, by testnet/power_loss.c."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from protocol.errors import LocalFault
from testnet import power_loss
from testnet.power_loss import LossyDisk, build_shim
from testnet.world_dice import dice_of

needs_compiler = pytest.mark.skipif(
    shutil.which("cc") is None, reason="a C compiler is missing: .ci/headers installs it"
)
SEEDS = 12
"""Enough for each of the four ways in which power is lost."""
WRITER = """
import os, sys
home = sys.argv[1] + "/"
def write(name, data, *, at=0, sync=False, flags=os.O_CREAT):
    file = os.open(home + name, os.O_WRONLY | flags, 0o600)
    os.pwrite(file, data, at)
    if sync:
        os.fdatasync(file)
    os.close(file)
def sync_directory():
    folder = os.open(home, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
"""


def outcomes(tmp_path: Path, script: str) -> list[dict[str, bytes]]:
    """What is found after the script and a loss of power, in all ways that the dice draw."""
    tmp_path.mkdir(exist_ok=True)
    shim = build_shim(tmp_path)
    found: list[dict[str, bytes]] = []
    for seed in range(SEEDS):
        home = tmp_path / f"home{seed}"
        home.mkdir()
        (home / "old").write_bytes(b"old")
        disk = LossyDisk(live=home, shadow=tmp_path / f"durable{seed}", shim=shim)
        disk.begin()
        subprocess.run(
            [sys.executable, "-S", "-c", WRITER + script, str(home)],
            env=disk.environment(),
            check=True,
            timeout=30,
        )
        disk.lose_power(dice_of(str(seed)))
        left = {path.name: path.read_bytes() for path in home.iterdir()}
        if left not in found:
            found.append(left)
    return found


@needs_compiler
def test_what_was_synced_stays_and_what_was_not_may_go(tmp_path: Path) -> None:
    script = 'write("log", b"one,", sync=True); write("log", b"two", at=4)'
    found = outcomes(tmp_path, script)
    assert {"old": b"old", "log": b"one,"} in found
    assert len(found) > 1, "a first part of it may stay"
    for left in found:
        assert left["old"] == b"old"
        assert b"one,two".startswith(left["log"])
        assert left["log"].startswith(b"one,")


@needs_compiler
def test_what_is_written_over_may_stay_old_or_become_new_in_part(tmp_path: Path) -> None:
    found = outcomes(tmp_path, 'write("old", b"new")')
    assert {"old": b"old"} in found
    assert all(left["old"] in {b"old", b"nld", b"ned", b"new"} for left in found)


@needs_compiler
def test_a_file_that_was_never_synced_is_absent_or_empty_or_begun(tmp_path: Path) -> None:
    found = outcomes(tmp_path, 'write("log", b"12")')
    assert {"old": b"old"} in found
    assert {"old": b"old", "log": b""} in found
    assert all(b"12".startswith(left.get("log", b"")) for left in found)


@needs_compiler
def test_a_rename_is_durable_with_its_directory(tmp_path: Path) -> None:
    renamed = 'write("tmp", b"new", sync=True); os.rename(home + "tmp", home + "old")'
    found = outcomes(tmp_path / "a", renamed)
    assert {"old": b"old", "tmp": b"new"} in found
    assert {"old": b"new"} in found
    assert len(found) == 2
    assert outcomes(tmp_path / "b", renamed + "; sync_directory()") == [{"old": b"new"}]


@needs_compiler
def test_an_unlink_is_durable_with_its_directory(tmp_path: Path) -> None:
    found = outcomes(tmp_path / "a", 'os.unlink(home + "old")')
    assert sorted(found, key=len) == [{}, {"old": b"old"}]
    assert outcomes(tmp_path / "b", 'os.unlink(home + "old"); sync_directory()') == [{}]


@needs_compiler
def test_a_file_cut_short_is_so_only_once_it_is_synced(tmp_path: Path) -> None:
    cut = 'file = os.open(home + "old", os.O_WRONLY); os.ftruncate(file, 1)'
    assert {"old": b"old"} in outcomes(tmp_path / "a", cut)
    assert outcomes(tmp_path / "b", cut + "; os.fsync(file)") == [{"old": b"o"}]


def test_without_a_compiler_it_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power_loss, "_COMPILERS", ("no-such-compiler",))
    with pytest.raises(LocalFault, match="no C compiler"):
        build_shim(tmp_path)
