"""Runs a node as a process: its home, its lock, its real ports, its API, its signals."""

import logging
import random
import secrets
import signal
from collections.abc import Callable
from dataclasses import dataclass

import trio

from p2pnode.api.app import build_app
from p2pnode.api.server import serve_api
from p2pnode.clock import SystemClock
from p2pnode.config import Config, load_config
from p2pnode.execution.gpu import GpuProbe, NoGpus, SimulatedProbe
from p2pnode.gpus import SimulatedGpus
from p2pnode.home import Home, locked, make_folders, next_incarnation
from p2pnode.identity import load_identity
from p2pnode.log import log_to
from p2pnode.membership import bootstrap_in, genesis_of
from p2pnode.network.libp2p_adapter.libp2p_transport import Libp2pTransport
from p2pnode.network.peer_text import address_text, bootstrap_of, peer_text
from p2pnode.node import Node, Ports, advert_topics
from p2pnode.status import services_of
from protocol.errors import LocalFault, P2PError
from protocol.genesis import Genesis, net_of
from protocol.units import PublicKey

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A node that answers: who it is and where."""

    name: str
    peer: str
    network: str
    addresses: tuple[str, ...]
    """Full addresses, fit as bootstrap of others."""
    socket: str


def run_node(home: Home, *, on_ready: Callable[[Ready], None]) -> None:
    """Be a node until SIGTERM or SIGINT; a second signal ends it at once.

    Raises LocalFault for everything that its owner must mend first.
    """
    make_folders(home)
    with locked(home):
        log_to(home.log)
        try:
            trio.run(_run, home, on_ready)
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


async def _run(home: Home, on_ready: Callable[[Ready], None]) -> None:
    clock = SystemClock()
    config = load_config(home.config)
    genesis = genesis_of(home)
    identity = load_identity(home, net_of(genesis), clock.now())
    transport = Libp2pTransport(
        seed=identity.peer_seed,
        listen=config.network.listen,
        topics=advert_topics(genesis),
    )
    node = Node(
        config=config,
        genesis=genesis,
        identity=identity,
        bootstrap=bootstrap_of((*config.network.bootstrap, *bootstrap_in(home))),
        incarnation=next_incarnation(home, clock.now()),
        ports=Ports(
            transport=transport,
            probe=_probe(config, genesis, identity.feed.public),
            clock=clock,
            rng=random.Random(secrets.randbits(64)),  # noqa: S311 - choices among peers, no secret
        ),
    )
    app = build_app(services_of(node, up_since=clock.now()))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_cancel_on_signal, nursery.cancel_scope)
        await nursery.start(node.run)
        await nursery.start(serve_api, app, home.socket)
        peer = identity.certificate.peer_id
        on_ready(
            Ready(
                name=config.name,
                peer=peer_text(peer),
                network=genesis.name,
                addresses=tuple(address_text(peer, a) for a in transport.addresses()),
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
