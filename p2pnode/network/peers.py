"""Whom we know and how to reach them; keeps us connected to enough of them."""

import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import trio

from p2pnode.network.transport import LocalDiscovery, Streams
from protocol.errors import Unavailable
from protocol.units import PeerId

log = logging.getLogger(__name__)

NEIGHBOURS_WANTED: Final = 8
"""Enough for a gossip mesh of six with two to spare; inbound ones come on top."""
LOOK_S: Final = 0.5
"""How soon a new neighbour is noticed."""
DIALS_AT_ONCE_MAX: Final = 4
DIAL_S: Final = 10
BACKOFF_S_MIN: Final = 1.0
BACKOFF_S_MAX: Final = 15.0
"""Half a heartbeat: when a network heals, offers are seen again within a whole one."""
KNOWN_MAX: Final = 4_096
LOST_MAX: Final = 16
"""Neighbours that are dialled again even if others took their places: a network that was in two
parts would else stay so, once either has enough of its own."""
LOST_BELOW: Final = 24
"""Neighbours with whom none that was lost is dialled: the directory closes what it does not need
from 32 on, and the two must not undo each other."""
LOST_S: Final = 24 * 3_600
LASTED_S: Final = 60.0
"""Who was a neighbour for so long was one: twice the time after which the directory closes what a
look-up opened. Others are not missed when they are gone, and are dialled ever less often."""


@dataclass(slots=True)
class _Known:
    """How to reach a peer, and when it makes sense to try again."""

    addresses: tuple[str, ...]
    """What it said itself, or an invitation."""
    is_kept: bool
    """Bootstrap peers are never forgotten."""
    has_failed: bool = False
    """The last dial."""
    nearby: tuple[str, ...] = ()
    """What the local network says now; anybody there may say it."""
    backoff_s: float = BACKOFF_S_MIN
    not_before_s: float = 0.0

    def order(self) -> tuple[str, ...]:
        """The addresses as they are to be tried: hearsay first only when the others have failed."""
        if self.has_failed:
            return (*self.nearby, *self.addresses)
        return (*self.addresses, *self.nearby)

    def note(self, *, is_connected: bool) -> None:
        """How a dial went; the next one has to wait longer, until a connection lasts."""
        self.has_failed = not is_connected
        self.not_before_s = trio.current_time() + self.backoff_s
        self.backoff_s = min(self.backoff_s * 2, BACKOFF_S_MAX)

    def note_lasting(self) -> None:
        """It was a neighbour for long."""
        self.backoff_s = BACKOFF_S_MIN
        self.not_before_s = 0.0


