"""What Directory promises, as checks of three peers of which the first is everybody's neighbour.

The same checks hold for the real directory and for the one in memory.
"""

from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Protocol

import pytest
import trio

from p2pnode.network.transport import Directory, Streams
from protocol.errors import Unavailable
from protocol.units import PeerId
from tests.transport_suite import PATIENCE_S

KEY = sha256(b"a key").digest()
OTHER_KEY = sha256(b"another key").digest()


class Peer(Streams, Directory, Protocol):
    """Both ports, and whose they are."""

    @property
    def peer_id(self) -> PeerId: ...


async def gather_around(one: Peer, *others: Peer) -> None:
    for other in others:
        await other.connect(one.peer_id, one.addresses())


async def what_is_announced_is_found_and_can_be_reached(
    one: Peer, other: Peer, third: Peer
) -> None:
    await gather_around(one, other, third)
    await other.announce(KEY)
    found = await third.find(KEY)
    assert list(found) == [other.peer_id]
    await third.connect(other.peer_id, found[other.peer_id])
    assert other.peer_id in third.neighbours()


async def everybody_who_announced_is_found_once(one: Peer, other: Peer, third: Peer) -> None:
    await gather_around(one, other, third)
    for peer in (one, other, third, other, one):
        await peer.announce(KEY)
    assert list(await third.find(KEY)) == sorted([one.peer_id, other.peer_id])
    assert list(await one.find(KEY)) == sorted([other.peer_id, third.peer_id])


async def nobody_finds_himself(one: Peer, other: Peer, third: Peer) -> None:
    await gather_around(one, other, third)
    await other.announce(KEY)
    assert await other.find(KEY) == {}


async def another_key_finds_nobody(one: Peer, other: Peer, third: Peer) -> None:
    await gather_around(one, other, third)
    await other.announce(KEY)
    assert await third.find(OTHER_KEY) == {}


async def what_is_announced_later_is_found_later(one: Peer, other: Peer, third: Peer) -> None:
    await gather_around(one, other, third)
    assert await third.find(KEY) == {}
    await one.announce(KEY)
    assert list(await third.find(KEY)) == [one.peer_id]
    await other.announce(KEY)
    assert list(await third.find(KEY)) == sorted([one.peer_id, other.peer_id])


async def who_is_alone_is_told_so(one: Peer, other: Peer, third: Peer) -> None:
    with pytest.raises(Unavailable), trio.fail_after(PATIENCE_S):
        await one.announce(KEY)
    with pytest.raises(Unavailable), trio.fail_after(PATIENCE_S):
        await other.find(KEY)


async def giving_up_does_no_harm(one: Peer, other: Peer, third: Peer) -> None:
    await gather_around(one, other, third)
    for wait_s in (0, 0.001, 0.01, 0.02):
        with trio.move_on_after(wait_s):
            await other.announce(KEY)
        with trio.move_on_after(wait_s):
            await third.find(KEY)
    await other.announce(KEY)
    assert list(await third.find(KEY)) == [other.peer_id]


Check = Callable[[Peer, Peer, Peer], Awaitable[None]]

CHECKS: tuple[Check, ...] = (
    what_is_announced_is_found_and_can_be_reached,
    everybody_who_announced_is_found_once,
    nobody_finds_himself,
    another_key_finds_nobody,
    what_is_announced_later_is_found_later,
    who_is_alone_is_told_so,
    giving_up_does_no_harm,
)
