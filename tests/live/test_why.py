"""What stands in the way and what would help, as real nodes tell it."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.commands import document, p2pnode, processes_of

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("why") / "s"
    p2pnode("testnet", "up", "--nodes", "3", "--renters", "1", "--state", str(folder))
    try:
        yield folder
    finally:
        p2pnode("testnet", "down", "--state", str(folder))
        assert processes_of(folder) == []


@pytest.fixture(scope="module")
def home(state: Path) -> str:
    return str(state / "n2")


def test_a_search_that_finds_nothing_says_what_to_change_and_that_helps(home: str) -> None:
    some = document("offer", "search", "--home", home)["items"]
    cheapest = min(item["asks"]["silver"] for item in some)
    money = some[0]["money"]
    low = f"{(cheapest - 1) // 10**6}.{(cheapest - 1) % 10**6:06} {money}/gpu-h"
    told = document("offer", "search", "--max-price", low, "--home", home, code=5)
    option = told["changes"][0]["options"][0]
    assert option.startswith("--max-price ")
    price = option.removeprefix("--max-price ").strip("'")
    found = document("offer", "search", "--max-price", price, "--home", home)
    assert len(found["items"]) == told["changes"][0]["matches"]


def test_a_run_without_a_match_says_why_and_ends_with_123(home: str) -> None:
    order = ("--vram", "300GB", "--region", "EU", "--wait", "1s", "--home", home, "--", "true")
    done = subprocess.run(
        [sys.executable, "-m", "p2pnode", "run", *order],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 123, done.stderr
    assert "--vram 286103MiB" in done.stderr
    assert "smallest change" in done.stderr
    told = document("why", "@", "--home", home)
    assert (told["is_matched"], told["fits"]) == (False, 0)
    assert told["funnel"][0]["failed"]


def test_an_owner_sees_its_bids_and_everybody_the_market(state: Path, home: str) -> None:
    document("run", "--time", "30s", "--home", home, "--", "true")
    assert document("why", "@", "--home", home)["is_matched"]
    won = [
        document("bid", "list", "--home", str(state / f"n{number}"))["counts"].get("WON", 0)
        for number in (0, 1)
    ]
    assert sum(won) == 1
    winner = str(state / f"n{won.index(1)}")
    (bid,) = [
        item
        for item in document("bid", "list", "--home", winner)["items"]
        if item["state"] == "WON"
    ]
    shown = document("bid", "show", str(bid["number"]), "--home", winner)
    assert [item["micro_per_gpu_hour"] for item in shown["items"]] == [bid["micro_per_gpu_hour"]]
    assert document("why", "no-work", "--home", winner)["won"] == 1
    market = document("market", "show", "--home", winner)
    assert sum(row["leases"] for row in market["cleared"]) == 1
    assert p2pnode("offer", "watch", "--for", "1s", "--home", home).count("new") == 2