class Peers:
    """The address book and the dialler."""

    def __init__(
        self,
        *,
        own: PeerId,
        streams: Streams,
        bootstrap: dict[PeerId, tuple[str, ...]],
        local: LocalDiscovery | None = None,
        rng: random.Random,
    ) -> None:
        self._own = own
        self._streams = streams
        self._local = local
        self._rng = rng
        self._known = {
            peer: _Known(addresses, is_kept=True)
            for peer, addresses in bootstrap.items()
            if peer != own
        }
        self._since: dict[PeerId, float] = {}
        """When each neighbour was first seen as one."""
        self._lost: dict[PeerId, float] = {}
        """Lasting neighbours that are none any more, by when that was seen, oldest first."""

    def lost_since(self, peer: PeerId) -> float | None:
        """When a new neighbour ceased to be one, if it was for long; ask while told of it."""
        return self._lost.get(peer)

    def learn(self, peer: PeerId, addresses: tuple[str, ...]) -> None:
        """Remember where a peer said it is; what it said last is tried."""
        if peer == self._own or not addresses:
            return
        known = self._known_or_new(peer)
        if known is not None:
            known.addresses = addresses

    def sight(self, nearby: Mapping[PeerId, tuple[str, ...]]) -> None:
        """These peers are on the local network now, and no others. See LocalDiscovery."""
        for peer in self.nearby:
            if peer not in nearby:
                self._known[peer].nearby = ()
                if not self._known[peer].addresses:
                    del self._known[peer]
        for peer, addresses in nearby.items():
            known = None if peer == self._own else self._known_or_new(peer)
            if known is not None:
                known.nearby = addresses

    @property
    def nearby(self) -> tuple[PeerId, ...]:
        """The peers in sight on the local network; sorted."""
        return tuple(sorted(peer for peer, known in self._known.items() if known.nearby))

    def _known_or_new(self, peer: PeerId) -> _Known | None:
        """Its place in the address book, made if need be; None if the book is full."""
        if peer not in self._known:
            while len(self._known) >= KNOWN_MAX:
                forgotten = next((p for p, k in self._known.items() if not k.is_kept), None)
                if forgotten is None:
                    return None
                del self._known[forgotten]
            self._known[peer] = _Known((), is_kept=False)
        return self._known[peer]

    async def reach(self, peer: PeerId) -> None:
        """Be connected with a peer that we know of; the deadline is the caller's.

        Raises Unavailable.
        """
        if peer in self._streams.neighbours():
            return
        known = self._known.get(peer)
        if known is None:
            raise Unavailable("no address of the peer is known")
        is_connected = False
        try:
            await self._streams.connect(peer, known.order())
            is_connected = True
        finally:
            # Also when the deadline has passed: an address that swallows everything takes it all.
            known.note(is_connected=is_connected)

    async def run(
        self,
        on_neighbour: Callable[[PeerId], None],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Dial until there are enough neighbours, and tell of each new one, until cancelled."""
        async with trio.open_nursery() as nursery:
            if self._local is not None:
                nursery.start_soon(self._local.run, self._streams.addresses, self.sight)
            nursery.start_soon(self._notice, on_neighbour)
            task_status.started()
            while True:
                await self._dial_some()
                await trio.sleep(LOOK_S)

    async def _notice(self, on_neighbour: Callable[[PeerId], None]) -> None:
        """Beside the dials, of which the slowest may take long."""
        while True:
            now = self._streams.neighbours()
            for peer in now:
                if peer not in self._since:
                    on_neighbour(peer)
            self._note_lost(now)
            await trio.sleep(LOOK_S)

    def _note_lost(self, now: tuple[PeerId, ...]) -> None:
        now_s = trio.current_time()
        for peer in now:
            self._since.setdefault(peer, now_s)
            self._lost.pop(peer, None)
        for peer in [peer for peer in self._since if peer not in now]:
            if now_s - self._since.pop(peer) >= LASTED_S:
                self._lost[peer] = now_s
                if (known := self._known.get(peer)) is not None:
                    known.note_lasting()
        over = [peer for peer, at_s in self._lost.items() if now_s - at_s > LOST_S]
        for peer in over or list(self._lost)[:-LOST_MAX]:
            del self._lost[peer]

    async def _dial_some(self) -> None:
        neighbours = self._streams.neighbours()
        is_full = len(neighbours) >= NEIGHBOURS_WANTED
        if len(neighbours) >= LOST_BELOW:
            return
        now_s = trio.current_time()
        candidates = [
            peer
            for peer in (self._lost if is_full else self._known)
            if (known := self._known.get(peer)) is not None
            and peer not in neighbours
            and known.not_before_s <= now_s
        ]
        missing = 1 if is_full else min(NEIGHBOURS_WANTED - len(neighbours), DIALS_AT_ONCE_MAX)
        async with trio.open_nursery() as nursery:
            for peer in self._rng.sample(candidates, min(missing, len(candidates))):
                nursery.start_soon(self._dial, peer)

    async def _dial(self, peer: PeerId) -> None:
        try:
            with trio.move_on_after(DIAL_S):
                await self.reach(peer)
        except Unavailable as error:
            log.info("dial failed", extra={"peer": peer.hex(), "why": str(error)})
