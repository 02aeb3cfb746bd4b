"""The whole demo with its jobs in containers."""

import re

import pytest

from tests.live.commands import document
from tests.live.engine.dockerd import dockerd

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]


def test_the_demo_runs_its_jobs_in_containers_and_the_receipt_says_so() -> None:
    with dockerd(remaps=True) as daemon:
        done = document("demo", "--engine", "docker", "--docker-socket", str(daemon.socket))
    assert done["ok"] is True
    assert done["engine"] == "container"
    for promise in ("no network", "read-only root", "memory, processors, processes"):
        assert promise in done["enforced"], done["enforced"]
    user = re.search(r"user ([0-9]+)", done["enforced"])
    assert user is not None
    assert int(user[1]) > 0
