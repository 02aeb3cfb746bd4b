"""Presets: images by digest, those that ship and one's own."""

import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from p2pnode.cli import run as run_command
from p2pnode.cli.preset import with_preset
from p2pnode.home import find_home
from p2pnode.presets import presets_file, presets_of
from protocol.codec import decode, encode
from protocol.errors import LocalFault
from protocol.job import Job
from protocol.limits import JOB_BYTES_MAX
from tests import make
from tests.p2pnode.test_cli import run

DIGEST = "sha256:" + "5" * 64
OWN = f"""
[[preset]]
name = "pytorch"
image = "lab/own@{DIGEST}"
[[preset]]
name = "tools"
image = "lab/tools:1.2@{DIGEST}"
cuda = "12.4"
"""


def write(folder: Path, text: str) -> None:
    folder.mkdir(exist_ok=True)
    presets_file(find_home(folder)).write_text(text)


def wanted(**changes: Any) -> dict[str, Any]:
    return {"preset": None, "image": None, **changes}


def test_every_image_that_ships_can_be_sent_in_a_job(tmp_path: Path) -> None:
    presets = presets_of(find_home(tmp_path))
    assert len(presets) >= 5
    for each in presets.values():
        raw = encode(msgspec.structs.replace(make.job(), image=each.image))
        assert decode(raw, Job, size_max=JOB_BYTES_MAX).image == each.image
        assert each.cuda
        assert each.about


def test_ones_own_go_first(tmp_path: Path) -> None:
    write(tmp_path, OWN)
    presets = presets_of(find_home(tmp_path))
    assert presets["pytorch"].image == f"lab/own@{DIGEST}"
    assert presets["tools"].cuda == "12.4"
    assert "cuda" in presets


def test_a_preset_is_what_the_options_do_not_say(tmp_path: Path) -> None:
    write(tmp_path, OWN)
    assert with_preset(tmp_path, wanted()) == wanted()
    found = with_preset(tmp_path, wanted(preset="tools"))
    assert (found["image"], found["cuda"]) == (f"lab/tools:1.2@{DIGEST}", "12.4")
    found = with_preset(tmp_path, wanted(preset="tools", image="x", cuda="12.8"))
    assert (found["image"], found["cuda"]) == ("x", "12.8")
    assert with_preset(tmp_path, wanted(preset="pytorch"))["cuda"] is None
    with pytest.raises(LocalFault, match="no preset 'tool'"):
        with_preset(tmp_path, wanted(preset="tool"))


@pytest.mark.parametrize(
    "text",
    [
        "[[preset]]",
        '[[preset]]\nname = "a"\nimage = "python:3.12"',
        f'[[preset]]\nname = "A b"\nimage = "p@{DIGEST}"',
        f'[[preset]]\nname = "a"\nimage = "p@{DIGEST}"\ncuda = "twelve"',
        f'[[preset]]\nname = "a"\nimage = "p@{DIGEST}"\nmore = 1',
        OWN + OWN,
        "not toml",
    ],
)
def test_a_file_that_is_wrong_is_named(tmp_path: Path, text: str) -> None:
    write(tmp_path, text)
    with pytest.raises(LocalFault, match=r"presets\.toml"):
        presets_of(find_home(tmp_path))


def test_what_is_shown_can_be_written_down_again(tmp_path: Path) -> None:
    write(tmp_path, OWN)
    shown = run("preset", "show", "tools", home=tmp_path).stdout
    [preset] = tomllib.loads(shown)["preset"]
    assert preset == {"name": "tools", "image": f"lab/tools:1.2@{DIGEST}", "cuda": "12.4"}
    assert "pytorch " in run("preset", "list", home=tmp_path).stdout


def test_a_job_of_a_preset_asks_for_its_image_and_its_cuda(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[dict[str, Any]] = []

    def post(_node: Path, _path: str, order: dict[str, Any]) -> dict[str, Any]:
        sent.append(order)
        return {"id": "job-22222222"}

    monkeypatch.setattr(run_command, "get", lambda *_: {"network": {"money": "TEST"}})
    monkeypatch.setattr(run_command, "post", post)
    write(tmp_path, OWN)
    words = ["--preset", "tools", "--detach", "--home", str(tmp_path), "--", "true"]
    assert CliRunner().invoke(run_command.run, words).exit_code == 0
    [order] = sent
    assert (order["image"], order["cuda_min"]) == (f"lab/tools:1.2@{DIGEST}", "12.4")
