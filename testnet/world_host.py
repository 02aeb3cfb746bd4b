"""One host of a world: what survives when its node dies, and the lives of that node."""

import logging
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import trio
from nacl.public import PrivateKey

from ledger.guard import MemoryGuard
from ledger.store import MemoryStore
from p2pnode.cabinet import MemoryCabinet
from p2pnode.config import Config, Network, Pricing, Renting
from p2pnode.execution.engine import Run, RunId
from p2pnode.execution.fake_engine import FakeEngine, Script
from p2pnode.execution.gpu import SimulatedProbe
from p2pnode.execution.materials import MemoryMaterials
from p2pnode.gpus import HostFacts, SimulatedGpus
from p2pnode.identity import Identity
from p2pnode.jobs.baggage import MemoryBaggage
from p2pnode.network.memory_directory import MemoryDirectory, MemoryRegistry
from p2pnode.network.memory_transport import MemoryHub, MemoryTransport
from p2pnode.node import Node
from p2pnode.own_feed import open_own_feed
from p2pnode.ports import Ports
from p2pnode.quantities import Money
from protocol.certificate import Certificate, sign_certificate
from protocol.genesis import Genesis, net_of
from protocol.signing import Signer, peer_id_of
from protocol.units import Mebibytes, Micros, Millis, MillisSpan, NetId, PeerId, PublicKey
from testnet.world_dice import dice_of
from testnet.world_fuse import Fuse, Killed, Life
from testnet.world_ports import FusedCabinet, FusedGuard, FusedStore, FusedTransport, Road
from testnet.world_trace import who
from testnet.world_weather import Weather
from testnet.world_witness import Witness

log = logging.getLogger(__name__)

EPOCH: Final = Millis(1_800_000_000_000)
_YEAR_MS: Final = 365 * 86_400_000


class VirtualClock:
    """See WallClock; follows trio's clock."""

    def now(self) -> Millis:
        return Millis(EPOCH + round(trio.current_time() * 1_000))


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPlan:
    """What a host is, before anything runs."""

    name: str
    is_owner: bool
    is_light: bool
    ask: Micros
    gpus: int
    period_ms: MillisSpan
    lost_after_ms: MillisSpan

    @property
    def address(self) -> str:
        """Where it is found in the hub."""
        return f"/memory/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What all hosts of a world share."""

    seed: str
    genesis: Genesis
    hub: MemoryHub
    registry: MemoryRegistry
    weather: Weather
    fuse: Fuse
    script: Callable[[Run], Script]
    output: Callable[[RunId], bytes | None]
    down_s: Callable[[], float]
    """How long a node that died stays down."""
    healed: trio.Event
    """From now on nothing stays down."""


