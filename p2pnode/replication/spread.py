"""Passes news on at once: entries to a few neighbours, who do the same, evidence to all."""

import random
from collections.abc import Callable
from typing import Final

import trio

from protocol.units import PeerId

SPREAD_S: Final = 1.0
SPREAD_TO: Final = 2
"""Neighbours that hear of new entries at once: two each reach a network in a few rounds."""
SPREAD_TO_LIGHT: Final = 4
"""Of a light client, whose entries few others have: one of the two might be the very owner that
shows it another feed than everybody else, and the other a light client too.
"""
WARN_TO: Final = 64
"""Neighbours that hear of new evidence at once; of more, as many as are drawn."""
WARN_REST_S: Final = 1.0
"""Between two warnings, so that whoever keeps proving things against its own keys cannot have
everybody talk to everybody without end. What was proved meanwhile is in the next one.
"""


class Spreader:
    """Remembers whether there is news, and compares ledgers with neighbours if so."""

    def __init__(
        self,
        *,
        meet: Callable[[PeerId], None],
        neighbours: Callable[[], tuple[PeerId, ...]],
        spread_to: int,
        rng: random.Random,
    ) -> None:
        self._meet = meet
        self._neighbours = neighbours
        self._spread_to = spread_to
        self._rng = rng
        self._has_news = False
        self._proved = trio.Event()

    def note(self) -> None:
        """The ledger has grown."""
        self._has_news = True

    def warn(self) -> None:
        """There is evidence that was not here before."""
        self._proved.set()

    async def run(self) -> None:
        """Spread until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._spread)
            nursery.start_soon(self._warn)

    async def _spread(self) -> None:
        while True:
            await trio.sleep(SPREAD_S)
            if self._has_news and self._neighbours():
                self._has_news = False
                self._meet_some(self._spread_to)

    async def _warn(self) -> None:
        while True:
            await self._proved.wait()
            self._proved = trio.Event()
            # Who becomes a neighbour later is compared with then.
            self._meet_some(WARN_TO)
            await trio.sleep(WARN_REST_S)

    def _meet_some(self, most: int) -> None:
        neighbours = self._neighbours()
        for peer in self._rng.sample(neighbours, min(most, len(neighbours))):
            self._meet(peer)
