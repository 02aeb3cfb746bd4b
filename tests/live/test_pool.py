"""A job on several nodes over a testnet of real processes."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.commands import document, p2pnode, processes_of

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]

SHOW_RANK = "echo rank $P2PNODE_RANK of $P2PNODE_NODES; cp a.txt $P2PNODE_OUT/$P2PNODE_RANK"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("tn") / "s"
    p2pnode("testnet", "up", "--nodes", "4", "--renters", "1", "--state", str(folder))
    try:
        yield str(folder / "n3")
    finally:
        p2pnode("testnet", "down", "--state", str(folder))
        assert processes_of(folder) == []


def test_each_node_prints_with_its_rank_and_sends_its_output(home: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("input for all")
    printed = p2pnode(
        *("run", "--nodes", "3", "--time", "1m", "--home", home),
        *("-i", str(tmp_path / "in"), "-o", str(tmp_path / "out")),
        *("--", "sh", "-c", SHOW_RANK),
    )
    assert sorted(printed.splitlines()) == [f"[{rank}] rank {rank} of 3" for rank in range(3)]
    for rank in range(3):
        output = tmp_path / "out" / str(rank) / str(rank)
        assert output.read_text() == "input for all"
    pool, *_ = document("pool", "list", "--home", home)["items"]
    assert (pool["state"], len(pool["jobs"])) == ("done", 3)
    assert pool["cost_micro"] > 0
    shown = p2pnode("pool", "show", "@", "--home", home)
    assert all(job in shown for job in pool["jobs"])


def test_more_nodes_than_there_are_is_no_match_and_says_what_fits(home: str) -> None:
    options = ("--nodes", "9", "--time", "1m", "--wait", "1s")
    pool = json.loads(p2pnode("run", *options, "--json", "--home", home, "--", "true", code=123))
    assert (pool["state"], pool["has_leases"]) == ("failed", False)
    assert pool["why"] == "no match: 3 of 9 nodes fit at once"


def test_the_worst_exit_code_is_that_of_the_command(home: str) -> None:
    options = ("--nodes", "2", "--time", "1m", "--wait", "60s")
    p2pnode("run", *options, "--home", home, "--", "sh", "-c", "exit $((3 + P2PNODE_RANK))", code=4)
    p2pnode("pool", "cancel", "@", "--home", home)
