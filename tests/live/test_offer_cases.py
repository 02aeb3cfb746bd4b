"""Public complaints about offers that vanish, stay or come back, with real processes."""

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from p2pnode.cli.client import get
from p2pnode.home import find_home
from tests.fake_driver import build_fake_nvml
from tests.live.commands import document, p2pnode, up

pytestmark = [pytest.mark.live, pytest.mark.timeout(400)]

PROCESS = {"P2PNODE_WORKLOADS__ENGINE": "process"}


def wait_for(look: Callable[[], Any], wanted: Callable[[Any], bool]) -> Any:
    """What it tells once it is as wanted; how soon is not asked here."""
    told = look()
    for _ in range(240):
        if wanted(told):
            return told
        time.sleep(0.5)
        told = look()
    raise AssertionError(told)


def status(home: str) -> Any:
    return document("status", "--home", home)


def offers(home: str) -> Any:
    """What is offered, as the node has it in its book now."""
    return get(find_home(Path(home)).socket, "/v1/offers")["items"]


def founded(folder: Path) -> tuple[str, dict[str, str]]:
    """The home of a node that hears gossip and offers nothing, and how it is to be run."""
    home = str(folder / "seer")
    p2pnode("network", "create", "club", "--test", "--home", home)
    p2pnode(
        "init", "--name", "seer", "--roles", "renter", "--region", "DE",
        "--ask", "", "--join", "", "--home", home,
    )  # fmt: skip
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        listen = f"/ip4/127.0.0.1/tcp/{free.getsockname()[1]}"
    return home, {"P2PNODE_NETWORK__GOSSIP": "on", "P2PNODE_NETWORK__LISTEN": listen}


def owner_in(folder: Path, link: str) -> str:
    p2pnode(
        "init", "--name", folder.name, "--roles", "owner", "--region", "DE",
        "--ask", "0.30 TEST/gpu-h", "--join", link, "--home", str(folder),
    )  # fmt: skip
    return str(folder)


def invited(home: str) -> str:
    return p2pnode("network", "invite", "--home", home).strip()


def test_c4_a_killed_node_is_the_same_under_its_key_and_at_odds_with_itself_under_another(
    tmp_path: Path,
) -> None:
    nvml = build_fake_nvml(tmp_path / "nvml")
    (nvml / "state").write_text("gpu GPU-1 total=24564 name=NVIDIA_L4 ecc=-1\n")
    host = {"LD_LIBRARY_PATH": str(nvml), "FAKE_NVML": str(nvml / "state"), **PROCESS}
    seer, hears = founded(tmp_path)
    with up(seer, hears):
        rig = owner_in(tmp_path / "rig", invited(seer))
        with up(rig, host) as node:
            (before,) = wait_for(lambda: offers(seer), bool)
            feed = status(rig)["feed"]
            node.kill()
        with up(rig, host) as node:
            (after,) = wait_for(
                lambda: offers(seer),
                lambda items: [item["incarnation"] for item in items] != [before["incarnation"]],
            )
            assert after["incarnation"] > before["incarnation"]
            assert [after[name] for name in ("key", "peer", "devices", "rivals")] == [
                *(before[name] for name in ("key", "peer", "devices")),
                [],
            ]
            node.kill()
        other = owner_in(tmp_path / "rig2", invited(seer))
        with up(other, host):
            wait_for(lambda: offers(seer), lambda items: len(items) == 2)
            shown = {item["key"]: item for item in offers(seer)}
            old = shown.pop(before["key"])
            (new,) = shown.values()
            assert new["devices"] == old["devices"] != []
            (rival,) = new["rivals"]
            assert rival == {"owner": feed, "devices": 1, "is_first": True, "claim": "claimed"}
            assert not old["rivals"][0]["is_first"]
            said = p2pnode("offer", "show", new["key"][:12], "--home", seer)
            assert f"feed {feed[:16]} offers 1 of these GPUs too" in said
            assert any(
                alert.startswith("DEVICE_CLAIMED_TWICE")
                for alert in wait_for(lambda: status(other)["alerts"], bool)
            )
            (left,) = wait_for(lambda: offers(seer), lambda items: len(items) == 1)
            assert (left["key"], left["rivals"]) == (new["key"], [])
            assert status(other)["alerts"] == []


def test_c7_an_owner_whom_nothing_took_is_seen_when_somebody_is_there(tmp_path: Path) -> None:
    seer, hears = founded(tmp_path)
    with up(seer, hears):
        rig = owner_in(tmp_path / "rig", invited(seer))
    gpu = '[[gpu.simulated]]\nmodel = "RTX 4090"\nvram = "24GiB"\ncount = 1\n'
    config = tmp_path / "rig" / "config.toml"
    config.write_text(config.read_text() + gpu)
    with up(rig, PROCESS):
        wait_for(lambda: status(rig)["listing_failed"], lambda failed: failed >= 5)
        assert status(rig)["listed"] == 0
        with up(seer, hears):
            (seen,) = wait_for(lambda: offers(seer), bool)
            assert seen["peer"] == status(rig)["peer"]
            assert wait_for(lambda: status(rig)["listed"], bool)
        # The same once more, in the middle of its life.
        with up(seer, hears):
            (seen,) = wait_for(lambda: offers(seer), bool)
            assert seen["peer"] == status(rig)["peer"]
