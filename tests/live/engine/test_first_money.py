"""A stranger's first job on a real network, from founding it to the books, by commands alone.

The GPU is one that a fake NVML reports; nothing else is pretended. No money moves: the owner signs
that it has arrived.
"""

import csv
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from p2pnode.execution.docker_image import build_python_image
from tests.fake_driver import build_fake_nvml
from tests.live.commands import document, p2pnode, up
from tests.live.engine.dockerd import Dockerd, dockerd

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

PAYOUT = "IBAN DE00 0000 0000 0000 0000 00"
JOB = "import time; time.sleep(1)"


def settings(daemon: Dockerd, nvml: Path) -> dict[str, str]:
    """What the owner would write into config.toml, but for the driver."""
    (nvml / "state").write_text("gpu GPU-1 total=24564 name=NVIDIA_L4 ecc=-1\n")
    return {
        "P2PNODE_PRICING__PAYOUT": PAYOUT,
        "P2PNODE_WORKLOADS__ENGINE": "docker",
        "P2PNODE_WORKLOADS__DOCKER_SOCKET": str(daemon.socket),
        "LD_LIBRARY_PATH": str(nvml),
        "FAKE_NVML": str(nvml / "state"),
    }


def load(daemon: Dockerd, folder: Path) -> str:
    """An image of this very Python on the owner's host, as `docker load` brings it there."""
    image = build_python_image()
    (folder / "image.tar").write_bytes(image.archive)
    command = ["curl", "-sS", "--unix-socket", str(daemon.socket), "-X", "POST"]
    sent = ["--data-binary", f"@{folder / 'image.tar'}", "-H", "Content-Type: application/x-tar"]
    subprocess.run([*command, *sent, "http://d/v1.41/images/load"], check=True, capture_output=True)
    return image.id


def sums(file: Path) -> tuple[int, int]:
    """What a book's lines add up to: amount and paid."""
    with file.open(newline="") as text:
        rows = list(csv.DictReader(text))
    return sum(int(row["amount_micro"]) for row in rows), sum(
        int(row["paid_micro"]) for row in rows
    )


def test_a_strangers_first_job_runs_is_billed_paid_and_in_both_books(tmp_path: Path) -> None:
    owner, renter = str(tmp_path / "rig"), str(tmp_path / "laptop")
    with dockerd(remaps=True) as daemon:
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
        with up(owner, settings(daemon, nvml)):
            link = p2pnode("network", "invite", "--home", owner).strip()
            p2pnode(
                "init", "--name", "laptop", "--roles", "renter", "--region", "DE",
                "--ask", "", "--join", link, "--home", renter,
            )  # fmt: skip
            with up(renter, {}):
                rents(owner, renter, image, tmp_path)


def rents(owner: str, renter: str, image: str, folder: Path) -> None:
    """The job, then what both sides do about it.

    The region keeps the search short: a renter that joins no gossip looks through the shards of a
    large network's directory.
    """
    job: Any = document(
        "run", "--image", image, "--vram", "20GB", "--region", "DE", "--time", "1m",
        "--wait", "2m", "--home", renter, "--", "python3", "-c", JOB,
    )  # fmt: skip
    assert (job["state"], job["outcome"]["exit_code"]) == ("done", 0)
    receipt = folder / "receipt"
    p2pnode("job", "receipt", "@", "--to", str(receipt), "--home", renter)
    proven = document("receipt", "verify", str(receipt), "--home", renter)
    assert proven["simulated"] == []
    amount = proven["amount_micro"]
    until(lambda: accounts("earn", owner)[0]["agreed_micro"] == amount > 0)
    settles(owner, renter, amount, folder)


def accounts(side: str, home: str) -> Any:
    return document(side, "list", "--home", home)["items"]


def until(holds: Callable[[], bool]) -> None:
    """The feeds have passed it on."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline


def settles(owner: str, renter: str, amount: int, folder: Path) -> None:
    """The renter learns how to pay; the owner signs what arrives, in two parts; books agree."""
    [theirs] = accounts("spend", renter)
    assert (theirs["due_micro"], theirs["money"]) == (amount, "USD")
    said = p2pnode("spend", "settle", "--home", renter)
    assert PAYOUT in said
    assert theirs["reference"] in said
    [mine] = accounts("earn", owner)
    assert mine["reference"] == theirs["reference"]
    for part in (1, amount - 1):
        confirmed = f"{part / 1_000_000:.6f} USD"
        p2pnode("earn", "confirm", mine["peer_feed"], confirmed, "--home", owner)
    p2pnode("earn", "confirm", mine["peer_feed"], "0.01 USD", "--home", owner, code=1)
    until(lambda: accounts("spend", renter)[0]["paid_micro"] == amount)
    for side, home in (("spend", renter), ("earn", owner)):
        assert accounts(side, home)[0]["due_micro"] == 0
    p2pnode("earn", "export", str(folder / "earned.csv"), "--home", owner)
    p2pnode("spend", "export", str(folder / "spent.csv"), "--home", renter)
    assert sums(folder / "earned.csv") == sums(folder / "spent.csv") == (amount, amount)
    standing = document("reputation", "show", theirs["peer_feed"], "--home", renter)
    assert (standing["standing"], standing["offences"]) == ("good", [])
    assert standing["credit_micro"] > 0
