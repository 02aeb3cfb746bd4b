"""Lets one peer's gossip in at a pace that we can afford; what is beyond waits at the peer."""

from typing import Any, Final

import trio
from libp2p.peer.id import ID

from p2pnode.network.budget import Budget

BYTES_PER_S: Final = 128 * 1024
BYTES_BURST: Final = 512 * 1024
"""Fifty adverts a second, three hundred at once: a neighbour in a busy network sends a tenth."""
READ_BYTES: Final = 256
"""What each read costs besides its bytes, so that many small frames are no way around."""
PEERS_MAX: Final = 1_024


def reading_budget() -> Budget[ID]:
    """What all gossip streams of a host share, peer by peer."""
    return Budget(per_s=BYTES_PER_S, burst=BYTES_BURST, keys_max=PEERS_MAX)


class PacedStream:
    """A stream of the library whose reads wait until its peer may be heard again.

    The window of the stream is not opened meanwhile, so that the peer has to stop.
    """

    def __init__(self, stream: Any, budget: Budget[ID]) -> None:  # noqa: ANN401 - the library's
        self._stream = stream
        self._budget = budget

    async def read(self, size: int | None = None) -> bytes:
        """Up to so many bytes."""
        data: bytes = await self._stream.read(size)
        peer = self._stream.muxed_conn.peer_id
        wait_s = self._budget.draw(peer, trio.current_time(), READ_BYTES + len(data))
        if wait_s > 0:
            await trio.sleep(wait_s)
        return data

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the library's stream has
        return getattr(self._stream, name)
