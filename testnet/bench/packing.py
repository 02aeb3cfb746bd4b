"""`bench packing`: how full a cluster gets before nothing fits, on a trace of real requests.

The openb trace of Alibaba: 1,213 GPU hosts and requests drawn from its pods until they want 130 %
of all GPUs; nothing ends. Two references that see everything: best fit, and fragmentation gradient
descent. Beside them the product's auction: each owner adds its own surcharge, renters choose by
price from news that is a hundred placements old, by the product's shortlist, and ask before they
take.
"""

import csv
import math
import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from statistics import mean
from typing import Final

import numpy as np
from numpy.typing import NDArray

from p2pnode.matching.spread import LEAST, PARTS, band_for, count_for
from p2pnode.matching.surcharge import WHOLE, Room, Shape, surcharge_ppm
from protocol.errors import LocalFault
from protocol.scoring import BAND_PPM, PPM
from testnet.bench.offers import ASK_SIGMA
from testnet.bench.report import Report, Table, at_least, at_most, machine

ARRIVALS: Final = 1.3
"""What is wanted, for each GPU that there is."""
USUAL: Final = 40
"""Kinds of request by which fragments are reckoned: the most frequent."""
STALE: Final = 100
"""Placements before news is heard."""
POINTS_OVER_BEST_FIT: Final = 2.0
POINTS_FROM_CENTRAL: Final = 0.5
ROUNDS: Final = 6
CHECKED: Final = 200
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingWish:
    """Which trace, and how often."""

    folder: Path
    seeds: int


@dataclass(frozen=True, slots=True)
class Host:
    """What a host has, or has left."""

    room: Room
    model: str


@dataclass(frozen=True, slots=True)
class Trace:
    """Hosts, kinds of requests, and how often each kind comes."""

    hosts: list[Host]
    kinds: list[tuple[Shape, frozenset[str]]]
    """With the models that it may run on; empty for any."""

    @property
    def gpus_milli(self) -> int:
        """Of all hosts."""
        return sum(sum(host.room.gpus) for host in self.hosts)


def run(wish: PackingWish, say: Say) -> Report:
    """All policies, each with all seeds."""
    trace = read_trace(wish.folder)
    found: dict[str, list[float]] = {}
    wrong = 0
    for seed in range(1, wish.seeds + 1):
        arrivals = arrivals_of(trace, seed)
        for name in POLICIES:
            say(f"{len(arrivals)} requests, seed {seed}, {name}")
            cluster = Cluster(trace, seed)
            POLICIES[name](cluster, arrivals)
            found.setdefault(name, []).append(100 * cluster.used / trace.gpus_milli)
            wrong += cluster.unlike_the_product()
    share = {name: mean(values) for name, values in found.items()}
    ours = share["auction"]
    return Report(
        name="packing",
        figures={
            **machine(),
            **{f"allocated_percent_{name.replace(' ', '_')}": share[name] for name in share},
        },
        bars=(
            at_most("surcharges that differ from the product's", wrong, 0),
            at_least("auction over best fit, points", ours - share["best fit"],
                     POINTS_OVER_BEST_FIT),
            at_most("auction behind central gradient descent, points", share["central"] - ours,
                    POINTS_FROM_CENTRAL),
        ),
        table=Table(
            header=("POLICY", "ALLOCATED %"),
            rows=tuple((name, f"{value:.2f}") for name, value in share.items()),
        ),
    )  # fmt: skip


