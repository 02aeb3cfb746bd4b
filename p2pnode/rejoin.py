"""Before a node signs again after a bad end, it asks others how long its own feed is.

ledger/SPEC.md section 6 says when that is, whom it asks, and what is enough.
"""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from heapq import nlargest
from typing import Final

import trio

from ledger.fold import Lease
from ledger.ledger import Ledger
from p2pnode.accounts import certificate_in
from p2pnode.cabinet import Cabinet
from p2pnode.clock import WallClock
from p2pnode.network.exchange import Handler
from p2pnode.own_feed import closed_at, note_closed
from protocol.certificate import read_certificate
from protocol.errors import LocalFault, PeerFault, Unavailable
from protocol.units import Millis, MillisSpan, PeerId, PublicKey

log = logging.getLogger(__name__)

LEASES_MAX: Final = 8
"""Our newest leases: their other sides and their witnesses got our newest entries first."""
ANSWERS: Final = 3
"""So many peers are enough, where not all counterparties can be reached."""
PATIENCE_S: Final = 30
"""Guard and store agree, and nobody answers: only both rolled back together could be wrong. Less
than renters wait for an owner that was lost.
"""
FEW_ANSWERS_S: Final = 600
"""The guard is lost, and fewer than enough have answered in all this time: a small network."""
ORDERLY_MS: Final = MillisSpan(600_000)
"""So long an end in order is believed. A home that was restored whole, from a backup or a snapshot
of the machine, ended in order too, and others may have newer entries of its feed.
"""
WHY_HELD: Final = "Others are asked for our own feed before it is continued."
ASK_S: Final = 120
POLL_S: Final = 0.25
RETRY_S: Final = 2
NEIGHBOURS_MAX: Final = 8


