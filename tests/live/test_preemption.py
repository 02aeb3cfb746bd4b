"""A bronze job whose GPU is taken back goes on elsewhere; real processes. Shows 4 of the market."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.commands import document, p2pnode, processes_of

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]

STEPS = 80
EVERY = 5
"""The job saves after so many steps: what it loses is less than one such interval."""
JOB = f"""
done=0
for file in "$P2PNODE_CHECKPOINT"/step-*; do
    [ -e "$file" ] && done=$(cat "$file") && echo "resumed at $done"
done
save() {{
    echo "$done" > "$P2PNODE_CHECKPOINT/.next"
    mv "$P2PNODE_CHECKPOINT/.next" "$P2PNODE_CHECKPOINT/step-1"
}}
while [ "$done" -lt {STEPS} ]; do
    sleep 0.25
    done=$((done + 1))
    echo "step $done"
    [ $((done % {EVERY})) -eq 0 ] && save
    NOTICED
done
"""
SAVES_WHEN_TOLD = 'if [ -e "$P2PNODE_NOTICE" ]; then save; exit 75; fi'


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "s"
    p2pnode("testnet", "up", "--nodes", "3", "--renters", "1", "--state", str(folder))
    try:
        yield folder
    finally:
        p2pnode("testnet", "down", "--state", str(folder))
        assert processes_of(folder) == []


def begin(state: Path, noticed: str) -> str:
    """The id of a job that has done a few steps, and has saved."""
    home = str(state / "n2")
    job: str = document(
        *("run", "--detach", "--time", "1m", "--tier", "bronze", "--notice", "3s"),
        *("--checkpoint", "1s", "--home", home),
        *("--", "sh", "-c", JOB.replace("NOTICED", noticed)),
    )["id"]
    deadline = time.monotonic() + 30
    while f"step {EVERY + 2}\n" not in p2pnode("job", "logs", job, "--home", home):
        assert time.monotonic() < deadline
    return job


def owner_home(state: Path, job: str) -> str:
    """The home of the node where the job runs."""
    owner = document("job", "show", job, "--home", str(state / "n2"))["owner"]
    nodes = document("testnet", "status", "--state", str(state))["nodes"]
    [place] = [place for place, node in enumerate(nodes) if node["peer"] == owner]
    return str(state / f"n{place}")


def steps_of(state: Path, job: str) -> tuple[list[int], list[int]]:
    """The steps that the job did at its first owner, and at its second."""
    lines = p2pnode("job", "logs", job, "--home", str(state / "n2")).splitlines()
    moved = lines.index("[p2pnode] the job moves to another node")
    first, second = (
        [int(line.split()[1]) for line in part if line.startswith("step ")]
        for part in (lines[:moved], lines[moved:])
    )
    return first, second


def check_resumed(state: Path, job: str, *, lost_max: int) -> None:
    home = str(state / "n2")
    done = document("job", "wait", job, "--home", home)
    assert (done["state"], done["attempt"], done["preemptions"]) == ("done", 2, 1)
    first, second = steps_of(state, job)
    assert second[-1] == STEPS
    assert 0 <= first[-1] - (second[0] - 1) <= lost_max
    for node in ("n0", "n1", "n2"):
        there = document("ledger", "verify", "--home", str(state / node))
        assert there["ok"]
    leases = document("lease", "list", "--home", home)["items"]
    assert sorted(str(lease["reason"]) for lease in leases) == ["consent", "preempted"]


def test_k7_a_job_that_saves_when_it_is_told_loses_nothing(state: Path) -> None:
    job = begin(state, SAVES_WHEN_TOLD)
    yielded = document("gpu", "reclaim", "--home", owner_home(state, job))["items"]
    assert [item["is_taken_back"] for item in yielded] == [True]
    check_resumed(state, job, lost_max=0)


def test_a_job_that_does_not_hear_is_killed_and_loses_an_interval_at_most(state: Path) -> None:
    job = begin(state, "")
    home = owner_home(state, job)
    [lease] = document("lease", "list", "--home", home)["items"]
    document("lease", "stop", lease["id"][:12], "--yield", "--home", home)
    check_resumed(state, job, lost_max=EVERY)


def test_a_better_tier_takes_the_gpu_and_the_job_goes_on_elsewhere(state: Path) -> None:
    job = begin(state, SAVES_WHEN_TOLD)
    home = str(state / "n2")
    before = document("job", "show", job, "--home", home)
    # Silver costs twice as much, and something for what it breaks up; nothing else is as cheap.
    price = 3 * before["micro_per_gpu_hour"] / 1_000_000
    silver = document(
        *("run", "--tier", "silver", "--time", "1m", "--max-price", f"{price} TEST/gpu-h"),
        *("--home", home, "--", "echo", "better"),
    )
    assert (silver["state"], silver["owner"]) == ("done", before["owner"])
    done = document("job", "wait", job, "--home", home)
    assert (done["state"], done["attempt"], done["preemptions"]) == ("done", 2, 1)
    assert done["owner"] != before["owner"]
    first, second = steps_of(state, job)
    assert (first[-1], second[-1]) == (second[0] - 1, STEPS)
