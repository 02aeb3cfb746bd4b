"""How far the owners are: measured round trips of some, a coordinate that predicts the others."""

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
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
from protocol.units import PeerId

log = logging.getLogger(__name__)

PROBE_S: Final = (10.0, 20.0)
"""Bounds between which each pause is drawn: a light client spends some bytes a minute."""
PING_S: Final = 0.5
PINGS: Final = 2
"""Of each of the final few, of which the shorter counts: the first may have to dial."""
FRESH_S: Final = 60.0
"""A round trip that was measured so lately is not measured again."""
KEPT_MAX: Final = 1_024

Ask = Callable[[PeerId, str, bytes], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class _Trip:
    rtt_us: int
    at_s: float


class Latency:
    """Owns our coordinate and what was measured."""

    def __init__(self, *, ask: Ask, offers: Callable[[], Iterable[Offer]], rng: Random) -> None:
        """`offers` are those of others that are open now."""
        self._ask = ask
        self._offers = offers
        self._rng = rng
        self._own = Coordinate()
        self._trips: dict[PeerId, _Trip] = {}

    def coordinate(self) -> bytes | None:
        """Where we are, as our adverts say it; None before anything was measured."""
        return encode_coordinate(self._own) if self._trips else None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Measure one owner after the other, until cancelled."""
        task_status.started()
        while True:
            await trio.sleep(self._rng.uniform(*PROBE_S))
            placed = [offer for offer in self._offers() if _coordinate_of(offer) is not None]
            others = placed or list(self._offers())
            if others:
                await self._look_at(self._rng.choice(others))

    def estimate_us(self, offer: Offer) -> int | None:
        """The round trip to the offer's owner, measured or predicted; None if neither is known."""
        trip = self._trips.get(offer.certificate.peer_id)
        if trip is not None:
            return trip.rtt_us
        place = _coordinate_of(offer)
        if place is None or not self._trips:
            return None
        return distance_us(self._own, place)

    async def measure(self, offers: list[Offer]) -> dict[PeerId, int]:
        """Round trips to these owners in microseconds, asked all at once; who is silent lacks."""
        async with trio.open_nursery() as nursery:
            for offer in offers:
                trip = self._trips.get(offer.certificate.peer_id)
                if trip is None or trio.current_time() - trip.at_s > FRESH_S:
                    nursery.start_soon(self._look_at, offer)
        peers = {offer.certificate.peer_id for offer in offers}
        return {peer: trip.rtt_us for peer, trip in self._trips.items() if peer in peers}

    async def _look_at(self, offer: Offer) -> None:
        peer = offer.certificate.peer_id
        rtts = [rtt for _ in range(PINGS) if (rtt := await self._ping(peer)) is not None]
        if not rtts:
            self._trips.pop(peer, None)
            return
        self._trips.pop(peer, None)
        self._trips[peer] = _Trip(min(rtts), trio.current_time())
        while len(self._trips) > KEPT_MAX:
            del self._trips[next(iter(self._trips))]
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