class Rejoin:
    """Holds back what signs entries until our own feed is known to be whole."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        cabinet: Cabinet,
        neighbours: Callable[[], tuple[PeerId, ...]],
        compare: Callable[[PeerId], Awaitable[None]],
        begin_feed: Callable[[Millis], None],
        recovered: Callable[[], None],
        clock: WallClock,
    ) -> None:
        """`compare` brings all that a peer has of our own feed; raises Unavailable or PeerFault.

        `begin_feed` writes the first entry of a feed of which nobody has any. `recovered` is called
        before we sign again, when our feed may have become longer.
        """
        self._ledger = ledger
        self._cabinet = cabinet
        self._neighbours = neighbours
        self._compare = compare
        self._begin_feed = begin_feed
        self._recovered = recovered
        self._clock = clock
        self._over = trio.Event()
        self._answered: dict[PeerId, None] = {}
        self._tried: dict[PeerId, None] = {}
        self._asking: dict[PeerId, None] = {}
        self._counterparties: dict[PublicKey, PeerId | None] = {}
        """None for one of whom we only know the feed."""
        self._changes = -1
        """Of the ledger, when they were last looked for."""
        self._is_long_ago = False
        self._since_s = 0.0
        self._seq = -1

    @property
    def why_held(self) -> str | None:
        """Why nothing is signed now; None when we may sign."""
        if self._over.is_set():
            return None
        fault = self._ledger.fault()
        if fault is not None and self._ledger.is_ended():
            return f"{fault.what} {fault.cure}"
        if fault is not None:
            why = fault.what
        elif self._head_seq() < 0:
            why = "The store and the guard of our feed are gone."
        elif self._is_long_ago:
            why = "The last end was long ago by this clock; this may be an older copy of our home."
        else:
            why = "The last end was not in order."
        return f"{why} Others are asked for our own feed; {len(self._answered)} have answered."

    async def wait(self) -> None:
        """Return when we may sign."""
        await self._over.wait()

    def gated(self, handlers: dict[str, Handler]) -> dict[str, Handler]:
        """The handlers, which refuse as long as we must not sign."""
        return {kind: partial(self._answer, handler) for kind, handler in handlers.items()}

    async def _answer(self, handler: Handler, peer: PeerId, body: bytes) -> bytes:
        if (why := self.why_held) is not None:
            raise Unavailable(f"nothing is signed here now: {why}")
        return await handler(peer, body)

    def begin(self) -> None:
        """Find out whether anything must be asked. Raises LocalFault if our disk fails."""
        closed = closed_at(self._ledger, self._cabinet)
        if closed is not None and self._ledger.fault() is None:
            # An end that is yet to come, by a clock that was set back, says nothing either.
            self._is_long_ago = not 0 <= self._clock.now() - closed <= ORDERLY_MS
            if not self._is_long_ago:
                self._over.set()
                return
        # Handlers that are `gated` only say why earlier: the ledger refuses whoever would write.
        self._ledger.hold(WHY_HELD)

    def end(self) -> None:
        """Nothing signs any more: the next life need not ask."""
        if not self._over.is_set():
            return
        try:
            note_closed(self._ledger, self._cabinet, self._clock.now())
        except (LocalFault, Unavailable) as fault:
            # What ends the node may be the same, and is the better news.
            log.warning("the end is not in order", extra={"why": str(fault)})

    async def run(self) -> None:
        """Ask until we may sign. Raises LocalFault if our disk fails."""
        if self._over.is_set():
            return
        log.warning("own feed held back", extra={"why": self.why_held})
        self._since_s = trio.current_time()
        self._look_at_head()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._ask_around)
            await self._wait_whole()
            nursery.cancel_scope.cancel()
        self._go_on()

    async def _wait_whole(self) -> None:
        # Time passes, peers answer and others bring entries: there is no one event to wait for.
        while not self._is_whole():  # noqa: ASYNC110
            await trio.sleep(POLL_S)

    def _go_on(self) -> None:
        self._recovered()
        self._ledger.hold(None)
        if self._head_seq() < 0:
            self._begin_feed(self._clock.now())
        elif self._ledger.fault() is not None:
            self._ledger.confirm_head()
        answered = len(self._answered)
        log.info("own feed goes on", extra={"seq": self._head_seq(), "answered": answered})
        self._over.set()

    def _is_whole(self) -> bool:
        """Whether our feed may be continued as it is here."""
        if self._head_seq() != self._seq:
            self._look_at_head()
        waited_s = trio.current_time() - self._since_s
        fault = self._ledger.fault()
        if fault is None and self._seq >= 0:
            return self._have_enough_answered() or waited_s >= PATIENCE_S
        if fault is not None and not self._ledger.is_guard_lost():
            return False
        return self._have_enough_answered() or (bool(self._answered) and waited_s >= FEW_ANSWERS_S)

    def _look_at_head(self) -> None:
        """Our feed has grown: wait anew, and ask those whom the new entries name."""
        self._seq, self._since_s = self._head_seq(), trio.current_time()
        self._find_counterparties()

    def _have_enough_answered(self) -> bool:
        peers = self._counterparties.values()
        if peers and all(peer in self._answered for peer in peers):
            return True
        are_tried = all(peer is None or peer in self._tried for peer in peers)
        return are_tried and len(self._answered) >= ANSWERS

    async def _ask_around(self) -> None:
        async with trio.open_nursery() as nursery:
            while True:
                self._find_counterparties()
                named = [peer for peer in self._counterparties.values() if peer is not None]
                for peer in (*named, *self._neighbours()[:NEIGHBOURS_MAX]):
                    if peer not in self._answered and peer not in self._asking:
                        self._asking[peer] = None
                        nursery.start_soon(self._ask, peer)
                await trio.sleep(RETRY_S)

    async def _ask(self, peer: PeerId) -> None:
        try:
            with trio.fail_after(ASK_S):
                await self._compare(peer)
            self._answered[peer] = None
        except (Unavailable, PeerFault, trio.TooSlowError) as error:
            log.info("not told of our feed", extra={"peer": peer.hex(), "why": str(error)})
        self._tried[peer] = None
        del self._asking[peer]

    def _head_seq(self) -> int:
        head = self._ledger.head(self._ledger.feed)
        return -1 if head is None else head.seq

    def _find_counterparties(self) -> None:
        """The other sides of our newest leases, and their witnesses; more as feeds come in."""
        if self._changes == self._ledger.changes:
            return
        self._changes, own = self._ledger.changes, self._ledger.feed
        ours = (each for each in self._ledger.state.leases() if own in {each.owner, each.renter})
        newest = nlargest(LEASES_MAX, ours, key=lambda lease: (lease.request.start_ms, lease.id))
        feeds = dict.fromkeys(feed for lease in newest for feed in _parties(lease) if feed != own)
        before = self._counterparties
        self._counterparties = {feed: before.get(feed) or self._peer_of(feed) for feed in feeds}

    def _peer_of(self, feed: PublicKey) -> PeerId | None:
        raw = certificate_in(self._ledger, feed)
        return None if raw is None else read_certificate(raw, self._ledger.net).peer_id


def _parties(lease: Lease) -> tuple[PublicKey, ...]:
    """Both sides, and the witnesses that they have named."""
    return (lease.owner, lease.renter, *(lease.request.witnesses or ()))
