"""Runs the services of one host and closes it without a leak; it decides nothing else."""

import logging
from contextlib import AsyncExitStack
from typing import Final

import trio
from libp2p.abc import ISecureConn
from libp2p.network.connection.swarm_connection import SwarmConn
from libp2p.network.swarm import Swarm
from libp2p.tools.anyio_service import background_trio_service
from multiaddr import Multiaddr

from p2pnode.network.libp2p_adapter.host import Host

log = logging.getLogger(__name__)

FAREWELL_S: Final = 1.5
"""For telling the peers; after that their sockets are cut."""

SHUTDOWN_S: Final = 3.0


async def run_host(
    host: Host, listen: tuple[str, ...], ready: trio.Event, stop: trio.Event
) -> None:
    """Keep the host up until `stop` is set; set `ready` once it gossips.

    Cannot be cancelled, as cancelling the library leaks its sockets: whoever starts this must set
    `stop`. Some addresses may not have been bound when it is ready.
    """
    try:
        with trio.CancelScope(shield=True):
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(
                    host.host.run([Multiaddr(address) for address in listen])
                )
                await stack.enter_async_context(background_trio_service(host.pubsub))
                await stack.enter_async_context(background_trio_service(host.router))
                try:
                    await host.pubsub.wait_until_ready()
                    ready.set()
                    await stop.wait()
                finally:
                    with trio.move_on_after(SHUTDOWN_S, shield=True):
                        await _close(host)
    finally:
        host.pubsub.seen_messages.stop()


def open_connections(network: Swarm) -> list[SwarmConn]:
    """The connections of a swarm; a list, as they go while one looks at them."""
    return [
        connection
        for connections in network.connections.values()
        for connection in connections
        if not connection.is_closed
    ]


async def close_connection(connection: SwarmConn) -> None:
    """Tell the peer and close; raises nothing, takes at most some seconds if the peer hangs."""
    await trio.lowlevel.checkpoint()
    try:
        await connection.close()
    except Exception as error:  # noqa: BLE001 - it is going away, whatever the library thinks
        log.debug("closing failed", extra={"error": repr(error)})


async def _close(host: Host) -> None:
    sockets = [connection.muxed_conn.secured_conn for connection in open_connections(host.network)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_cut_late, sockets)
        await _close_together(host)
        nursery.cancel_scope.cancel()


async def _close_together(host: Host) -> None:
    # The library closes one after the other and sleeps for each.
    async with trio.open_nursery() as nursery:
        for connection in open_connections(host.network):
            nursery.start_soon(close_connection, connection)
    await host.host.close()


async def _cut_late(sockets: list[ISecureConn]) -> None:
    # A write to a peer that hangs is shielded, so that only closing its socket ends it.
    await trio.sleep(FAREWELL_S)
    for socket in sockets:
        await socket.close()
