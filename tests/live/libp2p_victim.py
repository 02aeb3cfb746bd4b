"""A victim, an attacker and a visitor of the library's host, for the attacks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import trio

from p2pnode.network.libp2p_adapter.libp2p_transport import Libp2pTransport
from tests.transport_suite import ECHO, TOPIC, echo, link, serve_echo


def make(number: int) -> Libp2pTransport:
    return Libp2pTransport(
        seed=bytes([number]) * 32,
        listen=("/ip4/127.0.0.1/tcp/0",),
        topics=(TOPIC,),
        heartbeat_s=0.2,
    )


@contextmanager
def setting(owner: object, **values: object) -> Iterator[None]:
    """Smaller limits for as long as an attack lasts."""
    before = {name: getattr(owner, name) for name in values}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


def connection(one: Libp2pTransport, other: Libp2pTransport) -> Any:
    return one._connections(other.peer_id)[0]


async def assert_serves(victim: Libp2pTransport, visitor: Libp2pTransport) -> None:
    await visitor.connect(victim.peer_id, victim.addresses())
    assert await echo(visitor, victim.peer_id, b"hello") == b"hello"


async def against_a_victim(attack: Callable[[Libp2pTransport, Libp2pTransport], Any]) -> None:
    """Run the attack between two linked peers; a third must be served afterwards."""
    victim, attacker, visitor = make(1), make(2), make(3)
    async with trio.open_nursery() as nursery:
        for transport in (victim, attacker, visitor):
            await nursery.start(transport.run)
        victim.serve(ECHO, serve_echo)
        await link(attacker, victim)
        await attack(attacker, victim)
        await assert_serves(victim, visitor)
        nursery.cancel_scope.cancel()