class Host:
    """Owns one node through all its lives."""

    def __init__(self, plan: HostPlan, around: Surroundings) -> None:
        self.plan: Final = plan
        self.node: Node | None = None
        """While it is up."""
        self.lives = 0
        self.store: Final = MemoryStore()
        self.cabinet: Final = MemoryCabinet()
        self.baggage: Final = MemoryBaggage()
        self._guard = MemoryGuard()
        self._around = around
        self._net = net_of(around.genesis)
        self.identity: Final = identity_of(dice_of(f"{around.seed}/{plan.name}"), self._net)
        self.witness: Final = Witness(
            self.identity.feed.public, self._net, self.store, self.cabinet
        )
        self._engine = FakeEngine(around.script, clock=VirtualClock())
        self._materials = MemoryMaterials(_Outputs(around.output))
        self._life: Life | None = None
        self._is_begun = False
        self._scope = trio.CancelScope()

    @property
    def peer(self) -> PeerId:
        """Its name in the network."""
        return self.identity.certificate.peer_id

    async def run(self, bootstrap: dict[PeerId, tuple[str, ...]]) -> None:
        """Live, again after each death, until cancelled."""
        who.set(self.plan.name)
        while True:
            await self._live(bootstrap)
            log.info("node down")
            with trio.move_on_after(self._around.down_s()):
                await self._around.healed.wait()
            await trio.lowlevel.checkpoint()

    def kill(self) -> None:
        """The node is gone at once, without a word."""
        if self._life is not None:
            self._life.die()

    def stop(self) -> None:
        """The node ends as its owner would end it."""
        self._scope.cancel()

    async def _live(self, bootstrap: dict[PeerId, tuple[str, ...]]) -> None:
        """From start to death."""
        self.lives += 1
        self._scope = scope = trio.CancelScope()
        self._life = Life(self._around.fuse, on_death=scope.cancel)
        try:
            with scope:
                await self._serve(self._build(self._life, bootstrap))
        except* Killed:
            pass
        finally:
            self.node = None

    async def _serve(self, node: Node) -> None:
        self._is_begun = True
        async with trio.open_nursery() as nursery:
            await nursery.start(node.run)
            self.node = node
            log.info("node lives", extra={"life": self.lives})

    def _build(self, life: Life, bootstrap: dict[PeerId, tuple[str, ...]]) -> Node:
        around, plan = self._around, self.plan
        dice = dice_of(f"{around.seed}/{plan.name}/{self.lives}")
        clock = VirtualClock()
        road = Road(travel=around.weather.travel, witness=self.witness.see)
        transport = FusedTransport(MemoryTransport(around.hub, self.peer, plan.address), life, road)
        cabinet = FusedCabinet(self.cabinet, life)
        cards = SimulatedGpus(model="RTX 4090", vram=Mebibytes(24_564), count=plan.gpus)
        return Node(
            config=_config(plan),
            genesis=around.genesis,
            identity=self.identity,
            bootstrap=bootstrap,
            incarnation=self.lives,
            ports=Ports(
                transport=transport,
                directory=MemoryDirectory(around.registry, transport, self.peer),
                probe=SimulatedProbe(self.identity.feed.public, (cards,) if plan.is_owner else ()),
                host=HostFacts(cpus=8, memory_mib=32_768, disk_mib=100_000),
                engine=self._engine,
                materials=self._materials,
                baggage=self.baggage,
                cabinet=cabinet,
                ledger=open_own_feed(
                    self.identity,
                    net=self._net,
                    store=FusedStore(self.store, life),
                    guard=FusedGuard(self._guard, life),
                    cabinet=cabinet,
                    incarnation=self.lives,
                    is_new=not self._is_begun,
                    now=clock.now(),
                    random_bytes=dice.randbytes,
                ),
                clock=clock,
                rng=dice,
                random_bytes=dice.randbytes,
            ),
        )


def identity_of(dice: random.Random, net: NetId) -> Identity:
    """Keys by dice, as no node of people may have them."""
    root, feed, next_feed = (Signer(dice.randbytes(32)) for _ in range(3))
    peer_seed, secret = dice.randbytes(32), dice.randbytes(32)
    peer = Signer(peer_seed)
    certificate = Certificate(
        net=net,
        root=root.public,
        feed=feed.public,
        peer_id=peer_id_of(peer.public),
        x25519=PublicKey(bytes(PrivateKey(secret).public_key)),
        not_before_ms=Millis(EPOCH - _YEAR_MS),
        not_after_ms=Millis(EPOCH + _YEAR_MS),
        n=1,
    )
    return Identity(
        root=root,
        feed=feed,
        peer_seed=peer_seed,
        x25519_secret=secret,
        next_feed=next_feed.public,
        certificate=certificate,
        certificate_raw=sign_certificate(certificate, root=root, feed=feed, peer=peer),
    )


def _config(plan: HostPlan) -> Config:
    return Config(
        name=plan.name,
        roles=("owner", "renter") if plan.is_owner else ("renter",),
        network=Network(region="DE", gossip="auto" if plan.is_light else "on"),
        pricing=Pricing(
            ask=Money(plan.ask, "TEST") if plan.is_owner else None, period=plan.period_ms
        ),
        renting=Renting(lost_after=plan.lost_after_ms),
    )


class _Outputs(Mapping[RunId, bytes]):
    """What runs leave behind, by a function of their ids."""

    def __init__(self, draw: Callable[[RunId], bytes | None]) -> None:
        self._draw = draw

    def __getitem__(self, run: RunId) -> bytes:
        output = self._draw(run)
        if output is None:
            raise KeyError(run)
        return output

    def __iter__(self) -> Iterator[RunId]:
        return iter(())

    def __len__(self) -> int:
        return 0
