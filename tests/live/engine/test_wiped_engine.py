"""A container engine is wiped under a lease: real nodes and Docker, a GPU that a fake NVML reports.

C1 and A11 of the public complaints: no lease stays open for a job that is not there any more.
"""

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.fake_driver import build_fake_nvml
from tests.live.commands import document, p2pnode, up
from tests.live.engine.dockerd import dockerd
from tests.live.engine.test_first_money import load, settings, until

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

GONE = "the container vanished: somebody else removed it"
JOB = "import time; print('here', flush=True); time.sleep(3000)"


def leases(home: str) -> Any:
    return document("lease", "list", "--home", home)["items"]


def job(home: str) -> Any:
    return document("job", "show", "@", "--home", home)


def free(home: str) -> int:
    """GPUs that the node's book says are free."""
    asks = document("market", "show", "--home", home)["asks"]
    return sum(row["free"] for row in asks if row["tier"] == "silver")


@pytest.mark.parametrize("is_wiped", [False, True], ids=["container", "engine"])
def test_c1_a_job_that_is_removed_by_hand_closes_its_lease_and_frees_the_gpu(
    tmp_path: Path, *, is_wiped: bool
) -> None:
    owner, renter = str(tmp_path / "rig"), str(tmp_path / "laptop")
    with ExitStack() as stack:
        daemon = stack.enter_context(dockerd(remaps=False))
        daemon.add_gpu_hook()
        daemon.kill()
        daemon.start()
        image = load(daemon, tmp_path)
        nvml = build_fake_nvml(tmp_path / "nvml")
        p2pnode("network", "create", "club", "--home", owner)
        p2pnode(
            "init", "--name", "rig", "--roles", "owner", "--region", "DE",
            "--ask", "3.60 USD/gpu-h", "--join", "", "--home", owner,
        )  # fmt: skip
        stack.enter_context(up(owner, settings(daemon, nvml)))
        link = p2pnode("network", "invite", "--home", owner).strip()
        p2pnode(
            "init", "--name", "laptop", "--roles", "renter", "--region", "DE",
            "--ask", "", "--join", link, "--home", renter,
        )  # fmt: skip
        stack.enter_context(up(renter, {}))
        p2pnode(
            "run", "--image", image, "--vram", "20GB", "--region", "DE", "--time", "1h",
            "--wait", "2m", "--detach", "--home", renter, "--", "python3", "-c", JOB,
        )  # fmt: skip
        until(lambda: job(renter)["log_bytes"] > 0)
        (lease,) = leases(owner)
        assert (lease["reason"], lease["is_accepted"]) == (None, True)
        until(lambda: free(owner) == 0)
        if is_wiped:
            daemon.wipe()
        else:
            daemon.client("DELETE", f"/containers/p2pnode-{lease['id']}?force=1")
        until(lambda: leases(owner)[0]["reason"] is not None)
        until(lambda: free(owner) == 1)
        (lease,) = leases(owner)
        assert lease["reason"] == "consent"
        assert lease["end_ms"] <= time.time() * 1_000
        # The renter has the reason, signed; its job waits for another node, of which there is none.
        receipt = tmp_path / "receipt"
        p2pnode("job", "receipt", "@", "--to", str(receipt), "--home", renter)
        outcome = document("receipt", "verify", str(receipt), "--home", renter)["outcome"]
        assert (outcome["cause"], outcome["detail"]) == ("engine", GONE)
        assert (job(renter)["state"], job(renter)["attempt"]) == ("matching", 2)
