"""Runs a node as a process: its home, its lock, its real ports, its API, its signals."""

import logging
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

import trio

from p2pnode.api.app import build_app
from p2pnode.api.job_routes import job_routes
from p2pnode.api.ledger_routes import ledger_routes
from p2pnode.api.market_routes import MarketServices, market_routes
from p2pnode.api.money_routes import money_routes
from p2pnode.api.owner_routes import owner_routes
from p2pnode.api.pool_routes import pool_routes
from p2pnode.api.rule_routes import rule_routes
from p2pnode.api.server import serve_api
from p2pnode.home import Home, locked, make_folders
from p2pnode.job_views import JobViews
from p2pnode.jobs.baggage import FileBaggage
from p2pnode.ledger_views import LedgerViews
from p2pnode.log import log_to
from p2pnode.money_views import money_views
from p2pnode.network.libp2p_adapter.host import SEEN_S
from p2pnode.network.peer_text import address_text, peer_text
from p2pnode.node import Node
from p2pnode.owner_views import OwnerViews
from p2pnode.pool_views import PoolViews
from p2pnode.ports import Ports
from p2pnode.real_node import BARE, Disk, opened, same
from p2pnode.rule_views import RuleViews
from p2pnode.status import offered, services_of
from p2pnode.why_views import why_no_match
from p2pnode.work_views import bids_of, market_of, no_work
from protocol.errors import P2PError

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


def run_node(
    home: Home,
    *,
    on_ready: Callable[[Ready], None],
    seen_s: float = SEEN_S,
    wrap: Callable[[Ports], Ports] = same,
    disk: Disk = BARE,
) -> None:
    """Be a node until SIGTERM or SIGINT; a second signal ends it at once.

    `seen_s`, `wrap` and `disk`: see `opened`; others than the usual are for experiments.

    Raises LocalFault for everything that its owner must mend first.
    """
    make_folders(home)
    with locked(home):
        log_to(home.log)
        try:
            trio.run(
                _run, lambda: opened(home, seen_s=seen_s, wrap=wrap, disk=disk), home, on_ready
            )
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


async def _run(
    open_node: Callable[[], AbstractContextManager[Node]],
    home: Home,
    on_ready: Callable[[Ready], None],
) -> None:
    with open_node() as node:
        await _serve(node, home, on_ready)


async def _serve(node: Node, home: Home, on_ready: Callable[[Ready], None]) -> None:
    """The node and its API until a signal."""
    baggage = FileBaggage(home.rentals)
    jobs = JobViews(node, baggage)
    ledger = LedgerViews(node.ports.ledger, node.replication.take, clock=node.ports.clock)
    app = build_app(
        services_of(node, up_since=node.ports.clock.now()),
        [
            *job_routes(jobs),
            *pool_routes(PoolViews(node, baggage)),
            *ledger_routes(ledger),
            *money_routes(money_views(node)),
            *rule_routes(RuleViews(node.terms.rules)),
            *market_routes(
                MarketServices(
                    why=partial(why_no_match, node),
                    bids=lambda since, limit: bids_of(node, since_ms=since, limit=limit),
                    no_work=lambda since: no_work(node, since_ms=since),
                    market=lambda since: market_of(node, since_ms=since),
                )
            ),
            *owner_routes(OwnerViews(node, lambda: offered(node))),
        ],
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
