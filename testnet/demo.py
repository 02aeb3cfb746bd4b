"""`p2pnode demo`: a whole network on this machine, once, in a directory that is deleted after.

Six owners and a renter, as processes. The renter hears every offer, has a small language model
trained by the best bidder, checks what comes back, and loses the owner of a second job to SIGKILL.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from p2pnode.cli.client import get, get_log, post
from p2pnode.quantities import format_money
from protocol.errors import LocalFault
from protocol.units import Micros
from testnet.offers import wait_for_offers
from testnet.plan import REGIONS, GpuKind, plan_network
from testnet.processes import start
from testnet.state import Running, RunningNode, stop

OWNERS: Final = 6
KIND: Final = GpuKind(model="RTX 4090", vram="24564MiB", ask_micro=300_000)
VRAM_MIB: Final = 22_889
"""24 GB."""
POLL_S: Final = 0.1
PATIENCE_S: Final = 60
SECOND_JOB: Final = """
import time
for i in range(1, 9):
    print("second", i)
    time.sleep(0.5)
print("over")
"""

Document = dict[str, Any]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A running network, and what is needed to act on it."""

    state: Path
    running: Running
    python: str
    """The interpreter, as jobs call it."""
    say: Say

    @property
    def renter(self) -> Path:
        """The renter's socket."""
        return Path(self.running.nodes[-1].socket)


def run_demo(say: Say, *, engine: str, docker_socket: str) -> Document:
    """Run it with this engine, telling each step; the document of `p2pnode demo --json`.

    Raises LocalFault if a node does not come up, or a step does not end in time.
    """
    with tempfile.TemporaryDirectory(prefix="p2pnode-demo-") as folder:
        state = Path(folder)
        owners = plan_network(state, nodes=OWNERS + 1, renters=1, kinds=(KIND,))
        plans = tuple(
            replace(
                plan,
                gossip="on",
                lost_after="2s",
                period="1s",
                engine=engine,
                docker_socket=docker_socket,
            )
            for plan in owners
        )
        began = time.monotonic()
        try:
            running = start(plans, state, name="demo", heartbeat="30s")
        except LocalFault as fault:
            # Its cure names a log in the directory that is about to go.
            raise LocalFault(fault.what, "p2pnode doctor") from fault
        python = sys.executable if engine == "process" else "python3"
        stage = Stage(state=state, running=running, python=python, say=say)
        try:
            say(f"{OWNERS} owners and 1 renter up as processes in {_since(began)}")
            document = _act(stage, began)
        finally:
            stop(running)
        say(f"all processes ended after {_since(began)}")
    return document


def _act(stage: Stage, began: float) -> Document:
    say = stage.say
    wait_for_offers(stage.running)
    say(f"every node has heard {OWNERS} offers by gossip after {_since(began)}")
    listed = _find_all(stage)
    say(f"the directory names {listed} of {OWNERS} owners to the renter after {_since(began)}")
    first, is_output_right = _train(stage)
    second, has_moved = _lose_an_owner(stage)
    survivors = [node for node in stage.running.nodes if _is_alive(node)]
    receipts = [get(stage.renter, f"/v1/jobs/{job['id']}/receipt") for job in (first, second)]
    agree = _until(lambda: len({_root(node) for node in survivors}) == 1)
    say(f"the ledgers of all {len(survivors)} survivors agree: {agree}")
    verified = sum(_verifies(node, receipts) for node in survivors)
    say(f"both receipts hold on {verified} of {len(survivors)} nodes")
    network = get(stage.renter, "/v1/status")["network"]
    exit_code = first["outcome"]["exit_code"]
    return {
        "schema": "p2pnode.demo/1",
        "ok": is_output_right
        and listed == OWNERS
        and has_moved
        and agree
        and exit_code == second["outcome"]["exit_code"] == 0
        and verified == len(survivors),
        "nodes": len(stage.running.nodes),
        "processes": True,
        "found_in_directory": listed,
        "bids": len(get(stage.renter, f"/v1/jobs/{first['id']}/bids")["bids"]),
        "winner": first["owner"],
        "job_exit": exit_code,
        "output_sha256_ok": is_output_right,
        "receipts_verified_by": verified,
        "moved_after_kill": has_moved,
        "ledgers_agree": agree,
        "engine": first["outcome"]["engine"],
        "enforced": first["outcome"]["enforced"],
        "gpu": first["outcome"]["gpu"],
        "network": f"loopback, {network['kind']} network {network['id'][:16]}",
    }


def _find_all(stage: Stage) -> int:
    """How many of the owners the renter finds in the DHT."""
    owners = {node.peer for node in stage.running.nodes if "owner" in node.roles}
    found: set[str] = set()

    def look() -> bool:
        listed = get(stage.renter, "/v1/directory", gpu_class=24, region=list(REGIONS))
        found.update(owners.intersection(listed["items"]))
        return found == owners

    _until(look)
    return len(found)


