"""Opens the node of a home with real ports: libp2p, LevelDB, engine, files, the host's clock."""

import os
import random
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import trio

from ledger.guard import Guard
from ledger.ledger import Ledger
from ledger.store import Store
from p2pnode.cabinet import FileCabinet
from p2pnode.clock import SystemClock
from p2pnode.config import Config, load_config
from p2pnode.execution.docker_engine import DockerEngine
from p2pnode.execution.docker_image import build_python_image
from p2pnode.execution.engine import Engine
from p2pnode.execution.file_materials import FileMaterials
from p2pnode.execution.gpu import GpuProbe, SimulatedProbe
from p2pnode.execution.nvml_probe import NvmlProbe
from p2pnode.execution.process_engine import ProcessEngine
from p2pnode.gpus import HostFacts, SimulatedGpus
from p2pnode.home import Home, next_incarnation
from p2pnode.identity import Identity, is_feed_new, load_identity, note_feed_begun
from p2pnode.jobs.baggage import FileBaggage
from p2pnode.jobs.hybrid import Primary
from p2pnode.jobs.primary_commands import CommandPrimary
from p2pnode.jobs.primary_template import load_template
from p2pnode.membership import bootstrap_in, genesis_of
from p2pnode.network.libp2p_adapter.host import SEEN_S
from p2pnode.network.libp2p_adapter.libp2p_transport import Libp2pTransport
from p2pnode.network.mdns import Mdns
from p2pnode.network.peer_text import bootstrap_of
from p2pnode.node import Node
from p2pnode.own_feed import open_own_feed
from p2pnode.own_store import open_own_guard, opened_store
from p2pnode.own_time import latest_signed
from p2pnode.ports import Ports, Service, advert_topics, is_light
from protocol.errors import LocalFault
from protocol.genesis import Genesis, net_of
from protocol.units import NetId, PublicKey

T = TypeVar("T")

FILE_THREADS: Final = 8
"""Threads that read and write files of jobs at once."""


def same(port: T) -> T:
    """The port, or ports, as they are."""
    return port


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """What may be put around the ledger's two files; a test of crashes does."""

    store: Callable[[Store], Store] = same
    guard: Callable[[Guard], Guard] = same


BARE: Final = Disk()


@contextmanager
def opened(
    home: Home,
    *,
    seen_s: float = SEEN_S,
    wrap: Callable[[Ports], Ports] = same,
    disk: Disk = BARE,
) -> Iterator[Node]:
    """The node of this home, ready to run; within trio, and with the home's lock held.

    `seen_s`: how long gossip is remembered. `wrap` and `disk` may put something around the
    ports. All are for experiments. Raises LocalFault for everything that its owner must mend first.
    """
    clock = SystemClock()
    config = load_config(home.config)
    genesis = genesis_of(home)
    net = net_of(genesis)
    identity = load_identity(home, net, clock.now())
    incarnation = next_incarnation(home, clock.now())
    transport = Libp2pTransport(
        seed=identity.peer_seed,
        listen=config.network.listen,
        topics=advert_topics(genesis),
        seen_s=seen_s,
        directory="client" if is_light(config) else "server",
        announced=config.network.announce,
    )
    with opened_store(
        home.ledger, partial(_open_feed, home, identity, disk, net=net, incarnation=incarnation)
    ) as ledger:
        head = ledger.head(ledger.feed)
        if head is not None and head.seq >= len(identity.succeeds):
            note_feed_begun(home)
        clock.catch_up(latest_signed(ledger, FileCabinet(home.records)))
        node = Node(
            config=config,
            genesis=genesis,
            identity=identity,
            bootstrap=bootstrap_of((*config.network.bootstrap, *bootstrap_in(home))),
            incarnation=incarnation,
            ports=wrap(
                _ports(
                    home,
                    config,
                    genesis,
                    identity,
                    transport=transport,
                    ledger=ledger,
                    clock=clock,
                )
            ),
        )
        yield node


def _open_feed(
    home: Home, identity: Identity, disk: Disk, store: Store, *, net: NetId, incarnation: int
) -> Ledger:
    return open_own_feed(
        identity,
        net=net,
        store=disk.store(store),
        guard=disk.guard(open_own_guard(home.feed_guard, net)),
        cabinet=FileCabinet(home.records),
        incarnation=incarnation,
        is_new=is_feed_new(home, identity.feed.public),
        now=SystemClock().now(),
        random_bytes=secrets.token_bytes,
    )


def _ports(
    home: Home,
    config: Config,
    genesis: Genesis,
    identity: Identity,
    *,
    transport: Libp2pTransport,
    ledger: Ledger,
    clock: SystemClock,
) -> Ports:
    engine, services = _engine(home, config, genesis, clock)
    mdns = Mdns(net=net_of(genesis), peer=transport.peer_id, name=secrets.token_hex(16))
    return Ports(
        transport=transport,
        directory=transport,
        local=mdns if config.network.mdns else None,
        probe=_probe(config, genesis, identity.feed.public),
        host=_host_facts(home),
        address_of=transport.address_of,
        bytes_moved=transport.bytes_moved,
        engine=engine,
        services=services,
        materials=FileMaterials(home.jobs, files=_threads()),
        baggage=FileBaggage(home.rentals),
        cabinet=FileCabinet(home.records),
        primary=_primary(home, config),
        ledger=ledger,
        clock=clock,
        catch_up=clock.catch_up,
        rng=random.Random(secrets.randbits(64)),  # noqa: S311 - choices among peers, no secret
        random_bytes=secrets.token_bytes,
    )


def _primary(home: Home, config: Config) -> Primary | None:
    template = config.primary.template
    return CommandPrimary(load_template(template), home.rentals) if template else None


def _engine(
    home: Home, config: Config, genesis: Genesis, clock: SystemClock
) -> tuple[Engine, tuple[Service, ...]]:
    """What runs jobs here, and what it needs running.

    In test networks a job may name no image; it then runs in one made of this interpreter.
    """
    wanted, socket = config.workloads.engine, Path(config.workloads.docker_socket)
    if wanted == "process" or (wanted == "auto" and not socket.exists()):
        return ProcessEngine(home.jobs, clock=clock, files=_threads()), ()
    image = build_python_image() if genesis.kind == "test" else None
    engine = DockerEngine(
        home.jobs,
        docker_socket=socket,
        node=config.name,
        clock=clock,
        files=_threads(),
        default_image=None if image is None else image.id,
    )

    async def run(*, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(engine.run)
            if image is not None:
                await engine.load(image)
            task_status.started()

    return engine, (run,)


def _threads() -> trio.CapacityLimiter:
    """Of its own for each part, so that long archives never hold up the stop of a job."""
    return trio.CapacityLimiter(FILE_THREADS)


def _host_facts(home: Home) -> HostFacts:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return HostFacts(
        cpus=len(os.sched_getaffinity(0)),
        memory_mib=pages // 2**20,
        disk_mib=shutil.disk_usage(home.jobs).free // 2**20,
    )


def _probe(config: Config, genesis: Genesis, feed: PublicKey) -> GpuProbe:
    if not config.gpu.simulated:
        return NvmlProbe(feed)
    if not genesis.simulation_allowed:
        raise LocalFault(
            "simulated GPUs are offered in test networks only",
            "take [[gpu.simulated]] out of config.toml, or join a test network",
        )
    return SimulatedProbe(
        feed,
        tuple(
            SimulatedGpus(model=gpu.model, vram=gpu.vram, count=gpu.count)
            for gpu in config.gpu.simulated
        ),
    )
