"""Runs a node as a process: its home, its lock, its real ports, its API, its signals."""

import logging
import os
import random
import secrets
import signal
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import trio

from ledger.file_guard import open_file_guard
from ledger.ledger import Ledger
from ledger.leveldb_store import open_leveldb
from p2pnode.api.app import build_app
from p2pnode.api.server import serve_api
from p2pnode.cabinet import FileCabinet
from p2pnode.clock import SystemClock
from p2pnode.config import Config, load_config
from p2pnode.execution.file_materials import FileMaterials
from p2pnode.execution.gpu import GpuProbe, NoGpus, SimulatedProbe
from p2pnode.execution.process_engine import ProcessEngine
from p2pnode.gpus import HostFacts, SimulatedGpus
from p2pnode.home import Home, locked, make_folders, next_incarnation
from p2pnode.identity import Identity, load_identity
from p2pnode.job_views import JobViews
from p2pnode.jobs.baggage import FileBaggage
from p2pnode.log import log_to
from p2pnode.membership import bootstrap_in, genesis_of
from p2pnode.network.libp2p_adapter.host import SEEN_S
from p2pnode.network.libp2p_adapter.libp2p_transport import Libp2pTransport
from p2pnode.network.peer_text import address_text, bootstrap_of, peer_text
from p2pnode.node import Node
from p2pnode.own_feed import open_own_feed
from p2pnode.ports import Ports, advert_topics
from p2pnode.status import services_of
from protocol.errors import LocalFault, P2PError
from protocol.genesis import Genesis, net_of
from protocol.units import PublicKey

log = logging.getLogger(__name__)

FILE_THREADS: Final = 8
"""Threads that read and write files of jobs at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A node that answers: who it is and where."""

    name: str
    peer: str
    network: str
    addresses: tuple[str, ...]
    """Full addresses, fit as bootstrap of others."""
    socket: str


def run_node(home: Home, *, on_ready: Callable[[Ready], None], seen_s: float = SEEN_S) -> None:
    """Be a node until SIGTERM or SIGINT; a second signal ends it at once.

    `seen_s`: how long gossip is remembered; others than the usual are for experiments.

    Raises LocalFault for everything that its owner must mend first.
    """
    make_folders(home)
    with locked(home):
        log_to(home.log)
        try:
            trio.run(_run, home, on_ready, seen_s)
        except BaseExceptionGroup as group:
            # Nurseries wrap what ends them; our user wants the one sentence inside.
            faults, bugs = group.split(P2PError)
            if faults is None or bugs is not None:
                raise
            raise _first(faults) from group


def _first(group: BaseExceptionGroup[P2PError]) -> P2PError:
    """The first single fault in a group of groups."""
    one = group.exceptions[0]
    return _first(one) if isinstance(one, BaseExceptionGroup) else one


async def _run(home: Home, on_ready: Callable[[Ready], None], seen_s: float) -> None:
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
    )
    with closing(open_leveldb(str(home.ledger))) as store:
        ledger = open_own_feed(
            identity,
            net=net,
            store=store,
            guard=open_file_guard(home.guard / "feed", net),
            incarnation=incarnation,
            now=clock.now(),
            random_bytes=secrets.token_bytes,
        )
        node = Node(
            config=config,
            genesis=genesis,
            identity=identity,
            bootstrap=bootstrap_of((*config.network.bootstrap, *bootstrap_in(home))),
            incarnation=incarnation,
            ports=_ports(
                home,
                config,
                genesis,
                identity,
                transport=transport,
                ledger=ledger,
                clock=clock,
            ),
        )
        await _serve(node, home, on_ready)


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
    return Ports(
        transport=transport,
        directory=transport,
        probe=_probe(config, genesis, identity.feed.public),
        host=_host_facts(),
        engine=ProcessEngine(home.jobs, clock=clock, files=_threads()),
        materials=FileMaterials(home.jobs, files=_threads()),
        baggage=FileBaggage(home.rentals),
        cabinet=FileCabinet(home.records),
        ledger=ledger,
        clock=clock,
        rng=random.Random(secrets.randbits(64)),  # noqa: S311 - choices among peers, no secret
        random_bytes=secrets.token_bytes,
    )


def _threads() -> trio.CapacityLimiter:
    """Of its own for each part, so that long archives never hold up the stop of a job."""
    return trio.CapacityLimiter(FILE_THREADS)


def _host_facts() -> HostFacts:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return HostFacts(cpus=len(os.sched_getaffinity(0)), memory_mib=pages // 2**20)


async def _serve(node: Node, home: Home, on_ready: Callable[[Ready], None]) -> None:
    """The node and its API until a signal."""
    app = build_app(
        services_of(node, up_since=node.ports.clock.now()),
        JobViews(node, FileBaggage(home.rentals)),
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_cancel_on_signal, nursery.cancel_scope)
        await nursery.start(node.run)
        await nursery.start(serve_api, app, home.socket)
        peer = node.identity.certificate.peer_id
        on_ready(
            Ready(
                name=node.config.name,
                peer=peer_text(peer),
                network=node.genesis.name,
                addresses=tuple(
                    address_text(peer, address) for address in node.ports.transport.addresses()
                ),
                socket=str(home.socket),
            )
        )


async def _cancel_on_signal(scope: trio.CancelScope) -> None:
    """The first signal ends the node in order; then the handlers are gone, and a second kills."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            log.info("stopping", extra={"signal": signal.Signals(number).name})
            scope.cancel()


def _probe(config: Config, genesis: Genesis, feed: PublicKey) -> GpuProbe:
    if not config.gpu.simulated:
        return NoGpus()
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
