"""Whole nodes in memory on virtual time, for tests: real code, a hub for a network."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import trio

from ledger.guard import Guard, MemoryGuard
from ledger.ledger import Ledger
from ledger.store import MemoryStore, Store
from p2pnode.cabinet import Cabinet, MemoryCabinet
from p2pnode.config import Config, Network, Pricing
from p2pnode.execution.engine import Run, RunId
from p2pnode.execution.fake_engine import FakeEngine, Script
from p2pnode.execution.gpu import SimulatedProbe
from p2pnode.execution.materials import Materials, MemoryMaterials
from p2pnode.gpus import HostFacts, SimulatedGpus
from p2pnode.home import find_home, make_folders
from p2pnode.identity import Identity, create_identity, load_identity
from p2pnode.jobs.baggage import Baggage, MemoryBaggage
from p2pnode.jobs.jobfile import ENDED, JobFile
from p2pnode.network.memory_directory import MemoryDirectory, MemoryRegistry
from p2pnode.network.memory_transport import MemoryHub, MemoryTransport
from p2pnode.node import Node
from p2pnode.own_feed import open_own_feed
from p2pnode.ports import Ports
from p2pnode.quantities import Money
from protocol.genesis import Bounds, Genesis, net_of
from protocol.units import Mebibytes, Micros, Millis, MillisSpan, PeerId

GENESIS = Genesis(name="memory", kind="test", nonce=bytes(16), bounds=Bounds(), money="TEST")
EPOCH = Millis(1_800_000_000_000)
LISTED_S = 5
"""By then every owner is in the directory, where light renters look."""


class VirtualClock:
    """See WallClock; follows trio's clock, so a test steers both."""

    def now(self) -> Millis:
        return Millis(EPOCH + round(trio.current_time() * 1_000))


@dataclass
class Started:
    """A node, and how to end it."""

    node: Node
    scope: trio.CancelScope
    ended: trio.Event

    @property
    def peer(self) -> PeerId:
        return self.node.identity.certificate.peer_id

    def asks(self) -> list[int]:
        """The silver asks that this node sees."""
        from protocol.advert import ask_for

        offers = self.node.book.open_offers(self.node.ports.clock.now())
        return sorted(ask_for(offer.advert, "silver") or 0 for offer in offers)


async def stop(started: Started) -> None:
    """It has ended in order on return."""
    started.scope.cancel()
    await started.ended.wait()


async def ended(started: Started, job: str) -> JobFile:
    """The job's file when the job is over."""
    with trio.fail_after(600):
        while True:
            driver = started.node.jobs.driver(job)
            if driver.file.state in ENDED:
                return driver.file
            await driver.changed.wait()


@dataclass(frozen=True)
class Kept:
    """What is on a node's disk."""

    store: Store
    guard: Guard
    cabinet: Cabinet
    is_new: bool


def _five(_run: Run) -> Script:
    return Script(lasts_ms=MillisSpan(5_000))


