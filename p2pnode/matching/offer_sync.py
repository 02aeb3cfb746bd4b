"""Anti-entropy of offers: what gossip lost is found by comparing heads with a neighbour.

SPEC.md 8.4. On each new neighbour, and every ten seconds with a random one.
"""

import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final

import trio
from msgspec import UNSET

from p2pnode.clock import WallClock
from p2pnode.matching.book import Book
from p2pnode.network.exchange import Handler
from protocol.codec import decode, encode
from protocol.errors import PeerFault, Unavailable
from protocol.limits import FRAME_BYTES_MAX, OFFER_HEADS_MAX, OFFERS_ASKED_MAX
from protocol.offers import Heads, HeadsAsk, Offers, OffersAsk
from protocol.units import PeerId

log = logging.getLogger(__name__)

ROUND_S: Final = 10
SYNC_S: Final = 10
"""One neighbour gets this long for a whole comparison."""
NEIGHBOURS_WAITING_MAX: Final = 64
HEADS_ASK_BYTES_MAX: Final = 256
OFFERS_ASK_BYTES_MAX: Final = 1_024

Ask = Callable[[PeerId, str, bytes], Awaitable[bytes]]
TakeOffer = Callable[[bytes], bool]
"""take(sealed advert) -> whether it was news; raises PeerFault."""


class OfferSync:
    """Pulls from neighbours what our book lacks, and answers theirs."""

    def __init__(
        self,
        *,
        book: Book,
        take: TakeOffer,
        ask: Ask,
        neighbours: Callable[[], tuple[PeerId, ...]],
        rng: random.Random,
        clock: WallClock,
    ) -> None:
        self._book = book
        self._take = take
        self._ask = ask
        self._neighbours = neighbours
        self._rng = rng
        self._clock = clock
        self._to_meet, self._met = trio.open_memory_channel[PeerId](NEIGHBOURS_WAITING_MAX)
        self.rounds = 0
        self.found = 0
        """Adverts that gossip had not brought."""

    @property
    def handlers(self) -> dict[str, Handler]:
        """The questions that this part answers."""
        return {"offers.heads": self._answer_heads, "offers.get": self._answer_offers}

    def meet(self, peer: PeerId) -> None:
        """A new neighbour: compare with it soon. When too many wait, the steady rounds find it."""
        try:
            self._to_meet.send_nowait(peer)
        except trio.WouldBlock:
            log.debug("too many new neighbours", extra={"peer": peer.hex()})

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Compare until cancelled."""
        task_status.started()
        next_round = trio.current_time() + ROUND_S
        while True:
            peer = None
            with trio.move_on_at(next_round):
                peer = await self._met.receive()
            if peer is None:
                next_round = trio.current_time() + ROUND_S * self._rng.uniform(0.8, 1.2)
                self._book.expire(self._clock.now())
                neighbours = self._neighbours()
                if not neighbours:
                    continue
                peer = self._rng.choice(neighbours)
            await self._sync_with(peer)

    async def _sync_with(self, peer: PeerId) -> None:
        self.rounds += 1
        try:
            with trio.fail_after(SYNC_S):
                await self._pull(peer)
        except (Unavailable, PeerFault, trio.TooSlowError) as error:
            log.info("offer sync failed", extra={"peer": peer.hex(), "why": str(error)})

    async def _pull(self, peer: PeerId) -> None:
        after = None
        while True:
            ask = HeadsAsk(root=self._book.root(), after=UNSET if after is None else after)
            raw = await self._ask(peer, "offers.heads", encode(ask))
            answer = decode(raw, Heads, size_max=FRAME_BYTES_MAX)
            wanted = [head[0] for head in answer.heads if self._book.wants(head)]
            for start in range(0, len(wanted), OFFERS_ASKED_MAX):
                await self._fetch(peer, tuple(wanted[start : start + OFFERS_ASKED_MAX]))
            if len(answer.heads) < OFFER_HEADS_MAX:
                return
            if after is not None and answer.heads[-1][0] <= after:
                raise PeerFault("offers.order")
            after = answer.heads[-1][0]

    async def _fetch(self, peer: PeerId, groups: tuple[bytes, ...]) -> None:
        raw = await self._ask(peer, "offers.get", encode(OffersAsk(groups=groups)))
        for advert in decode(raw, Offers, size_max=FRAME_BYTES_MAX).adverts:
            try:
                self.found += self._take(advert)
            except PeerFault as fault:
                # It may have expired on the way; a peer that hands on worse is only useless.
                log.info("offer refused", extra={"peer": peer.hex(), "rule": fault.rule})

    async def _answer_heads(self, _peer: PeerId, body: bytes) -> bytes:
        ask = decode(body, HeadsAsk, size_max=HEADS_ASK_BYTES_MAX)
        self._book.expire(self._clock.now())
        root = self._book.root()
        after = None if ask.after is UNSET else ask.after
        heads = () if ask.root == root else self._book.heads(after)
        await trio.lowlevel.checkpoint()
        return encode(Heads(root=root, heads=heads))

    async def _answer_offers(self, _peer: PeerId, body: bytes) -> bytes:
        ask = decode(body, OffersAsk, size_max=OFFERS_ASK_BYTES_MAX)
        offers = [self._book.get(group) for group in ask.groups]
        await trio.lowlevel.checkpoint()
        return encode(Offers(adverts=tuple(offer.raw for offer in offers if offer is not None)))
