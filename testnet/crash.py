"""Real nodes with real disks and sockets, one of which is killed at a step of its own.

Three owners and a renter run jobs; the victim of the seed gets SIGKILL from within at its n-th
durable write or sent frame, and is started again. Then nothing that was acknowledged may be lost.
"""

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from p2pnode.cli.client import get, post
from protocol.errors import LocalFault, Unavailable
from testnet.crash_checks import check_all
from testnet.crash_node import run_until
from testnet.fixed_ports import configure
from testnet.plan import GpuKind, NodePlan, plan_network
from testnet.processes import fork_node, prepare, wait_ready
from testnet.real_time import now_s, sleep
from testnet.state import RunningNode
from testnet.world_checks import Broken
from testnet.world_dice import dice_of
from testnet.world_fuse import Point, Step

OWNERS: Final = 3
RENTER: Final = OWNERS
KIND: Final = GpuKind(model="RTX 4090", vram="24564MiB", ask_micro=300_000)
JOBS: Final = 2
POLL_S: Final = 0.05
OFFERS_S: Final = 40
JOBS_S: Final = 90
STOP_S: Final = 5
STEPS: Final[dict[Step, dict[bool, int]]] = {
    "write": {True: 34, False: 50},
    "frame": {True: 90, False: 125},
}
"""About as many as an owner with a job (True) or the renter makes when nobody dies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """What a seed does: who dies, and where."""

    seed: int
    victim: int
    point: Point


@dataclass(frozen=True, slots=True, kw_only=True)
class Survived:
    """What came of it."""

    crash: Crash
    is_dead: bool
    """Whether the point was reached."""
    jobs: int
    receipts: int
    took_s: float


def crash_of(seed: int) -> Crash:
    """The cheapest owner and the renter have most to lose."""
    dice = dice_of(f"crash/{seed}")
    victim = dice.choice((0, 0, 1, RENTER, RENTER))
    step: Step = dice.choice(("write", "frame"))
    n = dice.randint(1, STEPS[step][victim != RENTER])
    point = Point(step=step, n=n, is_done=dice.random() < 0.5)
    return Crash(seed=seed, victim=victim, point=point)


@dataclass(slots=True)
class _Nodes:
    """The processes."""

    plans: tuple[NodePlan, ...]
    running: dict[int, RunningNode] = field(default_factory=dict)
    pids: dict[int, int] = field(default_factory=dict)
    """Index of the node by process id."""
    deaths: int = 0

    def start(self, index: int, point: Point | None) -> tuple[NodePlan, int, int]:
        pid, pipe = fork_node(self.plans[index], run_until(point))
        self.pids[pid] = index
        return self.plans[index], pid, pipe

    def wait(self, index: int, started: tuple[NodePlan, int, int]) -> None:
        """Until it answers; one that dies of its point first is started again."""
        try:
            self.running[index] = wait_ready(*started)
        except LocalFault:
            self._wait_dead(started[1])
            self.revive()

    def _wait_dead(self, pid: int) -> None:
        """Its pipe is closed a moment before it is gone. Raises Broken if it only hangs."""
        deadline = now_s() + STOP_S
        while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            if now_s() > deadline:
                raise Broken(f"{self.plans[self.pids[pid]].name} hangs")
            sleep(POLL_S)

    def revive(self) -> None:
        """Start again who has died. Raises Broken for a node that ended by itself."""
        while self.pids:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            index = self.pids.pop(pid)
            if not os.WIFSIGNALED(status):
                raise Broken(f"{self.plans[index].name} ended by itself: {self.plans[index].home}")
            self.deaths += 1
            self.wait(index, self.start(index, None))

    def socket(self, index: int) -> Path:
        return Path(self.running[index].socket)

    def stop(self) -> None:
        """End all, in order if they can."""
        for pid in self.pids:
            os.kill(pid, signal.SIGTERM)
        deadline = now_s() + STOP_S
        while self.pids:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            self.pids.pop(pid, None)
            if not pid and now_s() > deadline:
                for left in self.pids:
                    os.kill(left, signal.SIGKILL)
            if not pid:
                sleep(POLL_S)


def run_crash(seed: int, *, say: Callable[[str], None]) -> Survived:
    """Let it happen in a folder that is deleted after, unless something is lost. Raises Broken."""
    crash = crash_of(seed)
    folder = Path(tempfile.mkdtemp(prefix="p2pnode-crash-"))
    began = now_s()
    try:
        survived = _happen(crash, folder, began)
    except BaseException:
        say(f"seed {seed}: node {crash.victim} dies {crash.point}; see {folder}")
        raise
    shutil.rmtree(folder)
    return survived


def _happen(crash: Crash, folder: Path, began: float) -> Survived:
    plans = tuple(
        replace(plan, period="1s", lost_after="20s")
        for plan in plan_network(folder, nodes=OWNERS + 1, renters=1, kinds=(KIND,))
    )
    prepare(plans, name="crash")
    configure(plans, bootstrap=(0, 1))
    gc.freeze()
    with _running(plans, crash) as nodes:
        _wait_for(nodes, OFFERS_S, lambda: _is_known(nodes), "offers")
        jobs = _submit_all(nodes, folder)
        _wait_for(nodes, JOBS_S, lambda: _are_ended(nodes, jobs), "the jobs' ends")
        found: list[int] = []

        def is_checked() -> bool:
            found.append(check_all([nodes.socket(index) for index in range(len(plans))], jobs))
            return True

        # Again if the point was reached only by being asked.
        _wait_for(nodes, OFFERS_S, is_checked, "answers from all")
        deaths = nodes.deaths
    return Survived(
        crash=crash,
        is_dead=deaths > 0,
        jobs=len(jobs),
        receipts=found[-1],
        took_s=now_s() - began,
    )


@contextmanager
def _running(plans: tuple[NodePlan, ...], crash: Crash) -> Iterator[_Nodes]:
    """All nodes up; whatever happens, all gone after."""
    nodes = _Nodes(plans=plans)
    try:
        started = [
            nodes.start(index, crash.point if index == crash.victim else None)
            for index in range(len(plans))
        ]
        for index, each in enumerate(started):
            nodes.wait(index, each)
        yield nodes
    finally:
        nodes.stop()


def _wait_for(nodes: _Nodes, limit_s: float, is_so: Callable[[], bool], what: str) -> None:
    deadline = now_s() + limit_s
    while True:
        nodes.revive()
        with suppress(Unavailable):  # it died just now
            if is_so():
                return
        if now_s() > deadline:
            raise Broken(f"waited {limit_s} s in vain for {what}")
        sleep(POLL_S)


def _is_known(nodes: _Nodes) -> bool:
    """Whether every owner holds all offers and is in the directory, where the renter looks."""
    shown = [get(nodes.socket(index), "/v1/status") for index in range(OWNERS)]
    return all(each["offers"] == OWNERS and each["listed"] for each in shown)


def _submit_all(nodes: _Nodes, folder: Path) -> list[str]:
    """The ids of the jobs whose submission was acknowledged."""
    inputs = folder / "input"
    inputs.mkdir()
    (inputs / "data").write_bytes(b"x" * 100_000)
    jobs: list[str] = []

    def submit() -> bool:
        order = _order(inputs if not jobs else None)
        jobs.append(post(nodes.socket(RENTER), "/v1/jobs", order)["id"])
        return True

    for _ in range(JOBS):
        _wait_for(nodes, OFFERS_S, submit, "a submission")
    return jobs


def _order(inputs: Path | None) -> dict[str, Any]:
    return {
        "argv": ["sh", "-c", "echo begun; sleep 1.5; echo 42 > $P2PNODE_OUT/answer"],
        "input_folder": None if inputs is None else str(inputs),
        "money": "TEST",
        "time_ms": 20_000,
        "memory_mib": 256,
        "pids": 64,
        "disk_mib": 64,
    }


def _are_ended(nodes: _Nodes, jobs: list[str]) -> bool:
    shown = [get(nodes.socket(RENTER), f"/v1/jobs/{job}") for job in jobs]
    return all(job["state"] in {"done", "failed"} for job in shown)
