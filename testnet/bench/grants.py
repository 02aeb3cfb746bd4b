"""`bench grants`: how soon after its submission a job has its lease, on a network of processes."""

import math
import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

from p2pnode.cli.client import get, post
from protocol.errors import LocalFault
from testnet.bench.report import Report, Table, at_least, at_most, machine, percentile
from testnet.offers import wait_for_offers
from testnet.plan import GPU_KINDS, NodePlan, plan_network
from testnet.processes import start
from testnet.state import Running, RunningNode, stop

HEARTBEAT: Final = "30s"
P95_S_MAX: Final = 2.0
POLL_S: Final = 0.02
"""How often a renter's node is asked; the figures are too long by as much."""
GIVE_UP_S: Final = 60
PATIENCE_MS: Final = 30_000

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantsWish:
    """How much to measure."""

    nodes: int
    renters: int
    jobs: int
    """Of each renter, one after the other; all renters at once."""
    every_s: float
    """A renter submits at this pace on average, or as soon as its last job is done if that is
    later: with 0 the renters load the machine as much as it can bear."""
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """One job: who wanted it, and what became of it."""

    renter: str
    is_light: bool
    lease_s: float
    """From the submission until the renter holds GRANT and ACCEPT; NaN if it never did."""
    attempts: int
    is_done: bool


def run(wish: GrantsWish, say: Say) -> Report:
    """The whole benchmark. Raises LocalFault if the network does not come up."""
    with tempfile.TemporaryDirectory(prefix="p2pnode-grants-") as folder:
        state = Path(folder)
        planned = plan_network(state, nodes=wish.nodes, renters=wish.renters, kinds=GPU_KINDS[:1])
        running = start(_half_light(planned), state, name="grants", heartbeat=HEARTBEAT)
        try:
            wait_for_offers(running)
            owners = wish.nodes - wish.renters
            say(
                f"{owners} owners up; {wish.renters} renters of {wish.jobs} jobs, "
                f"one every {wish.every_s:g} s each"
            )
            found = trio.run(_rent, running, wish)
        finally:
            stop(running)
    return _report(wish, found)


def _half_light(plans: tuple[NodePlan, ...]) -> tuple[NodePlan, ...]:
    """Every second renter takes part in gossip, the others look into the directory."""
    return tuple(
        replace(plan, gossip="on") if plan.gpu is None and plan.index % 2 else plan
        for plan in plans
    )


async def _rent(running: Running, wish: GrantsWish) -> list[Granted]:
    found: list[Granted] = []
    async with trio.open_nursery() as nursery:
        for node in running.nodes[-wish.renters :]:
            nursery.start_soon(_renter, node, wish, found)
    return found


async def _renter(node: RunningNode, wish: GrantsWish, found: list[Granted]) -> None:
    rng = random.Random(f"{wish.seed} {node.name}")  # noqa: S311 - when, no secret
    status = await _get(node, "/v1/status")
    due_s = trio.current_time()
    for _ in range(wish.jobs):
        due_s += rng.uniform(0.5, 1.5) * wish.every_s
        await trio.sleep_until(due_s)
        granted = await _job(node, is_light=bool(status["is_light"]))
        found.append(granted)


async def _job(node: RunningNode, *, is_light: bool) -> Granted:
    order = {"argv": ["true"], "money": "TEST", "patience_ms": PATIENCE_MS}
    began = trio.current_time()
    job = await trio.to_thread.run_sync(partial(post, Path(node.socket), "/v1/jobs", order))
    lease_s = math.nan
    while job["state"] not in {"done", "failed"}:
        if trio.current_time() - began > GIVE_UP_S:
            raise LocalFault(f"{job['id']} of {node.name}: {job['state']} after {GIVE_UP_S} s.")
        await trio.sleep(POLL_S)
        job = await _get(node, f"/v1/jobs/{job['id']}")
        if math.isnan(lease_s) and job["lease"] is not None:
            lease_s = trio.current_time() - began
    return Granted(
        renter=node.name,
        is_light=is_light,
        lease_s=lease_s,
        attempts=job["attempt"],
        is_done=job["state"] == "done",
    )


async def _get(node: RunningNode, path: str) -> dict[str, Any]:
    document: dict[str, Any] = await trio.to_thread.run_sync(partial(get, Path(node.socket), path))
    return document


def _report(wish: GrantsWish, found: list[Granted]) -> Report:
    took = [each.lease_s for each in found if not math.isnan(each.lease_s)]
    done = sum(each.is_done for each in found)
    figures = {
        "nodes": wish.nodes,
        "renters": wish.renters,
        "jobs": len(found),
        "every_s": wish.every_s,
        "seed": wish.seed,
        **{f"p{share}_s": percentile(took, share / 100) for share in (50, 95, 99)},
        "max_s": max(took, default=math.nan),
        "moved": sum(each.attempts > 1 for each in found),
        **machine(),
    }
    bars = (
        at_most("submission to lease, p95, s", percentile(took, 0.95), P95_S_MAX),
        at_least("share of jobs that are done", done / max(1, len(found)), 1),
    )
    return Report(name="grants", figures=figures, bars=bars, table=_table(found))


def _table(found: list[Granted]) -> Table:
    renters = dict.fromkeys((each.renter, each.is_light) for each in found)
    rows = []
    for renter, is_light in renters:
        took = [e.lease_s for e in found if e.renter == renter and not math.isnan(e.lease_s)]
        rows.append(
            (
                renter,
                "directory" if is_light else "gossip",
                str(len(took)),
                *(f"{percentile(took, share):.2f}" for share in (0.5, 0.95, 1.0)),
            )
        )
    return Table(
        header=("RENTER", "FINDS BY", "LEASES", "P50 s", "P95 s", "MAX s"), rows=tuple(rows)
    )
