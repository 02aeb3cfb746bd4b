"""What the dice of a world decide: who is in it, what is ordered, what jobs do."""

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from p2pnode.execution.engine import Cause, Run, RunId
from p2pnode.execution.fake_engine import Script
from p2pnode.jobs.jobs import Submission
from protocol.auction import Need
from protocol.errors import LocalFault
from protocol.job import Input, JobLimits
from protocol.units import Digest, Micros, MillisSpan
from testnet.world_dice import dice_of
from testnet.world_fuse import Point
from testnet.world_host import HostPlan

NODES_MAX: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldPlan:
    """One history to be: equal plans give equal traces."""

    seed: int
    nodes: int = 12
    span_s: float = 300
    """How long there are faults and orders."""
    loss_percent: int = 10
    """Of gossip."""
    breaks_per_mille: int = 2
    """Of frames: the connection breaks there."""
    is_stormy: bool = True
    """Whether nodes are killed and restarted, prices change and jobs are cancelled."""
    order_every_s: float = 8
    """On average."""
    job_ms: tuple[int, int] = (10_000, 60_000)
    """Shortest and longest time limit."""
    ask_max: tuple[int, int] = (250_000, 700_000)
    """What people pay at most for a GPU-hour; owners ask 200,000 to 600,000."""
    down_s: tuple[float, float] = (0.2, 40)
    """How long a node stays down."""
    point: Point | None = None
    """Where a node dies besides."""

    def check(self) -> None:
        """Raises LocalFault for a world that cannot be."""
        if not 3 <= self.nodes <= NODES_MAX:
            raise LocalFault(f"a world of {self.nodes} nodes", f"--nodes 3 to {NODES_MAX}")
        if not 0 <= self.loss_percent <= 90:
            raise LocalFault(f"a loss of {self.loss_percent} %", "--loss 0 to 90")
        if self.span_s <= 0:
            raise LocalFault("a world without time", "--minutes 1")


def host_plans(plan: WorldPlan, dice: random.Random) -> tuple[HostPlan, ...]:
    """A third rents only; every second one of those is a light client."""
    owners = max(2, plan.nodes - plan.nodes // 3)
    return tuple(
        HostPlan(
            name=f"{'owner' if index < owners else 'renter'}{index}",
            is_owner=index < owners,
            is_light=index >= owners and (index - owners) % 2 == 0,
            ask=Micros(dice.randrange(200_000, 600_000)),
            gpus=dice.choice((1, 1, 2)),
            period_ms=MillisSpan(dice.choice((2_000, 5_000, 10_000))),
            lost_after_ms=MillisSpan(dice.choice((5_000, 15_000))),
        )
        for index in range(plan.nodes)
    )


def drawn_script(seed: str) -> Callable[[Run], Script]:
    """What a run does, by its id."""

    def script(run: Run) -> Script:
        dice = dice_of(f"{seed}/script/{run.id}")
        cause: Cause = "exit"
        fate = dice.randrange(20)
        if fate == 0:
            cause = "engine"
        elif fate == 1:
            cause = "memory"
        return Script(
            lasts_ms=MillisSpan(round(run.limits.time_ms * dice.uniform(0.05, 1.1))),
            cause=cause,
            exit_code=dice.choice((0, 0, 0, 1)) if cause == "exit" else None,
            log=dice.randbytes(dice.choice((0, 50, 5_000, 200_000))),
            obeys_stop=dice.randrange(4) > 0,
        )

    return script


def drawn_output(seed: str) -> Callable[[RunId], bytes | None]:
    """What a run leaves behind, by its id."""

    def output(run: RunId) -> bytes | None:
        dice = dice_of(f"{seed}/output/{run}")
        return dice.randbytes(dice.choice((1, 1_000, 100_000))) if dice.randrange(2) else None

    return output


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A job to submit, and what it starts with."""

    submission: Submission
    archive: bytes


def drawn_order(plan: WorldPlan, job: str, dice: random.Random) -> Wanted:
    """What somebody wants next."""
    archive = dice.randbytes(dice.choice((0, 0, 100, 300_000)))
    named = Input(digest=Digest(hashlib.sha256(archive).digest()), bytes=len(archive))
    return Wanted(
        archive=archive,
        submission=Submission(
            id=job,
            argv=("train", str(dice.randrange(1_000))),
            variables={"SEED": str(dice.randrange(1_000))},
            image=None,
            input=named if archive else None,
            need=Need(gpus=dice.choice((1, 1, 1, 2)), vram_mib_min=dice.choice((8_000, 22_889))),
            tier="silver",
            limits=JobLimits(
                time_ms=MillisSpan(dice.randint(*plan.job_ms)),
                memory_mib=512,
                cpus_milli=1_000,
                pids=64,
                disk_mib=64,
                log_bytes=65_536,
                output_bytes=1_048_576,
            ),
            money="TEST",
            ask_max=Micros(dice.randint(*plan.ask_max)),
            total_max=None,
            patience_ms=MillisSpan(dice.randint(5_000, 60_000)),
        ),
    )
