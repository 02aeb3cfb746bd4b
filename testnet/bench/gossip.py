"""`bench gossip`: owners change their prices; when does which node know? Owns its network."""

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
from p2pnode.clock import SystemClock
from testnet.bench.arrivals import Change, Travel, travels
from testnet.bench.cpu import cpu_use
from testnet.bench.meshes import MeshWatch
from testnet.bench.report import Figures, Report, Table, at_least, at_most, machine, percentile
from testnet.offers import wait_for_offers
from testnet.plan import GpuKind, plan_network
from testnet.processes import start
from testnet.state import Running, stop

HEARTBEAT: Final = "30s"
SETTLE_S: Final = 5
"""After the last node knows every offer: what joining costs is over by then."""
PATIENCE_S: Final = 13
"""After the last change, before the books are read: a second more than the slowest may take."""
KIND: Final = GpuKind(model="RTX 4090", vram="24564MiB", ask_micro=300_000)
PRICE_BASE: Final = 1_000_000
"""Each change asks this and its number, so that a price names the change."""

SOON_MS: Final = 2_000
SOON_SHARE: Final = 0.99
LATE_MS: Final = 12_000
NO_MESH_S_MAX: Final = 5.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class GossipWish:
    """How much to measure."""

    nodes: int
    changes: int
    per_s: float
    seed: int


def run(wish: GossipWish, say: Say) -> Report:
    """The whole benchmark. Raises LocalFault if the network does not come up."""
    with tempfile.TemporaryDirectory(prefix="p2pnode-bench-") as folder:
        planned = plan_network(Path(folder), nodes=wish.nodes, renters=0, kinds=(KIND,))
        plans = tuple(replace(plan, gossip="on") for plan in planned)
        say(f"starting {wish.nodes} nodes")
        running = start(plans, Path(folder), name="bench", heartbeat=HEARTBEAT)
        try:
            wait_for_offers(running)
            say(f"up; {wish.changes} changes at {wish.per_s} a second")
            return trio.run(_measure, running, wish)
        finally:
            stop(running)


async def _measure(running: Running, wish: GossipWish) -> Report:
    await trio.sleep(SETTLE_S)
    watch = MeshWatch(running)
    pids = [node.pid for node in running.nodes]
    before = cpu_use(pids, trio.current_time())
    async with trio.open_nursery() as nursery:
        await nursery.start(watch.run)
        changes = await _change_prices(running, wish)
        await trio.sleep(PATIENCE_S)
        nursery.cancel_scope.cancel()
    await watch.look()
    cores = cpu_use(pids, trio.current_time()).cores_since(before)
    books = {node.index: await _arrivals(node.socket) for node in running.nodes}
    return _report(travels(changes, books), watch, wish, cores=cores)


async def _change_prices(running: Running, wish: GossipWish) -> list[Change]:
    """Post the changes, at random owners and at uneven distances that are right on average."""
    rng = random.Random(wish.seed)  # noqa: S311 - which owner, no secret
    clock = SystemClock()
    changes = []
    due_s = trio.current_time()
    for number in range(wish.changes):
        due_s += rng.uniform(0.5, 1.5) / wish.per_s
        await trio.sleep_until(due_s)
        node = rng.choice(running.nodes)
        price = PRICE_BASE + number
        changes.append(Change(owner=node.index, ask_micro=price, posted_ms=clock.now()))
        order = {"micro_per_gpu_hour": price, "money": "TEST"}
        await trio.to_thread.run_sync(partial(post, Path(node.socket), "/v1/ask", order))
    return changes


async def _arrivals(socket: str) -> list[dict[str, Any]]:
    document = await trio.to_thread.run_sync(partial(get, Path(socket), "/v1/offers/arrivals"))
    items: list[dict[str, Any]] = document["items"]
    return items


def _report(found: list[Travel], watch: MeshWatch, wish: GossipWish, *, cores: Figures) -> Report:
    took = [travel.took_ms for travel in found if travel.took_ms is not None]
    lost = len(found) - len(took)
    soon = sum(ms <= SOON_MS for ms in took) / max(1, len(found))
    slowest = max(took, default=math.nan)
    figures = {
        **{f"p{share}_ms": percentile(took, share / 100) for share in (50, 95, 99)},
        "max_ms": slowest,
        "pairs": len(found),
        "pairs_lost": lost,
        "within_2s": round(soon, 5),
        "nodes": wish.nodes,
        "changes": wish.changes,
        "coalesced": sum(travel.is_superseded for travel in found),
        "seed": wish.seed,
        "no_mesh_longest_s": round(watch.longest_s, 1),
        "mesh_smallest_at_end": watch.smallest,
        "offers_found_by_sync": watch.found_by_sync,
        **cores,
        **machine(),
    }
    bars = (
        at_least("share of pairs within 2 s", soon, SOON_SHARE),
        at_most("slowest pair, ms", slowest, LATE_MS),
        at_most("pairs that never arrived", lost, 0),
        at_most("nodes without a mesh at the end", watch.without_mesh, 0),
        at_most("longest time without a mesh, s", watch.longest_s, NO_MESH_S_MAX),
    )
    return Report(name="gossip", figures=figures, bars=bars, table=_table(found))


def _table(found: list[Travel]) -> Table:
    """One line for each node that listened, slowest first."""
    of_node: dict[int, list[float]] = {}
    for travel in found:
        if travel.took_ms is not None:
            of_node.setdefault(travel.node, []).append(travel.took_ms)
    slowest_first = sorted(of_node, key=lambda node: -max(of_node[node]))
    return Table(
        header=("NODE", "HEARD", "P50 ms", "P95 ms", "P99 ms", "MAX ms"),
        rows=tuple(
            (
                str(node),
                str(len(of_node[node])),
                *(f"{percentile(of_node[node], share):.0f}" for share in (0.5, 0.95, 0.99, 1.0)),
            )
            for node in slowest_first
        ),
    )
