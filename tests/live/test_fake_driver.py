"""A node over the real pynvml and tests/fake_nvml.c: what the driver says is what is offered."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fake_driver import build_fake_nvml
from tests.live.commands import document, p2pnode, up

pytestmark = [pytest.mark.live, pytest.mark.timeout(170)]

L4 = "total=24564 name=NVIDIA_L4 ecc=-1"


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline


def say(state: Path, *gpus: str) -> None:
    """The driver's words from now on, whole at any instant."""
    scratch = state.with_suffix(".new")
    scratch.write_text("".join(f"gpu GPU-{number} {text}\n" for number, text in enumerate(gpus)))
    scratch.replace(state)


def test_b11_b13_what_others_hold_and_what_is_broken_leaves_the_offer_of_a_running_node(
    tmp_path: Path,
) -> None:
    home, nvml = str(tmp_path / "rig"), build_fake_nvml(tmp_path / "nvml")
    state = nvml / "state"
    say(state, L4, L4)
    variables = {
        "LD_LIBRARY_PATH": str(nvml),
        "FAKE_NVML": str(state),
        "P2PNODE_WORKLOADS__ENGINE": "process",
    }
    p2pnode("network", "create", "club", "--test", "--home", home)
    p2pnode(
        "init", "--name", "rig", "--roles", "owner", "--region", "DE",
        "--ask", "0.30 TEST/gpu-h", "--join", "", "--home", home,
    )  # fmt: skip

    def offered() -> list[tuple[int, int]]:
        found: Any = document("offer", "search", "--home", home)["items"]
        return sorted((each["vram_mib"], each["units"]) for each in found)

    def alerts() -> list[str]:
        told: list[str] = document("status", "--home", home)["alerts"]
        return told

    with up(home, variables):
        until(lambda: offered() == [(24_564, 2)])
        say(state, L4, f"{L4} used=14738")
        until(lambda: offered() == [(9_728, 1), (24_564, 1)])
        say(state, L4, L4)
        until(lambda: offered() == [(24_564, 2)])
        for broken, why in {
            "total=24564 name=- ecc=-1": "GPU 1: it reports no model",
            "total=0 name=NVIDIA_L4 ecc=-1": "GPU 1: it reports no memory",
            f"{L4} handle=15": "GPU 1: GPU is lost",
        }.items():
            say(state, L4, broken)
            until(lambda why=why: alerts() == [f"GPU_UNHEALTHY: {why}"])  # type: ignore[misc]
            until(lambda: offered() == [(24_564, 1)])
        say(state, L4, L4)
        until(lambda: (offered(), alerts()) == ([(24_564, 2)], []))
