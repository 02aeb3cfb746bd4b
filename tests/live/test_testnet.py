"""A testnet of real processes, through the commands that people type."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.commands import document, p2pnode, processes_of

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def testnet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    state = tmp_path_factory.mktemp("tn") / "s"
    up = document("testnet", "up", "--nodes", "5", "--renters", "1", "--state", str(state))
    try:
        yield {**up, "state": str(state)}
    finally:
        p2pnode("testnet", "down", "--state", str(state))
        assert not state.exists()
        assert processes_of(state) == []


def renter(testnet: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = testnet["nodes"][-1]
    return found


def test_every_subscriber_holds_every_offer_when_up_returns(testnet: dict[str, Any]) -> None:
    assert [node["status"]["offers"] for node in testnet["nodes"][:-1]] == [4] * 4
    assert all(node["status"]["listed"] for node in testnet["nodes"][:-1])
    assert len({node["peer"] for node in testnet["nodes"]}) == 5
    assert len({address for node in testnet["nodes"] for address in node["addresses"]}) == 5


def test_owners_are_in_a_mesh_and_the_renter_is_light(testnet: dict[str, Any]) -> None:
    for node in testnet["nodes"][:-1]:
        assert min(node["status"]["gossip"]["mesh"].values()) >= 1
    assert renter(testnet)["status"]["is_light"]
    assert renter(testnet)["status"]["gossip"]["mesh"] == {}


def test_what_is_simulated_is_said(testnet: dict[str, Any]) -> None:
    assert testnet["nodes"][0]["status"]["simulated"] == ["gpu"]
    items = document("offer", "search", "--home", renter(testnet)["home"])["items"]
    assert {item["gpu"] for item in items} == {"simulated"}


def test_a_renter_finds_the_cheapest_that_fits(testnet: dict[str, Any]) -> None:
    home = renter(testnet)["home"]
    found = document("offer", "search", "--vram", "80GB", "--home", home)
    assert [item["model"] for item in found["items"]] == ["H100 80GB"]
    assert found["misfits"] == {"vram": 3}
    rest = document("offer", "search", "--max-price", "0.75 TEST/gpu-h", "--home", home)
    asks = [item["asks"]["silver"] for item in rest["items"]]
    assert asks == sorted(asks)
    assert rest["misfits"] == {"price": 1}


def test_when_nothing_fits_the_exit_code_says_so(testnet: dict[str, Any]) -> None:
    home = renter(testnet)["home"]
    found = document("offer", "search", "--region", "ZW", "--home", home, code=5)
    assert found["items"] == []
    assert found["seen"] == 4


def test_a_new_price_is_seen_by_the_renter(testnet: dict[str, Any]) -> None:
    owner = testnet["nodes"][0]
    before = owner["status"]["ask_micro_per_gpu_hour"]
    p2pnode("ask", "set", "0.123456 TEST/gpu-h", "--home", owner["home"])
    shown = document("ask", "show", "--home", owner["home"])
    assert before != shown["micro_per_gpu_hour"] == 123_456
    done = p2pnode("ask", "set", "0.1 USD/gpu-h", "--home", owner["home"], code=1)
    assert done == ""


def test_a_fresh_home_joins_by_the_printed_link(testnet: dict[str, Any], tmp_path: Path) -> None:
    home = str(tmp_path / "h")
    p2pnode("network", "join", testnet["invite"], "--home", home)
    (tmp_path / "h" / "config.toml").write_text(
        'roles = ["renter"]\n[network]\nlisten = ["/ip4/127.0.0.1/tcp/0"]\n'
    )
    with subprocess.Popen(
        [sys.executable, "-m", "p2pnode", "up", "--json", "--home", home],
        stdout=subprocess.PIPE,
        text=True,
    ) as node:
        try:
            assert node.stdout is not None
            while not (line := node.stdout.readline()).startswith("}"):
                assert line
            second = p2pnode("up", "--home", home, code=1)
            assert second == ""
            assert document("offer", "search", "--home", home)["seen"] == 4
        finally:
            node.terminate()
    assert node.returncode == 0


def test_one_name_is_one_testnet(testnet: dict[str, Any]) -> None:
    p2pnode("testnet", "up", "--state", testnet["state"], code=1)
    assert len(document("testnet", "status", "--state", testnet["state"])["nodes"]) == 5


def test_without_a_testnet_status_and_down_say_so(tmp_path: Path) -> None:
    for command in ("status", "down"):
        assert p2pnode("testnet", command, "--state", str(tmp_path / "none"), code=1) == ""


@pytest.mark.parametrize("counts", [("0", "0"), ("25", "1"), ("3", "3"), ("3", "-1")])
def test_impossible_counts_are_refused(tmp_path: Path, counts: tuple[str, str]) -> None:
    state = tmp_path / "s"
    p2pnode(
        "testnet", "up", "--nodes", counts[0], "--renters", counts[1], "--state", str(state), code=1
    )
    assert not state.exists()


def test_the_demo_ends_by_itself_and_leaves_nothing(tmp_path: Path) -> None:
    done = document("demo")
    assert done["ok"] is True
    assert done["nodes"] == 7
    assert done["moved_after_kill"]
    assert done["ledgers_agree"]
    assert done["output_sha256_ok"]
    assert done["receipts_verified_by"] == 6
    assert 1 <= done["bids"] <= 6  # a loaded machine may miss the deadline of some
    assert done["job_exit"] == 0
    assert done["gpu"] == "simulated"
    assert done["engine"] == "process"
    assert done["network"].startswith("loopback, test network")
