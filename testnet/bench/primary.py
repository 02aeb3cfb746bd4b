"""`bench primary`: how soon what a renter's own cluster cannot run runs on the network.

And the other way: how soon what nobody here fits is on the cluster. Never both, and once each.
"""

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

from p2pnode.cli.client import get, post
from p2pnode.clock import SystemClock
from protocol.errors import LocalFault
from testnet.bench.report import Report, at_least, at_most, machine, percentile
from testnet.bench.stand_in import EXIT_CODE, StandIn, Told, make_stand_in
from testnet.offers import wait_for_offers
from testnet.plan import plan_network
from testnet.processes import start
from testnet.state import RunningNode, stop

HERE_S_MAX: Final = 10.0
POLL_S: Final = 0.05
GIVE_UP_S: Final = 120
PATIENCE_MS: Final = 2_000

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrimaryWish:
    """How much to measure."""

    jobs: int
    """Each way, one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Went:
    """One job."""

    there: bool
    """Whether it ran on the cluster."""
    here: bool
    took_s: float
    """From the no of the one place to the yes of the other; NaN without one."""
    is_done: bool


def run(wish: PrimaryWish, say: Say) -> Report:
    """The whole benchmark. Raises LocalFault if the network does not come up."""
    with tempfile.TemporaryDirectory(prefix="p2pnode-primary-") as folder:
        state = Path(folder)
        cluster = make_stand_in(state / "cluster")
        *owners, renter = plan_network(state, nodes=3, renters=1)
        plans = (*owners, replace(renter, primary=str(cluster.template)))
        running = start(plans, state, name="primary", heartbeat="30s")
        try:
            wait_for_offers(running)
            say(f"2 owners, a renter and its cluster up; {wish.jobs} jobs each way")
            return _report(wish, *trio.run(_both_ways, running.nodes[-1], cluster, wish))
        finally:
            stop(running)


async def _both_ways(
    renter: RunningNode, cluster: StandIn, wish: PrimaryWish
) -> tuple[list[Went], list[Went]]:
    cluster.says("no stock")
    here = [await _to_the_market(renter, cluster) for _ in range(wish.jobs)]
    cluster.says("sent")
    there = [await _to_the_cluster(renter, cluster) for _ in range(wish.jobs)]
    return here, there


async def _to_the_market(renter: RunningNode, cluster: StandIn) -> Went:
    """From the cluster's answer until the job runs here."""
    job = await _post(renter, {"primary": "first"})
    runs_s = math.nan
    while job["state"] not in {"done", "failed"}:
        job = await _look(renter, job)
        if math.isnan(runs_s) and job["state"] in {"running", "fetching", "settling", "done"}:
            runs_s = _now_s()
    [said] = _told(cluster, job, "start")
    return Went(
        there=job["primary"]["exit_code"] is not None,
        here=job["lease"] is not None,
        took_s=runs_s - said.at_s,
        is_done=job["state"] == "done" and job["outcome"]["exit_code"] == 0,
    )


async def _to_the_cluster(renter: RunningNode, cluster: StandIn) -> Went:
    """From the end of its patience with the market until the cluster has the job."""
    job = await _post(renter, {"primary": "fallback", "ask_micro_max": 1})
    while job["state"] not in {"done", "failed"}:
        job = await _look(renter, job)
    starts = _told(cluster, job, "start")
    gave_up_s = (job["created_ms"] + PATIENCE_MS) / 1_000
    return Went(
        there=job["primary"]["exit_code"] == EXIT_CODE,
        here=job["lease"] is not None,
        took_s=starts[0].at_s - gave_up_s if len(starts) == 1 else math.nan,
        is_done=job["state"] == "done",
    )


def _told(cluster: StandIn, job: dict[str, Any], verb: str) -> list[Told]:
    return [told for told in cluster.told() if (told.name, told.verb) == (job["id"], verb)]


async def _post(renter: RunningNode, changes: dict[str, Any]) -> dict[str, Any]:
    order = {"argv": ["true"], "money": "TEST", "patience_ms": PATIENCE_MS, **changes}
    call = partial(post, Path(renter.socket), "/v1/jobs", order)
    job: dict[str, Any] = await trio.to_thread.run_sync(call)
    return job


async def _look(renter: RunningNode, job: dict[str, Any]) -> dict[str, Any]:
    if _now_s() - job["created_ms"] / 1_000 > GIVE_UP_S:
        raise LocalFault(f"{job['id']} is still {job['state']} after {GIVE_UP_S} s.")
    await trio.sleep(POLL_S)
    call = partial(get, Path(renter.socket), f"/v1/jobs/{job['id']}")
    now: dict[str, Any] = await trio.to_thread.run_sync(call)
    return now


def _now_s() -> float:
    return SystemClock().now() / 1_000


def _report(wish: PrimaryWish, here: list[Went], there: list[Went]) -> Report:
    took = [went.took_s for went in here]
    back = [went.took_s for went in there]
    found = [*here, *there]
    return Report(
        name="primary",
        figures={
            "jobs each way": wish.jobs,
            "out of stock there to running here, median, s": percentile(took, 0.5),
            "out of stock there to running here, most, s": max(took),
            "no match here to started there, median, s": percentile(back, 0.5),
            "no match here to started there, most, s": max(back),
            **machine(),
        },
        bars=(
            at_most("out of stock there to running here, most, s", max(took), HERE_S_MAX),
            at_least("jobs that are done", sum(went.is_done for went in found), 2 * wish.jobs),
            at_most("jobs that ran at both", sum(went.here and went.there for went in found), 0),
        ),
    )
