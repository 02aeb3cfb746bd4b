"""Where we are: round trips to some owners, and a coordinate that predicts those to others."""

import logging
from collections.abc import Awaitable, Callable, Iterable
from random import Random
from typing import Final

import trio
from msgspec import UNSET

from p2pnode.matching.book import Offer
from p2pnode.network.coordinates import (
    Coordinate,
    decode_coordinate,
    distance_us,
    encode_coordinate,
    moved,
)
from protocol.errors import PeerFault, Unavailable
from protocol.units import PeerId, PublicKey

log = logging.getLogger(__name__)

PROBE_S: Final = 60.0
"""From one measurement to the next, on average: places move slowly, and pings cost bytes."""
PING_S: Final = 0.5
PINGS: Final = 2
"""The shorter counts: the first may have to wait for something."""
KEPT_MAX: Final = 1_024

Ask = Callable[[PeerId, str, bytes], Awaitable[bytes]]


class Latency:
    """Owns our coordinate and what was measured."""

    def __init__(
        self,
        *,
        ask: Ask,
        offers: Callable[[], Iterable[Offer]],
        note: Callable[[PublicKey, int], None],
        rng: Random,
    ) -> None:
        """`offers`: those of peers that we are connected to; `note(owner, ms)` hears each."""
        self._ask = ask
        self._offers = offers
        self._note = note
        self._rng = rng
        self._own = Coordinate()
        self._trips: dict[PeerId, int] = {}

    def coordinate(self) -> bytes | None:
        """Where we are, as our adverts say it; None before anything was measured."""
        return encode_coordinate(self._own) if self._trips else None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Measure one owner after the other, until cancelled."""
        task_status.started()
        while True:
            await trio.sleep(PROBE_S * self._rng.uniform(0.5, 1.5))
            placed = [offer for offer in self._offers() if _coordinate_of(offer) is not None]
            others = placed or list(self._offers())
            if others:
                await self._look_at(self._rng.choice(others))

    def estimate_us(self, offer: Offer) -> int | None:
        """The round trip to the offer's owner, measured or predicted; None if neither is known."""
        trip = self._trips.get(offer.certificate.peer_id)
        if trip is not None:
            return trip
        place = _coordinate_of(offer)
        if place is None or not self._trips:
            return None
        return distance_us(self._own, place)

    async def _look_at(self, offer: Offer) -> None:
        peer = offer.certificate.peer_id
        rtts = [rtt for _ in range(PINGS) if (rtt := await self._ping(peer)) is not None]
        if not rtts:
            self._trips.pop(peer, None)
            return
        self._trips.pop(peer, None)
        self._trips[peer] = min(rtts)
        while len(self._trips) > KEPT_MAX:
            del self._trips[next(iter(self._trips))]
        self._note(offer.signer, -(-min(rtts) // 1_000))
        # Somebody who states no place is where we are, and as unsure as can be.
        place = _coordinate_of(offer) or Coordinate()
        self._own = moved(self._own, place, min(rtts), self._rng)

    async def _ping(self, peer: PeerId) -> int | None:
        """Microseconds, or None of a peer that does not answer in time."""
        began = trio.current_time()
        try:
            with trio.fail_after(PING_S):
                await self._ask(peer, "ping", b"")
        except (Unavailable, PeerFault, trio.TooSlowError) as error:
            log.debug("no ping", extra={"peer": peer.hex(), "why": str(error)})
            return None
        return round((trio.current_time() - began) * 1_000_000)


def _coordinate_of(offer: Offer) -> Coordinate | None:
    stated = offer.advert.coordinate
    return None if stated is UNSET else decode_coordinate(stated)
