"""Everything through which a node touches the world outside it, and what it starts from."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import trio

from ledger.ledger import Ledger
from p2pnode.cabinet import Cabinet
from p2pnode.clock import WallClock
from p2pnode.config import Config
from p2pnode.execution.engine import Engine
from p2pnode.execution.gpu import GpuProbe
from p2pnode.execution.materials import Materials
from p2pnode.gpus import HostFacts
from p2pnode.jobs.baggage import Baggage
from p2pnode.jobs.hybrid import Primary
from p2pnode.matching.provider import Posting
from p2pnode.network.transport import Directory, LocalDiscovery, Transport
from protocol.genesis import Genesis, net_of
from protocol.units import Millis, NetId, PeerId


class Service(Protocol):
    """A task of a port: runs until cancelled, started once the port can be used."""

    async def __call__(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Raises LocalFault if the port cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Real ones make a process of `up`, others make a test or a world."""

    transport: Transport
    directory: Directory
    probe: GpuProbe
    host: HostFacts
    engine: Engine
    materials: Materials
    baggage: Baggage
    cabinet: Cabinet
    ledger: Ledger
    clock: WallClock
    rng: random.Random
    random_bytes: Callable[[int], bytes]
    local: LocalDiscovery | None = None
    """None where no local network is asked."""
    address_of: Callable[[PeerId], str | None] = lambda _peer: None
    """The IP address from which a peer is connected; None where there is none to see."""
    bytes_moved: Callable[[], int] = lambda: 0
    """Sent and received so far; 0 where nobody counts."""
    catch_up: Callable[[Millis], None] = lambda _told: None
    """catch_up(told): the clock never tells an instant before this one; some never run back."""
    primary: Primary | None = None
    """Where jobs of ours run besides the market, if anywhere."""
    services: tuple[Service, ...] = ()
    """What some ports need running beneath the node, an engine's watcher for example."""


def advert_topics(genesis: Genesis) -> tuple[str, ...]:
    """The names of the topics over which a network's adverts are spread. SPEC.md 6.2."""
    return tuple(topic_name(net_of(genesis), i) for i in range(genesis.bounds.advert_topics))


def topic_name(net: NetId, index: int) -> str:
    """The name of one advert topic. SPEC.md 6.2."""
    return f"p2pnode/{net.hex()[:32]}/advert/{index}"


def is_light(config: Config) -> bool:
    """Whether the node stays out of the gossip meshes and serves no directory."""
    return config.network.gossip == "off" or (
        config.network.gossip == "auto" and config.roles == ("renter",)
    )


def own_region(config: Config) -> str | None:
    """The country that owners are told; None where the user names none."""
    return None if config.network.region == "ZZ" else config.network.region


def posting_of(config: Config, genesis: Genesis, ports: Ports) -> Posting:
    """What an owner has chosen, as its first posting."""
    pricing = config.pricing
    return Posting(
        ask=None if pricing.ask is None else pricing.ask.micros,
        money=genesis.money if pricing.ask is None else pricing.ask.code,
        tiers=pricing.tiers,
        region=config.network.region,
        isolation=ports.engine.isolation,
        lease_ms_min=pricing.min_lease,
        lease_ms_max=pricing.max_lease,
        period_ms=pricing.period,
        cpus=ports.host.cpus,
        memory_mib=ports.host.memory_mib,
        disk_mib=ports.host.disk_mib,
        heartbeat_s=config.network.heartbeat / 1_000,
        remedy_ppm=pricing.gold_remedy,
        down_kbit_s=config.network.down,
        up_kbit_s=config.network.up,
    )