def read_trace(folder: Path) -> Trace:
    """Raises LocalFault if the trace is not there."""
    nodes, pods = folder / "openb_node_list_gpu_node.csv", folder / "openb_pod_list_default.csv"
    if not nodes.is_file() or not pods.is_file():
        raise LocalFault(
            f"there is no openb trace in {folder}.", "--trace DIR, with its two CSV files"
        )
    with nodes.open() as file:
        hosts = [
            Host(
                Room(
                    gpus=(WHOLE,) * int(row["gpu"]),
                    cpus_milli=int(row["cpu_milli"]),
                    memory_mib=int(row["memory_mib"]),
                ),
                row["model"],
            )
            for row in csv.DictReader(file)
        ]
    with pods.open() as file:
        counts = Counter(
            (int(row["num_gpu"]), int(row["gpu_milli"]), int(row["cpu_milli"]),
             int(row["memory_mib"]), row["gpu_spec"])
            for row in csv.DictReader(file)
        )  # fmt: skip
    kinds = [
        (
            Shape(gpus=gpus, milli=milli if gpus else WHOLE, cpus_milli=cpus, memory_mib=memory,
                  weight=weight),
            frozenset(spec.split("|")) - {""},
        )
        for (gpus, milli, cpus, memory, spec), weight in counts.most_common()
    ]  # fmt: skip
    return Trace(hosts, kinds)


def arrivals_of(trace: Trace, seed: int) -> list[int]:
    """Kinds of requests as they come, until they want ARRIVALS times what there is."""
    dice = random.Random(seed)  # noqa: S311  dice are only dice
    weights = [shape.weight for shape, _ in trace.kinds]
    arrivals: list[int] = []
    wanted = 0
    while wanted < ARRIVALS * trace.gpus_milli:
        [kind] = dice.choices(range(len(weights)), weights)
        arrivals.append(kind)
        wanted += trace.kinds[kind][0].demand
    return arrivals


@dataclass(frozen=True, slots=True)
class Row:
    """One host in one state: of each kind whether it fits, what it breaks up, what is left where.

    `made` is the change of the fragment, times all weights, where it is least.
    """

    fits: Flags
    made: Ints
    left: Ints
    """Thousandths of each GPU, for each kind."""


