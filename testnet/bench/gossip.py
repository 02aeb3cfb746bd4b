"""`bench gossip`: owners change prices and withdraw; who knows when? Owns its network."""

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
from testnet.bench.arrivals import Arrivals, Change, Travel, travels
from testnet.bench.cpu import cpu_use
from testnet.bench.meshes import MeshWatch
from testnet.bench.report import Bar, Figures, Report, Table, at_least, at_most, machine, percentile
from testnet.offers import wait_for_offers
from testnet.plan import GpuKind, plan_network
from testnet.processes import start
from testnet.state import Running, RunningNode, stop

HEARTBEAT: Final = "30s"
SETTLE_S: Final = 5
"""After the last node knows every offer: what joining costs is over by then."""
PATIENCE_S: Final = 13
"""After the last change, before the books are read: a second more than the slowest may take."""
PAUSE_S: Final = PATIENCE_S
"""An owner that withdrew sells again then, so that the slowest withdrawal is still seen as one."""
SAID_S: Final = 2
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
    withdrawals: float
    """The share of the changes in which an owner withdraws its offer."""
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
    offer_of = await _offers(running)
    watch = MeshWatch(running)
    pids = [node.pid for node in running.nodes]
    before = cpu_use(pids, trio.current_time())
    async with trio.open_nursery() as nursery:
        await nursery.start(watch.run)
        changes = await _Owners(running, wish).change()
        await trio.sleep(PATIENCE_S)
        nursery.cancel_scope.cancel()
    await watch.look()
    cores = cpu_use(pids, trio.current_time()).cores_since(before)
    books = {node.index: await _arrivals(node.socket) for node in running.nodes}
    missing = wish.nodes**2 - sum([await _count(node.socket) for node in running.nodes])
    return _report(travels(changes, books, offer_of), watch, wish, cores=cores, missing=missing)


class _Owners:
    """Tells owners at random to ask another price, or to pause; those go on after a while."""

    def __init__(self, running: Running, wish: GossipWish) -> None:
        self._wish = wish
        self._rng = random.Random(wish.seed)  # noqa: S311 - which owner, no secret
        self._clock = SystemClock()
        self._selling = list(running.nodes)
        self._resumed = trio.Event()
        self.changes: list[Change] = []

    async def change(self) -> list[Change]:
        """What was posted, at uneven distances that are right on average; all sell again."""
        due_s = trio.current_time()
        async with trio.open_nursery() as nursery:
            for number in range(self._wish.changes):
                due_s += self._rng.uniform(0.5, 1.5) / self._wish.per_s
                await trio.sleep_until(due_s)
                is_withdrawal = self._rng.random() < self._wish.withdrawals
                while not self._selling:
                    self._resumed = trio.Event()
                    await self._resumed.wait()
                node = self._rng.choice(self._selling)
                if is_withdrawal:
                    self._selling.remove(node)
                    await self._post(node, "/v1/pause", {})
                    nursery.start_soon(self._resume, node)
                else:
                    price = PRICE_BASE + number
                    order = {"micro_per_gpu_hour": price, "money": "TEST"}
                    await self._post(node, "/v1/ask", order, price)
        return self.changes

    async def _resume(self, node: RunningNode) -> None:
        await trio.sleep(PAUSE_S)
        await trio.to_thread.run_sync(partial(post, Path(node.socket), "/v1/resume", {}))
        # Said in one advert with the next change, it would not be seen by itself.
        await trio.sleep(SAID_S)
        self._selling.append(node)
        self._resumed.set()

    async def _post(
        self, node: RunningNode, path: str, order: dict[str, Any], price: int | None = None
    ) -> None:
        now = self._clock.now()
        self.changes.append(Change(owner=node.index, ask_micro=price, posted_ms=now))
        await trio.to_thread.run_sync(partial(post, Path(node.socket), path, order))


async def _offers(running: Running) -> dict[int, str]:
    """The key of each owner's offer, as the first node has them all."""
    document = await _get(running.nodes[0].socket, "/v1/offers")
    keys = {item["peer"]: item["key"] for item in document["items"]}
    return {node.index: keys[node.peer] for node in running.nodes}


async def _arrivals(socket: str) -> Arrivals:
    items: Arrivals = (await _get(socket, "/v1/offers/arrivals"))["items"]
    return items


async def _count(socket: str) -> int:
    """Of the offers that are open in a node's book."""
    count: int = (await _get(socket, "/v1/status"))["offers"]
    return count


async def _get(socket: str, path: str) -> dict[str, Any]:
    return await trio.to_thread.run_sync(partial(get, Path(socket), path))


def _report(
    found: list[Travel], watch: MeshWatch, wish: GossipWish, *, cores: Figures, missing: int
) -> Report:
    kinds = {
        "price": [travel for travel in found if not travel.change.is_withdrawal],
        "withdrawal": [travel for travel in found if travel.change.is_withdrawal],
    }
    counted = {kind: of for kind, of in kinds.items() if of}
    figures = {
        **{
            f"{kind}_{name}": value
            for kind, of in counted.items()
            for name, value in _figures(of).items()
        },
        "pairs": len(found),
        "pairs_lost": sum(travel.took_ms is None for travel in found),
        "nodes": wish.nodes,
        "changes": wish.changes,
        "withdrawals": len(counted.get("withdrawal", ())) // max(1, wish.nodes - 1),
        "seed": wish.seed,
        "offers_missing_at_end": missing,
        "no_mesh_longest_s": round(watch.longest_s, 1),
        "mesh_smallest_at_end": watch.smallest,
        "offers_found_by_sync": watch.found_by_sync,
        **cores,
        **machine(),
    }
    bars = (
        *(bar for kind, of in counted.items() for bar in _bars(kind, of)),
        at_most("offers that are in no book again, times nodes", missing, 0),
        at_most("nodes without a mesh at the end", watch.without_mesh, 0),
        at_most("longest time without a mesh, s", watch.longest_s, NO_MESH_S_MAX),
    )
    return Report(name="gossip", figures=figures, bars=bars, table=_table(found))


def _took(of: list[Travel]) -> list[float]:
    return [travel.took_ms for travel in of if travel.took_ms is not None]


def _soon(of: list[Travel]) -> float:
    return sum(ms <= SOON_MS for ms in _took(of)) / len(of)


def _figures(of: list[Travel]) -> Figures:
    """Of one kind of change."""
    took = _took(of)
    return {
        **{f"p{share}_ms": percentile(took, share / 100) for share in (50, 95, 99)},
        "max_ms": max(took, default=math.nan),
        "pairs": len(of),
        "pairs_lost": len(of) - len(took),
        "coalesced": sum(travel.is_superseded for travel in of),
        "within_2s": round(_soon(of), 5),
    }


def _bars(kind: str, of: list[Travel]) -> tuple[Bar, ...]:
    took = _took(of)
    return (
        at_least(f"{kind}: share of pairs within 2 s", _soon(of), SOON_SHARE),
        at_most(f"{kind}: slowest pair, ms", max(took, default=math.nan), LATE_MS),
        at_most(f"{kind}: pairs that never arrived", len(of) - len(took), 0),
    )


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
