"""Passes new entries on at once to a few neighbours, who do the same."""

import random
from collections.abc import Callable
from typing import Final

import trio

from protocol.units import PeerId

SPREAD_S: Final = 1.0
SPREAD_TO: Final = 2
"""Neighbours that hear of new entries at once: two each reach a network in a few rounds."""


class Spreader:
    """Remembers whether there is news, and compares ledgers with a few neighbours if so."""

    def __init__(
        self,
        *,
        meet: Callable[[PeerId], None],
        neighbours: Callable[[], tuple[PeerId, ...]],
        rng: random.Random,
    ) -> None:
        self._meet = meet
        self._neighbours = neighbours
        self._rng = rng
        self._has_news = False

    def note(self) -> None:
        """The ledger has grown."""
        self._has_news = True

    async def run(self) -> None:
        """Spread until cancelled."""
        while True:
            await trio.sleep(SPREAD_S)
            neighbours = self._neighbours()
            if self._has_news and neighbours:
                self._has_news = False
                for peer in self._rng.sample(neighbours, min(SPREAD_TO, len(neighbours))):
                    self._meet(peer)