class Cluster:
    """The state of all hosts, and the rows of their states. One policy uses it."""

    def __init__(self, trace: Trace, seed: int) -> None:
        self.trace = trace
        self.dice = random.Random(seed)  # noqa: S311  dice are only dice
        self.used = 0
        shapes = [shape for shape, _ in trace.kinds]
        self.usual = [shape for shape in shapes if shape.gpus][:USUAL]
        self._kinds, self._wanted = _columns_of(shapes), _columns_of(self.usual)
        self.demand: Ints = self._kinds[0] * self._kinds[1]
        self.weights = int(self._wanted[4].sum())
        most = max(len(host.room.gpus) for host in trace.hosts)
        self.free: Ints = np.array(
            [host.room.gpus + (0,) * (most - len(host.room.gpus)) for host in trace.hosts]
        )
        self.cpus: Ints = np.array([host.room.cpus_milli for host in trace.hosts])
        self.memory: Ints = np.array([host.room.memory_mib for host in trace.hosts])
        self.allowed: Flags = np.array(
            [[not spec or host.model in spec for _, spec in trace.kinds] for host in trace.hosts]
        )
        self._known: dict[tuple[object, ...], Row] = {}

    def row(self, host: int) -> Row:
        """Of the host as it is now."""
        free = np.sort(self.free[host])[::-1]
        self.free[host] = free  # which GPU is which says nothing here
        key = (free.tobytes(), int(self.cpus[host]), int(self.memory[host]))
        if key not in self._known:
            self._known[key] = self._reckoned(free, *key[1:])
        row = self._known[key]
        return Row(row.fits & self.allowed[host], row.made, row.left)

    def place(self, host: int, kind: int, left: Ints) -> None:
        """The host takes the request, and this is left of its GPUs."""
        assert (left >= 0).all()
        self.free[host] = left
        self.cpus[host] -= self._kinds[2][kind]
        self.memory[host] -= self._kinds[3][kind]
        self.used += int(self.demand[kind])

    def unlike_the_product(self) -> int:
        """How many surcharges of drawn hosts and kinds are not those of the product's function."""
        wrong = 0
        for _ in range(CHECKED):
            host, kind = self.dice.randrange(len(self.free)), self.dice.randrange(len(self.demand))
            shape, _ = self.trace.kinds[kind]
            row = self.row(host)
            room = Room(
                gpus=tuple(self.free[host].tolist()),
                cpus_milli=int(self.cpus[host]),
                memory_mib=int(self.memory[host]),
            )
            ours = None
            if row.fits[kind] or not self.allowed[host, kind]:
                made, demand = max(0, int(row.made[kind])), self.weights * int(self.demand[kind])
                ours = made * PPM // demand if demand else 0
            theirs = surcharge_ppm(room, shape, self.usual)
            wrong += bool(self.allowed[host, kind]) and ours != theirs
        return wrong

    def _reckoned(self, free: Ints, cpus: int, memory: int) -> Row:
        """All kinds at once; of a part of a GPU all GPUs are tried."""
        count, milli, need_cpus, need_memory, _ = self._kinds
        room = (free >= milli[:, None]).sum(1) >= count
        fits = room & (cpus >= need_cpus) & (memory >= need_memory)
        ways = []
        for at in range(len(free)):
            left = np.repeat(free[None, :], len(milli), axis=0)
            is_part = milli < WHOLE
            left[is_part, at] -= milli[is_part]
            ways.append(left)
        # Whole GPUs are the first: the row is in falling order.
        whole = np.arange(len(free))[None, :] < count[:, None]
        for left in ways:
            left[(milli == WHOLE)[:, None] & whole] -= WHOLE
        states = np.stack(ways)
        bad: Flags = np.asarray((states < 0).any(2))
        tried = np.where(bad[:, :, None], 0, states)
        rest_cpus = np.broadcast_to(cpus - need_cpus, bad.shape)
        rest_memory = np.broadcast_to(memory - need_memory, bad.shape)
        after = self._fragment(tried, rest_cpus, rest_memory)
        after[bad] = np.iinfo(np.int64).max
        best = after.argmin(0)
        kinds = np.arange(len(milli))
        before = self._fragment(free[None, :], np.array([cpus]), np.array([memory]))[0]
        fits &= ~bad[best, kinds]
        made = np.where(fits, after[best, kinds] - before, 0)
        return Row(fits, made, states[best, kinds])

    def _fragment(self, free: Ints, cpus: Ints, memory: Ints) -> Ints:
        """See p2pnode.matching.surcharge.fragment; of many states at once."""
        total = np.zeros(free.shape[:-1], np.int64)
        for count, milli, need_cpus, need_memory, weight in zip(*self._wanted, strict=True):
            large = free >= milli
            fits = (large.sum(-1) >= count) & (cpus >= need_cpus) & (memory >= need_memory)
            small = np.where(large & fits[..., None], 0, free)
            total += weight * small.sum(-1)
        return total


def _columns_of(shapes: list[Shape]) -> tuple[Ints, ...]:
    rows = [(s.gpus, s.milli, s.cpus_milli, s.memory_mib, s.weight) for s in shapes]
    return tuple(np.array(column, np.int64) for column in zip(*rows, strict=True))


def best_fit(cluster: Cluster, arrivals: list[int]) -> None:
    """The host with the least left of cores, memory and GPUs together; there the tightest GPU."""
    most_cpus, most_memory = cluster.cpus.max(), cluster.memory.max()
    most_gpus = cluster.free.sum(1).max()
    rest = cluster.cpus / most_cpus + cluster.memory / most_memory
    rest = rest + cluster.free.sum(1) / most_gpus
    fits = np.stack([cluster.row(host).fits for host in range(len(cluster.free))])
    for kind in arrivals:
        there = fits[:, kind].nonzero()[0]
        if not len(there):
            continue
        host = int(there[rest[there].argmin()])
        shape, _ = cluster.trace.kinds[kind]
        left = cluster.free[host].copy()
        enough = (left >= shape.milli).nonzero()[0]
        tight = enough[left[enough].argsort(kind="stable")][: shape.gpus]
        left[tight] -= shape.milli
        cluster.place(host, kind, left)
        fits[host] = cluster.row(host).fits
        rest[host] = (
            cluster.cpus[host] / most_cpus
            + cluster.memory[host] / most_memory
            + cluster.free[host].sum() / most_gpus
        )


