"""Moves the frames of one session of sync, and has done what they bring."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import trio

from ledger.bodies import ACCEPT
from ledger.entry import Entry
from ledger.ledger import Ledger, RunTaken
from ledger.sync import Accuse, Effect, Session
from p2pnode.network.frames import FrameReader, write_frame
from p2pnode.replication.conduct import Conduct
from protocol.errors import PeerFault, Unavailable
from protocol.units import PeerId

TURN_S: Final = 15
"""A peer has our frame judged, and its own sent, within this."""

DEAR_S: Final = 0.03
"""What is dear is charged as a conflict for each time so long that it took."""
ACCEPT_BYTES: Final = 512
"""So much of an ACCEPT with cosignatures is charged as an entry: seven signatures of witnesses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One session with one peer."""

    peer: PeerId
    session: Session
    ledger: Ledger
    conduct: Conduct
    on_taken: Callable[[tuple[Entry, ...], RunTaken], None]
    """Entries were judged: these, as far as told."""
    on_waiting: Callable[[], None]
    """Entries were taken that wait to be judged."""
    is_enough: Callable[[], bool]
    """Asked after each turn; then we leave, whatever the peer still has."""
    is_free: bool
    """Whether what comes was asked for by name, and so is not taken from the peer's budget."""
    on_accused: Callable[[], None] = lambda: None
    """Evidence was taken; the session goes on."""

    async def hold(self, stream: trio.abc.Stream, first: bytes | None) -> None:
        """Talk to the end, beginning with the frame `first` if it is ours to begin.

        Raises PeerFault, Unavailable, trio.TooSlowError, and trio.BrokenResourceError.
        """
        reader = FrameReader(stream)
        try:
            if first is not None:
                await self._send(stream, [first])
            while not self.session.is_over and not self.is_enough():
                with trio.fail_after(TURN_S):
                    frame = await _next(reader)
                if frame is None:
                    raise Unavailable("the peer ended the session")
                await self.conduct.wait_turn(self.peer)
                await self._perform(self.session.handle(frame))
                await self._send(stream, self.session.reply())
        finally:
            self.session.end()
        self.conduct.statistics.rounds += 1

    async def _send(self, stream: trio.abc.Stream, frames: list[bytes]) -> None:
        with trio.fail_after(TURN_S):
            for frame in frames:
                await write_frame(stream, frame)

    async def _perform(self, effects: list[Effect]) -> None:
        """One after the other, letting other tasks run between them; on the disk on return."""
        for effect in effects:
            left: Effect | None = effect
            while left is not None:
                left = await self._perform_some(left)
        if effects:
            self.ledger.flush()

    async def _perform_some(self, effect: Effect) -> Effect | None:
        """As much as may be done at once, then a pause; what is left. Raises PeerFault."""
        began_s = trio.current_time()
        done = self.session.perform(effect)
        spent_s = trio.current_time() - began_s
        if isinstance(effect, Accuse):
            self.conduct.statistics.evidence += 1
            self.on_accused()
            await self._pause(1, began_s)
            return None
        if done is None:
            self.on_waiting()
            await self._pause(cost_of(effect.entries), began_s)
            return None
        self.on_taken(effect.entries, done)
        await self._pause(cost_of(effect.entries[: len(done.taken)]), began_s)
        if done.fault is not None:
            raise done.fault
        for _ in range(1 + int(spent_s / DEAR_S) if done.is_dear else 0):
            await self.conduct.wait_conflict(self.peer)
        return effect.after(done)

    async def _pause(self, count: int, began_s: float) -> None:
        """Lets others run, and the peer earn what it has brought."""
        spent_s = trio.current_time() - began_s
        if self.is_free:
            await trio.lowlevel.checkpoint()
        else:
            await self.conduct.wait_stranger(self.peer, count, spent_s=spent_s)


async def _next(reader: FrameReader) -> bytes | None:
    """A frame, or None at the end. A frame that is cut is no fault: the peer may have died."""
    try:
        return await reader.next()
    except PeerFault as fault:
        if fault.rule != "frame.cut":
            raise
        raise Unavailable("the connection was lost within a frame") from fault


def cost_of(entries: Sequence[Entry]) -> int:
    """As how many entries these are charged: an ACCEPT may bear sixty signatures of witnesses."""
    return sum(
        1 + (len(entry.raw) // ACCEPT_BYTES if entry.header.kind == ACCEPT else 0)
        for entry in entries
    )
