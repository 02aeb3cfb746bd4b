"""What a world does to messages: gossip gets lost, frames take their time, streams break."""

import random
from typing import Final

import trio

from p2pnode.network.memory_stream import MemoryStream
from protocol.units import PeerId

PER_CENT: Final = 100
PER_MILLE: Final = 1_000


class Weather:
    """Draws the fate of each message; calm, it only delays them."""

    def __init__(self, dice: random.Random, *, loss_percent: int, breaks_per_mille: int) -> None:
        self._dice = dice
        self._loss_percent = loss_percent
        self._breaks_per_mille = breaks_per_mille
        self.lost = 0
        self.broken = 0

    def calm(self) -> None:
        """From now on nothing is lost."""
        self._loss_percent = 0
        self._breaks_per_mille = 0

    def link(self, _sender: PeerId, _receiver: PeerId) -> bool:
        """See p2pnode.network.memory_transport.Link."""
        is_lost = self._dice.randrange(PER_CENT) < self._loss_percent
        self.lost += is_lost
        return not is_lost

    async def travel(self, stream: trio.abc.Stream) -> None:
        """Mostly a LAN's delay, now and then a bad route's; or the connection breaks."""
        is_slow = self._dice.randrange(20) == 0
        await trio.sleep(self._dice.uniform(0.1, 0.8) if is_slow else self._dice.uniform(0, 0.03))
        if self._dice.randrange(PER_MILLE) < self._breaks_per_mille:
            assert isinstance(stream, MemoryStream)
            self.broken += 1
            stream.reset()