def central(cluster: Cluster, arrivals: list[int]) -> None:
    """Fragmentation gradient descent: of all hosts as they are that whose fragment grows least."""
    rows = [cluster.row(host) for host in range(len(cluster.free))]
    fits = np.stack([row.fits for row in rows])
    made = np.stack([row.made for row in rows])
    for kind in arrivals:
        there = fits[:, kind].nonzero()[0]
        if not len(there):
            continue
        host = int(there[made[there, kind].argmin()])
        cluster.place(host, kind, cluster.row(host).left[kind])
        row = cluster.row(host)
        fits[host], made[host] = row.fits, row.made


def auction(cluster: Cluster, arrivals: list[int]) -> None:
    """Owners add their surcharge; renters draw from a shortlist by old news, ask, and take."""
    hosts = len(cluster.free)
    asks = np.array([math.exp(cluster.dice.gauss(0, ASK_SIGMA)) for _ in range(hosts)])
    per_demand = np.maximum(1, cluster.weights * cluster.demand)

    def posted(host: int) -> tuple[Flags, Floats]:
        row = cluster.row(host)
        added = np.where(cluster.demand > 0, np.maximum(0, row.made) / per_demand, 0)
        return row.fits, asks[host] * (1 + added)

    rows = [posted(host) for host in range(hosts)]
    seen_fits, seen_price = np.stack([f for f, _ in rows]), np.stack([p for _, p in rows])
    fits, price = seen_fits.copy(), seen_price.copy()
    news: deque[tuple[int, Flags, Floats]] = deque()
    for kind in arrivals:
        host = _asked(cluster.dice, (seen_fits[:, kind], seen_price[:, kind]),
                      (fits[:, kind], price[:, kind]))  # fmt: skip
        if host is None:
            continue
        cluster.place(host, kind, cluster.row(host).left[kind])
        fits[host], price[host] = posted(host)
        news.append((host, fits[host].copy(), price[host].copy()))
        if len(news) > STALE:
            told, its_fits, its_price = news.popleft()
            seen_fits[told], seen_price[told] = its_fits, its_price


def _asked(
    dice: random.Random, seen: tuple[Flags, Floats], live: tuple[Flags, Floats]
) -> int | None:
    """The host that wins one request, by the product's numbers; None if nobody who is asked can."""
    most, band = count_for(STALE * PPM), band_for(STALE * PPM)
    left = seen[0].nonzero()[0]
    left = left[seen[1][left].argsort(kind="stable")]
    for _ in range(ROUNDS):
        if not len(left):
            return None
        dearest = seen[1][left[0]] * (1 + band / PPM)
        shortlist = [int(host) for n, host in enumerate(left[:most].tolist())
                     if n < LEAST or seen[1][host] <= dearest]  # fmt: skip
        asked = dice.sample(shortlist, min(len(shortlist), max(LEAST, len(shortlist) // PARTS)))
        bids = [host for host in asked if live[0][host]]
        if bids:
            best = min(live[1][host] for host in bids)
            near = [host for host in bids if live[1][host] <= best * (1 + BAND_PPM / PPM)]
            seed = dice.randbytes(16)
            return min(near, key=lambda host: sha256(seed + host.to_bytes(32, "big")).digest())
        left = left[~np.isin(left, asked)]
    return None


POLICIES: Final[dict[str, Callable[[Cluster, list[int]], None]]] = {
    "best fit": best_fit,
    "central": central,
    "auction": auction,
}
