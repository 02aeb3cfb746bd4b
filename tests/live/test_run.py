"""Jobs over a testnet of real processes: `run` and what belongs to it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from p2pnode.cli.client import post
from p2pnode.jobs.driver import OWN_LINES_BYTES
from tests.live.commands import document, p2pnode, processes_of

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("tn") / "s"
    p2pnode("testnet", "up", "--nodes", "4", "--renters", "1", "--state", str(folder))
    try:
        yield folder
    finally:
        p2pnode("testnet", "down", "--state", str(folder))
        assert processes_of(folder) == []


@pytest.fixture(scope="module")
def home(state: Path) -> str:
    return str(state / "n3")


def wait_until_free(home: str) -> None:
    """Until the renter has heard that the leases of the tests before are over."""
    deadline = time.monotonic() + 30
    while document("offer", "search", "--home", home)["misfits"]:
        assert time.monotonic() < deadline


def run(home: str, *command: str, code: int = 0, options: tuple[str, ...] = ()) -> Any:
    return document("run", "--time", "1m", *options, "--home", home, "--", *command, code=code)


def test_what_the_job_prints_is_on_stdout_and_its_exit_code_is_ours(home: str) -> None:
    printed = p2pnode(
        "run", "--time", "1m", "--home", home, "--", "sh", "-c", "echo hello; exit 7", code=7
    )
    assert printed == "hello\n"


def test_input_goes_there_and_output_comes_back(home: str, tmp_path: Path) -> None:
    (tmp_path / "in" / "sub").mkdir(parents=True)
    (tmp_path / "in" / "sub" / "a.txt").write_text("x" * 300_000)
    done = run(
        home,
        "sh",
        "-c",
        "tr x y < sub/a.txt > $P2PNODE_OUT/b.txt",
        options=("-i", str(tmp_path / "in"), "-o", str(tmp_path / "out")),
    )
    assert done["outcome"]["exit_code"] == 0
    assert (tmp_path / "out" / "b.txt").read_text() == "y" * 300_000


def test_the_environment_is_the_jobs_own(home: str) -> None:
    printed = p2pnode(
        "run", "--time", "1m", "-e", "COLOUR=blue", "--home", home, "--", "sh", "-c", "env"
    )
    names = {line.partition("=")[0] for line in printed.splitlines()}
    assert "COLOUR=blue" in printed
    assert "P2PNODE_HOME" not in names
    assert "VIRTUAL_ENV" not in names


def test_a_log_is_kept_as_far_as_the_job_asked(home: str) -> None:
    order = {
        "argv": ["sh", "-c", "seq 60000; echo end"],
        "vram_mib_min": 1_024,
        "money": "TEST",
        "time_ms": 60_000,
        "log_bytes": 40_000,
    }
    job = post(Path(home) / "node.sock", "/v1/jobs", order)["id"]
    document("job", "wait", job, "--home", home)
    shown = document("job", "show", job, "--home", home)
    kept = sum(file.stat().st_size for file in Path(shown["log_path"]).iterdir())
    assert 30_000 <= kept <= 40_000 + OWN_LINES_BYTES
    printed = p2pnode("job", "logs", job, "--home", home)
    assert printed.startswith("1\n2\n3\n")
    assert "bytes of the log were not kept\n" in printed
    assert printed.endswith("\n60000\nend\n")


def test_a_receipt_holds_at_a_third_peer_and_not_when_altered(
    home: str, state: Path, tmp_path: Path
) -> None:
    run(home, "true")
    file = tmp_path / "receipt"
    shown = document("job", "receipt", "@", "--to", str(file), "--home", home)
    assert shown["is_settled"]
    for node in ("n0", "n1", "n2"):
        there = document("job", "check-receipt", str(file), "--home", str(state / node))
        assert there["amount_micro"] == shown["amount_micro"]
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 1
    file.write_bytes(raw)
    p2pnode("job", "check-receipt", str(file), "--home", home, code=1)


def test_the_choice_among_bids_can_be_checked(home: str) -> None:
    wait_until_free(home)
    run(home, "true", options=("--max-price", "0.75 TEST/gpu-h"))
    bids = document("job", "bids", "@", "--home", home)
    assert bids["is_by_the_rule"]
    verified = document("auction", "verify", "@", "--home", home)
    assert verified["auction"] == bids
    assert [bid["micro_per_gpu_hour"] for bid in bids["bids"]] == [300_000, 700_000]


def test_when_nothing_fits_the_reason_is_told_at_once(home: str) -> None:
    wait_until_free(home)
    done = run(
        home, "true", code=123, options=("--max-price", "0.01 TEST/gpu-h", "--wait", "100ms")
    )
    assert done["state"] == "failed"
    assert done["why"] == "no match: 0 of 3 offers: 3 price"


def test_a_time_limit_ends_the_job(home: str) -> None:
    done = document("run", "--time", "1s", "--home", home, "--", "sleep", "60", code=124)
    assert done["outcome"]["cause"] == "time"


def test_a_program_that_is_not_there_is_127(home: str) -> None:
    assert run(home, "no-such-program", code=127)["outcome"]["exit_code"] == 127


def test_a_cancelled_job_ends_and_its_log_stays(home: str) -> None:
    job = document(
        "run", "--detach", "--time", "1m", "--home", home, "--", "sh", "-c", "echo on; sleep 50"
    )["id"]
    deadline = time.monotonic() + 30
    while "on" not in p2pnode("job", "logs", job, "--home", home):
        assert time.monotonic() < deadline
    p2pnode("job", "cancel", job, "--home", home)
    done = document("job", "wait", job, "--home", home, code=143)
    assert (done["state"], done["why"]) == ("failed", "cancelled")
    assert p2pnode("job", "logs", job, "--home", home) == "on\n"
    assert document("job", "receipt", job, "--home", home)["outcome"]["cause"] == "stopped"


def test_interrupting_run_detaches_and_the_job_goes_on(home: str) -> None:
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "p2pnode", "run", "--time", "1m", "--home", home),
            *("--", "sh", "-c", "echo started; sleep 4; echo finished"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell gives its background commands, and so these tests, ears that do not hear it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline() == "started\n"
        running.send_signal(signal.SIGINT)
        said = running.stderr.read()
    assert running.returncode == 130
    assert "detached" in said
    done = document("job", "wait", "@", "--home", home)
    assert done["state"] == "done"
    assert p2pnode("job", "logs", "@", "--home", home) == "started\nfinished\n"


def test_ledgers_verify_everywhere_and_leases_are_listed(home: str, state: Path) -> None:
    run(home, "true")
    for node in ("n0", "n1", "n2", "n3"):
        assert document("ledger", "verify", "--home", str(state / node))["ok"]
    leases = document("lease", "list", "--home", home)["items"]
    assert leases[0]["side"] == "renter"
    assert leases[0]["reason"] == "consent"
    assert document("ledger", "show", "--home", home)["offences"] == []


def test_an_owner_that_is_killed_loses_the_job_to_another(tmp_path: Path) -> None:
    state = tmp_path / "s"
    home = str(state / "n2")
    p2pnode("testnet", "up", "--nodes", "3", "--renters", "1", "--state", str(state))
    try:
        _kill_the_owner_at_work(home, state)
    finally:
        p2pnode("testnet", "down", "--state", str(state))


def _kill_the_owner_at_work(home: str, state: Path) -> None:
    job = document(
        *("run", "--detach", "--time", "1m", "--home", home),
        *("--", "sh", "-c", "echo at work; sleep 3; echo over"),
    )["id"]
    deadline = time.monotonic() + 30
    while "at work" not in p2pnode("job", "logs", job, "--home", home):
        assert time.monotonic() < deadline
    owner = document("job", "show", job, "--home", home)["owner"]
    nodes = document("testnet", "status", "--state", str(state))["nodes"]
    [pid] = [node["pid"] for node in nodes if node["peer"] == owner]
    os.kill(pid, signal.SIGKILL)
    done = document("job", "wait", job, "--home", home)
    assert done["state"] == "done"
    assert done["attempt"] == 2
    assert done["owner"] != owner
