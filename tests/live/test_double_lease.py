"""Real nodes, one of which grants its GPU to two renters at once: all find out and shun it."""

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]


def test_a_double_lease_is_proved_and_shunned_everywhere() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "testnet", "double-lease", "--nodes", "6", "--seed", "3", "--json"],
        capture_output=True,
        text=True,
        timeout=230,
        check=False,
    )
    assert done.stdout, done.stderr
    document = json.loads(done.stdout)
    assert len(document["bars"]) == 8
    assert [bar for bar in document["bars"] if not bar["holds"]] == []
    assert document["figures"]["light clients"] == 2
    assert document["figures"]["renters that accepted one GPU for one time"] == 2
    assert done.returncode == 0