class Party:
    """A network in memory that grows node by node; the first is everybody's bootstrap."""

    def __init__(
        self, tmp_path: Path, nursery: trio.Nursery, hub: MemoryHub, *, genesis: Genesis = GENESIS
    ) -> None:
        self._genesis = genesis
        self._tmp_path = tmp_path
        self._nursery = nursery
        self._hub = hub
        self._registry = MemoryRegistry()
        self._bootstrap: dict[PeerId, tuple[str, ...]] = {}
        self._count = 0
        self.told: list[Millis] = []
        """What the nodes' clocks were told not to fall behind, by any node."""

    def build(
        self,
        *,
        ask: int | None,
        gossip: str = "on",
        incarnation: int | None = None,
        script: Callable[[Run], Script] = _five,
        outputs: dict[RunId, bytes] | None = None,
        checkpoints: dict[RunId, tuple[Millis, bytes]] | None = None,
        store: Store | None = None,
        guard: Guard | None = None,
        wrap: Callable[[Ports, Identity], Ports] = lambda ports, _identity: ports,
        choose: Callable[[Config], Config] = lambda config: config,
        period: int = 2_000,
        gpu: SimulatedGpus | None = None,
    ) -> Node:
        index = self._count
        self._count += 1
        config = Config(
            name=f"n{index}",
            roles=("renter",) if ask is None else ("owner", "renter"),
            network=Network(region="DE", gossip=gossip),  # type: ignore[arg-type]
            pricing=Pricing(
                ask=None if ask is None else Money(Micros(ask), self._genesis.money),
                period=MillisSpan(period),
            ),
        )
        kept = Kept(
            store=MemoryStore() if store is None else store,
            guard=MemoryGuard() if guard is None else guard,
            cabinet=MemoryCabinet(),
            is_new=True,
        )
        return self._node(
            index,
            choose(config),
            kept,
            incarnation=index if incarnation is None else incarnation,
            script=script,
            materials=MemoryMaterials({} if outputs is None else outputs, checkpoints),
            wrap=wrap,
            gpu=gpu,
        )

    def revive(
        self,
        old: Node,
        *,
        store: Store | None = None,
        guard: Guard | None = None,
        wrap: Callable[[Ports, Identity], Ports] = lambda ports, _identity: ports,
    ) -> Node:
        """The next life of a node that has ended, from what is left of its disk."""
        assert isinstance(old.ports.engine, FakeEngine)
        kept = Kept(
            store=old.ports.ledger._store if store is None else store,
            guard=old.ports.ledger._author._guard if guard is None else guard,
            cabinet=old.ports.cabinet,
            is_new=False,
        )
        index = int(old.config.name[1:])
        incarnation = old.provider._incarnation + 1_000
        return self._node(
            index,
            old.config,
            kept,
            incarnation=incarnation,
            script=_five,
            materials=old.ports.materials,
            baggage=old.ports.baggage,
            engine=old.ports.engine,
            wrap=wrap,
        )

    def _node(
        self,
        index: int,
        config: Config,
        kept: "Kept",
        *,
        incarnation: int,
        script: Callable[[Run], Script],
        materials: Materials,
        baggage: Baggage | None = None,
        wrap: Callable[[Ports, Identity], Ports] = lambda ports, _identity: ports,
        engine: FakeEngine | None = None,
        gpu: SimulatedGpus | None = None,
    ) -> Node:
        clock = VirtualClock()
        home = find_home(self._tmp_path / f"n{index}")
        make_folders(home)
        dice = random.Random(index if kept.is_new else f"{index} again")
        create_identity(home, net_of(self._genesis), EPOCH, dice.randbytes)
        identity = load_identity(home, net_of(self._genesis), EPOCH)
        gpus = (gpu or _gpu(),) if "owner" in config.roles else ()
        address = f"/memory/{index}"
        transport = MemoryTransport(self._hub, identity.certificate.peer_id, address)
        node = Node(
            config=config,
            genesis=self._genesis,
            identity=identity,
            bootstrap=self._bootstrap,
            incarnation=incarnation,
            ports=wrap(
                Ports(
                    transport=transport,
                    directory=MemoryDirectory(
                        self._registry, transport, identity.certificate.peer_id
                    ),
                    probe=SimulatedProbe(identity.feed.public, gpus),
                    host=HostFacts(cpus=8, memory_mib=32_768, disk_mib=100_000),
                    engine=FakeEngine(script, clock=clock) if engine is None else engine,
                    materials=materials,
                    baggage=MemoryBaggage() if baggage is None else baggage,
                    cabinet=kept.cabinet,
                    ledger=self._ledger(identity, kept, clock, dice, incarnation=incarnation),
                    clock=clock,
                    catch_up=self.told.append,
                    rng=dice,
                    random_bytes=dice.randbytes,
                ),
                identity,
            ),
        )
        if not self._bootstrap:
            self._bootstrap = {identity.certificate.peer_id: (address,)}
        return node

    def _ledger(
        self,
        identity: Identity,
        kept: "Kept",
        clock: VirtualClock,
        dice: random.Random,
        *,
        incarnation: int,
    ) -> Ledger:
        return open_own_feed(
            identity,
            net=net_of(self._genesis),
            store=kept.store,
            guard=kept.guard,
            cabinet=kept.cabinet,
            incarnation=incarnation,
            is_new=kept.is_new,
            now=clock.now(),
            random_bytes=dice.randbytes,
        )

    async def start(self, node: Node) -> Started:
        scope = trio.CancelScope()
        ended = trio.Event()

        async def run(*, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
            with scope:
                await node.run(task_status=task_status)
            ended.set()

        await self._nursery.start(run)
        return Started(node=node, scope=scope, ended=ended)

    async def add(self, *, ask: int | None, gossip: str = "on") -> Started:
        return await self.start(self.build(ask=ask, gossip=gossip))


def _gpu() -> SimulatedGpus:
    return SimulatedGpus(model="RTX 4090", vram=Mebibytes(24_564), count=1)
