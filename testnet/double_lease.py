"""A ten-node testnet in which one owner grants its GPU to two renters at once.

How soon every node holds the proof, and whether from then on none deals with the owner. The
victims are light clients, which hear the least; the owner shows each of them a branch of its feed
of its own and tells nobody else of either.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from p2pnode.cli.client import get, post
from p2pnode.clock import SystemClock
from p2pnode.jobs.jobfile import ENDED
from protocol.errors import LocalFault
from testnet.bench.report import Report, Table, at_most, machine
from testnet.double_lease_node import identity_of, run_with_cheat
from testnet.offers import wait_for_offers
from testnet.plan import GpuKind, NodePlan, plan_network
from testnet.processes import start
from testnet.real_time import now_s, sleep
from testnet.state import Running, RunningNode, stop
from testnet.world_dice import dice_of

KIND: Final = GpuKind(model="RTX 4090", vram="24564MiB", ask_micro=300_000)
CHEAP_MICRO: Final = 150_000
"""What the offender asks, so that every auction would be won by it."""
NODES_MIN: Final = 5
VICTIMS: Final = 2
RULES: Final = ("A1", "A4")
"""What two branches with one counter of a GPU prove."""
KNOWN_S: Final = 10
"""By then every honest node has the proof."""
WATCHED_S: Final = 120
"""How long it is waited for, to tell how late it is."""
LEASED_S: Final = 30
JOBS_S: Final = 90
POLL_S: Final = 0.05

Say = Callable[[str], None]
Document = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubleLeaseWish:
    """How many nodes, and who is who."""

    nodes: int = 10
    seed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """Who plays what; the plans of all nodes by their index."""

    plans: tuple[NodePlan, ...]
    offender: int
    victims: tuple[int, ...]

    def role(self, index: int) -> str:
        """For people."""
        if index == self.offender:
            return "offender"
        what = "victim" if index in self.victims else "bystander"
        return f"{what}, light" if self.plans[index].gpu is None else what


@dataclass(slots=True, kw_only=True)
class Course:
    """What was seen."""

    offender: str
    """Its feed."""
    asked_before: dict[int, bool] = field(default_factory=dict)
    accepted: int = 0
    granted_ms: int = 0
    """When the second GRANT was written, by the owner's clock, which is this machine's."""
    known_ms: dict[int, int] = field(default_factory=dict)
    shown: dict[int, bool] = field(default_factory=dict)
    """Whether the command shows the proof of the double lease."""
    excluded: dict[int, bool] = field(default_factory=dict)
    asked_after: dict[int, bool] = field(default_factory=dict)
    rented_after: dict[int, bool] = field(default_factory=dict)
    refused_by: int = 0
    accused: set[str] = field(default_factory=set)

    def took_s(self, index: int) -> float:
        """From the second GRANT to the proof at this node; infinite if it never came."""
        known = self.known_ms.get(index)
        return float("inf") if known is None else (known - self.granted_ms) / 1_000


def cast_of(wish: DoubleLeaseWish, folder: Path) -> Cast:
    """The network of this seed. Raises LocalFault."""
    if wish.nodes < NODES_MIN:
        raise LocalFault(f"{wish.nodes} nodes are too few", f"--nodes {NODES_MIN} or more")
    light = max(VICTIMS, wish.nodes * 2 // 5)
    plans = list(plan_network(folder, nodes=wish.nodes, renters=light, kinds=(KIND,)))
    dice = dice_of(f"double-lease/{wish.seed}")
    # Not the first, whom all others know as their bootstrap.
    offender = dice.randrange(1, wish.nodes - light)
    plans[offender] = replace(plans[offender], ask_micro=CHEAP_MICRO)
    victims = dice.sample(range(wish.nodes - light, wish.nodes), VICTIMS)
    return Cast(plans=tuple(plans), offender=offender, victims=tuple(victims))


def run(wish: DoubleLeaseWish, say: Say) -> Report:
    """Let it happen in a folder that is deleted after. Raises LocalFault."""
    with tempfile.TemporaryDirectory(prefix="p2pnode-double-") as folder:
        cast = cast_of(wish, Path(folder))
        running = start(
            cast.plans,
            Path(folder),
            name="double-lease",
            heartbeat="30s",
            run=run_with_cheat(cast.offender, tuple(cast.plans[each] for each in cast.victims)),
        )
        try:
            wait_for_offers(running)
            course = _Act(cast, running, say).play()
        finally:
            stop(running)
    return _report(wish, cast, course)


class _Act:
    """The course, step by step."""

    def __init__(self, cast: Cast, running: Running, say: Say) -> None:
        self._cast = cast
        self._nodes = running.nodes
        self._say = say
        feed = identity_of(cast.plans[cast.offender]).feed.public
        self._course = Course(offender=feed.hex())
        self._honest = [node for node in running.nodes if node.index != cast.offender]

    def play(self) -> Course:
        """All of it. Raises LocalFault if the double lease does not come about."""
        bystanders = [node for node in self._honest if node.index not in self._cast.victims]
        for index, (bids, _) in self._auctions(bystanders, _only_cheap()).items():
            self._course.asked_before[index] = self._speaks_in(bids)
        self._say(f"{sum(self._course.asked_before.values())} bystanders ask the owner for a bid")
        self._deceive()
        self._watch()
        for node in self._honest:
            self._course.shown[node.index] = self._is_shown(node)
        self._after()
        for node in self._honest:
            told = get(Path(node.socket), "/v1/ledger")["offences"]
            self._course.accused |= {each["offender"] for each in told}
        return self._course

    def _deceive(self) -> None:
        victims = [self._nodes[index] for index in self._cast.victims]
        jobs = {node.index: post(Path(node.socket), "/v1/jobs", _long())["id"] for node in victims}
        accepted: list[Document] = []

        def is_done() -> bool:
            accepted[:] = [lease for node in victims for lease in self._taken(node)]
            return len(accepted) == VICTIMS

        if not _until(is_done, LEASED_S):
            told = [get(Path(self._nodes[i].socket), f"/v1/jobs/{job}") for i, job in jobs.items()]
            raise LocalFault(f"no double lease came about: {[each['why'] for each in told]}")
        self._course.accepted = len(accepted)
        self._say(f"{len(accepted)} renters have accepted a lease of one GPU for one time")
        for index, job in jobs.items():
            bids = get(Path(self._nodes[index].socket), f"/v1/jobs/{job}/bids")
            self._course.asked_before[index] = self._speaks_in(bids)

    def _taken(self, node: RunningNode) -> list[Document]:
        return [
            lease
            for lease in get(Path(node.socket), "/v1/leases")["items"]
            if lease["is_accepted"] and lease["peer_feed"] == self._course.offender
        ]

    def _watch(self) -> None:
        """Until every honest node has the proof, or far too late."""

        def has_come() -> bool:
            for node in self._honest:
                if node.index not in self._course.known_ms and self._knows(node):
                    self._course.known_ms[node.index] = SystemClock().now()
            return len(self._course.known_ms) == len(self._honest)

        _until(has_come, WATCHED_S)
        shown = get(Path(self._honest[0].socket), "/v1/ledger/evidence", limit=1_000)["items"]
        self._course.granted_ms = max(
            (
                part["ts_ms"]
                for item in shown
                if item["rule"] == "A4" and item["offender"] == self._course.offender
                for part in item["shown_by"]
            ),
            default=0,
        )
        last = max((self._course.took_s(each) for each in self._course.known_ms), default=0.0)
        self._say(f"{len(self._course.known_ms)} nodes have the proof, the last after {last:.2f} s")

    def _knows(self, node: RunningNode) -> bool:
        told = get(Path(node.socket), "/v1/ledger")["offences"]
        found = {each["rule"] for each in told if each["offender"] == self._course.offender}
        assert all(each["class"] == "proved" for each in told)
        return found.issuperset(RULES)

    def _is_shown(self, node: RunningNode) -> bool:
        """Whether the command that people type shows the proof."""
        done = subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-m", "p2pnode", "ledger", "evidence", "--home", node.home, "--json"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            return False
        items = json.loads(done.stdout)["items"]
        return any(
            (each["rule"], each["class"], each["offender"])
            == ("A4", "proved", self._course.offender)
            for each in items
        )

    def _after(self) -> None:
        """The next auctions, of all."""
        course = self._course
        for index, (bids, why) in self._auctions(self._honest, _only_cheap()).items():
            course.excluded[index] = "1 offender" in why
            course.asked_after[index] = self._speaks_in(bids)
        for index, (bids, why) in self._auctions(self._honest, _short()).items():
            course.rented_after[index] = not why
            course.asked_after[index] |= self._speaks_in(bids)
        offender = self._nodes[self._cast.offender]
        bids, _ = self._auctions([offender], _only_cheap(ask_micro_max=None))[offender.index]
        course.refused_by = sum(
            each["reason"] == "POLICY" and each["detail"].startswith("proved: A4")
            for each in bids["refusals"]
        )
        self._say(f"{course.refused_by} owners refuse the owner as a renter")

    def _auctions(
        self, nodes: list[RunningNode], order: Document
    ) -> dict[int, tuple[Document, str]]:
        """The last auction of each for this order, and why the job failed; empty if it is done."""
        jobs = {node: post(Path(node.socket), "/v1/jobs", order)["id"] for node in nodes}
        told: dict[int, tuple[Document, str]] = {}
        for node, job in jobs.items():
            place = f"/v1/jobs/{job}"
            _until(lambda: get(Path(node.socket), place)["state"] in ENDED, JOBS_S)  # noqa: B023
            state = get(Path(node.socket), place)
            why = "" if state["state"] == "done" else state["why"] or state["state"]
            told[node.index] = (get(Path(node.socket), f"{place}/bids"), why)
        return told

    def _speaks_in(self, bids: Document) -> bool:
        """Whether the offender was asked and has answered."""
        heard = (*bids["bids"], *bids["refusals"])
        return any(each["owner"] == self._course.offender for each in heard)


def _order(script: str, **wish: object) -> Document:
    return {
        "argv": ["sh", "-c", script],
        "money": "TEST",
        "time_ms": 60_000,
        "memory_mib": 256,
        "pids": 64,
        "disk_mib": 64,
        **wish,
    }


def _only_cheap(ask_micro_max: int | None = CHEAP_MICRO) -> Document:
    """An order that nobody but the offender is cheap enough for, and that is soon given up."""
    return _order("true", ask_micro_max=ask_micro_max, patience_ms=1)


def _short() -> Document:
    return _order("true", patience_ms=60_000)


def _long() -> Document:
    """Longer than the experiment: how such leases end is another story."""
    return _order("sleep 600", time_ms=900_000)


def _until(is_so: Callable[[], bool], limit_s: float) -> bool:
    """Whether it came true in time."""
    deadline = now_s() + limit_s
    while not is_so():
        if now_s() > deadline:
            return False
        sleep(POLL_S)
    return True


def _report(wish: DoubleLeaseWish, cast: Cast, course: Course) -> Report:
    honest = [plan for plan in cast.plans if plan.index != cast.offender]
    owners = sum(plan.gpu is not None for plan in honest)
    slowest = max(course.took_s(plan.index) for plan in honest)
    lit = [course.took_s(plan.index) for plan in honest if plan.gpu is None]
    missed = [plan for plan in honest if not course.asked_before.get(plan.index)]
    return Report(
        name="double-lease",
        figures={
            "nodes": wish.nodes,
            "seed": wish.seed,
            "light clients": len(lit),
            "renters that accepted one GPU for one time": course.accepted,
            "first_s": min(course.took_s(plan.index) for plan in honest),
            "slowest_light_s": max(lit),
            "slowest_s": slowest,
            "simulated": "every GPU; loopback",
            **machine(),
        },
        bars=(
            at_most("the last honest node's proof, s after the second GRANT", slowest, KNOWN_S),
            at_most("nodes whose `ledger evidence` lacks it", _lacking(honest, course.shown), 0),
            at_most("nodes that did not ask the offender before", len(missed), 0),
            at_most("nodes that ask it after", sum(course.asked_after.values()), 0),
            at_most("nodes that do not exclude it", _lacking(honest, course.excluded), 0),
            at_most("nodes that rent of nobody else", _lacking(honest, course.rented_after), 0),
            at_most("owners that do not refuse it", owners - course.refused_by, 0),
            at_most("honest nodes accused", len(course.accused - {course.offender}), 0),
        ),
        table=Table(
            header=("#", "NAME", "ROLE", "PROOF AFTER s"),
            rows=tuple(
                (str(each.index), each.name, cast.role(each.index), _seconds(each, cast, course))
                for each in cast.plans
            ),
        ),
    )


def _lacking(plans: list[NodePlan], found: dict[int, bool]) -> int:
    return sum(not found.get(plan.index) for plan in plans)


def _seconds(plan: NodePlan, cast: Cast, course: Course) -> str:
    return "-" if plan.index == cast.offender else f"{course.took_s(plan.index):.2f}"
