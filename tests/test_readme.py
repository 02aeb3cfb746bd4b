"""The README's commands are real: its shell lines run, its table is complete."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from p2pnode.cli import COMMANDS
from testnet import cli
from testnet.bench.cli import bench

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_first_screen_has_the_two_commands_and_both_are_targets() -> None:
    screen = README[: README.index("##")]
    makefile = (ROOT / "Makefile").read_text()
    for target in ("demo", "test"):
        assert f"\nmake {target} " in screen
        assert re.search(rf"^{target}: \$\(READY\)", makefile, flags=re.MULTILINE)


def test_every_command_is_in_the_table() -> None:
    for command in COMMANDS:
        assert f"| `p2pnode {command}" in README


def test_every_command_of_a_testnet_is_in_the_table() -> None:
    rows = re.findall(r"^\| `p2pnode testnet ([^`]+)`", README, flags=re.MULTILINE)
    named = {word for row in rows for word in re.findall(r"[a-z-]+", row)}
    assert named >= {*cli.testnet.commands, *bench.commands}


def test_the_sample_configuration_is_valid() -> None:
    from p2pnode.config import read_config

    [sample] = blocks("toml")
    config = read_config(sample, origin="README.md", variables={})
    assert config.name == "attic-rig"
    assert config.pricing.ask is not None


def test_the_commands_for_real_money_are_those_that_a_live_test_runs() -> None:
    section = README[README.index("## Rent for real money") : README.index("## Commands")]
    [test] = re.findall(r"`(tests/[a-z_/]+\.py)`", section)
    text = (ROOT / test).read_text()
    heads = re.findall(r"^p2pnode ([a-z]+)(?: ([a-z]+))?", section, flags=re.MULTILINE)
    assert len(heads) >= 7
    for words in heads:
        assert ", ".join(f'"{word}"' for word in words if word) in text


@pytest.mark.live
@pytest.mark.timeout(180)
@pytest.mark.parametrize("block", blocks("sh"), ids=lambda block: block.split("\n", 1)[0])
def test_the_shell_lines_run(block: str, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "P2PNODE_HOME": str(tmp_path / "home"),
    }
    for line in block.strip().splitlines():
        done = subprocess.run(
            line, shell=True, capture_output=True, text=True, env=environment, check=False
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"
