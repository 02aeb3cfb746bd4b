"""A real node is killed at a step of its own and started again; nothing acknowledged is lost."""

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]


def test_real_nodes_survive_being_killed_at_any_step() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "testnet", "crash", "--seed", "0", "--seeds", "2"],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    figures = done.stdout.splitlines()[-1]
    assert figures.startswith("2 seeds held, 2 deaths, 4 jobs done"), done.stdout