def _train(stage: Stage) -> tuple[Document, bool]:
    """The first job, and whether its output is byte for byte what the program gives here."""
    material = stage.state / "material"
    material.mkdir()
    (material / "charmodel.py").write_bytes(files("testnet").joinpath("charmodel.py").read_bytes())
    texts = [files(package).joinpath("SPEC.md").read_text() for package in ("protocol", "ledger")]
    (material / "corpus.txt").write_text("".join(texts))
    began = time.monotonic()
    with subprocess.Popen(  # noqa: S603 - our own program, to compare with
        [sys.executable, "charmodel.py", "corpus.txt", str(_made(stage.state / "here"))],
        cwd=material,
        stdout=subprocess.DEVNULL,
    ) as here:
        job = _submit(
            stage,
            [stage.python, "-c", _IN_JOB],
            input_folder=str(material),
        )
        job = _follow(stage, job)
    if here.returncode or job["outcome"] is None:
        raise LocalFault(f"the first job failed: {job['why']}", f"cat {job['log_path']}/*")
    post(stage.renter, f"/v1/jobs/{job['id']}/fetch", {"folder": str(stage.state / "there")})
    is_right = _contents(stage.state / "there") == _contents(stage.state / "here")
    cost = format_money(Micros(job["cost_micro"]), job["money"])
    stage.say(
        f"{job['id']} exit {job['outcome']['exit_code']} on {job['owner']}, {_since(began)}, "
        f"{cost}; output fetched, sha256 as signed, same bytes as here: {is_right}"
    )
    return job, is_right


_IN_JOB: Final = (
    "import os, runpy, sys; "
    "sys.argv = ['charmodel.py', 'corpus.txt', os.environ['P2PNODE_OUT']]; "
    "runpy.run_path('charmodel.py', run_name='__main__')"
)


def _lose_an_owner(stage: Stage) -> tuple[Document, bool]:
    """The second job, whose owner is killed while it runs; whether it went on elsewhere."""
    job = _submit(stage, [stage.python, "-u", "-c", SECOND_JOB])
    started = _until(lambda: b"second 2" in get_log(stage.renter, job["id"], 0)[1])
    if not started:
        raise LocalFault("the second job did not start in time")
    first_owner = get(stage.renter, f"/v1/jobs/{job['id']}")["owner"]
    victim = next(node for node in stage.running.nodes if node.peer == first_owner)
    os.kill(victim.pid, signal.SIGKILL)
    killed = time.monotonic()
    stage.say(f"{job['id']} runs on {victim.name}: killed {victim.name} with SIGKILL")
    moved = _until(lambda: _has_moved(stage, job["id"]))
    stage.say(f"{job['id']} moved in {_since(killed)}: {moved}")
    job = _follow(stage, job)
    return job, moved and job["state"] == "done" and job["owner"] != first_owner


def _has_moved(stage: Stage, job: str) -> bool:
    document: Document = get(stage.renter, f"/v1/jobs/{job}")
    return document["attempt"] > 1 and document["state"] in {"running", "fetching", "done"}


def _submit(stage: Stage, argv: list[str], **more: object) -> Document:
    order = {
        "argv": argv,
        "vram_mib_min": VRAM_MIB,
        "money": "TEST",
        "time_ms": 120_000,
        **more,
    }
    job: Document = post(stage.renter, "/v1/jobs", order)
    return job


def _follow(stage: Stage, job: Document) -> Document:
    """Show the log until the job has ended; how it did."""
    offset, document = 0, job
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        document = dict(get(stage.renter, f"/v1/jobs/{job['id']}"))
        begin, piece = get_log(stage.renter, job["id"], offset)
        offset = begin + len(piece)
        for line in piece.decode(errors="replace").splitlines():
            stage.say(f"  | {line}")
        if document["state"] in {"done", "failed"} and not piece:
            return document
        time.sleep(POLL_S)
    raise LocalFault(f"{job['id']} did not end within {PATIENCE_S} s: {document['why']}")


def _until(condition: Callable[[], bool]) -> bool:
    """Whether the condition came true in time."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def _root(node: RunningNode) -> str:
    return str(get(Path(node.socket), "/v1/ledger")["root"])


def _verifies(node: RunningNode, receipts: list[Document]) -> bool:
    """Whether the node finds its ledger sound and both receipts true."""
    ledger = get(Path(node.socket), "/v1/ledger/verify")
    checked = [
        post(Path(node.socket), "/v1/receipts/check", {"hex": receipt["hex"]})
        for receipt in receipts
    ]
    return bool(ledger["ok"]) and all(one["is_settled"] for one in checked)


def _is_alive(node: RunningNode) -> bool:
    return Path(f"/proc/{node.pid}").exists()


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def _since(began: float) -> str:
    return f"{time.monotonic() - began:.1f} s"
