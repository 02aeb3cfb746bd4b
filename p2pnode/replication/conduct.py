"""How peers behave in sync: what they may make us do, and which rules they broke."""

import logging
from dataclasses import dataclass, field
from typing import Final

import trio

from p2pnode.network.budget import Budget
from protocol.errors import PeerFault, Unavailable
from protocol.units import PeerId

log = logging.getLogger(__name__)

STRANGERS_PER_S: Final = 500
STRANGERS_BURST: Final = 20_000
"""Entries and evidence that one peer may bring of feeds that we did not ask for by name: a small
network's at once.
"""
SPARE: Final = 0.5
"""Share of the time in which all peers together may bring more than that: who was away for a week
lacks more than a burst, and a flood from ever so many leaves the other half for everything else.
"""
SPARE_BURST_S: Final = 0.1
ENTRY_S_MIN: Final = 0.0001
"""What one entry is charged of that time, if it took less."""
CONFLICT_ENTRIES: Final = 50
"""What a conflict is charged as: it is compared with all others at its place, in up to 30 ms."""
FEEDS_PER_S: Final = 64 / 3_600
FEEDS_BURST: Final = 64
"""Feeds of strangers that one peer may bring once half of the room is taken: 46,000 in a month,
and three weeks for who wants to take the other half with made-up ones.
"""
ALL_FEEDS_PER_S: Final = 1_024 / 3_600
ALL_FEEDS_BURST: Final = 1_024
"""All peers together, since peers are made up as easily as feeds: at least 32 hours for them."""
TURNS_PER_S: Final = 20
TURNS_BURST: Final = 200
"""Bounds what one peer can make us read and send to a few megabytes a second."""
FAULTS_PER_S: Final = 1 / 60
FAULTS_BURST: Final = 3
"""A peer that breaks more rules than this is left alone until it has been quiet for a while."""
PEERS_MAX: Final = 4_096


@dataclass(slots=True)
class Statistics:
    """What came of all sessions so far."""

    rounds: int = 0
    """Sessions, whoever opened them, that came to their end."""
    entries: int = 0
    evidence: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    """How often peers broke each rule."""


class Conduct:
    """What each peer has left of its budgets."""

    def __init__(self) -> None:
        self.statistics: Final = Statistics()
        self._strangers = _budget(STRANGERS_PER_S, STRANGERS_BURST)
        self._spare: Budget[None] = Budget(per_s=SPARE, burst=SPARE_BURST_S, keys_max=1)
        self._feeds = _budget(FEEDS_PER_S, FEEDS_BURST)
        self._all_feeds: Budget[None] = Budget(
            per_s=ALL_FEEDS_PER_S, burst=ALL_FEEDS_BURST, keys_max=1
        )
        self._turns = _budget(TURNS_PER_S, TURNS_BURST)
        self._faults = _budget(FAULTS_PER_S, FAULTS_BURST)

    async def wait_turn(self, peer: PeerId) -> None:
        """The peer may have another frame judged and answered."""
        await trio.sleep(self._turns.draw(peer, trio.current_time()))

    async def wait_stranger(self, peer: PeerId, count: int = 1, *, spent_s: float = 0) -> None:
        """The peer brought so many entries of feeds that we did not ask for by name, and may more.

        They took `spent_s` seconds. Beyond its own budget a peer shares the spare time.
        """
        now_s = trio.current_time()
        if self._strangers.left(peer, now_s) >= count:
            self._strangers.draw(peer, now_s, count)
            await trio.lowlevel.checkpoint()
        else:
            charged_s = max(spent_s, count * ENTRY_S_MIN)
            await trio.sleep(self._spare.draw(None, now_s, charged_s))

    async def wait_conflict(self, peer: PeerId) -> None:
        """The peer brought a conflict, which is paid for afterwards: only then is it known.

        Out of its own budget alone: no honest peer has many.
        """
        await trio.sleep(self._strangers.draw(peer, trio.current_time(), CONFLICT_ENTRIES))

    def take_feed(self, peer: PeerId) -> bool:
        """Whether the peer may bring one more stranger's feed, which is then counted."""
        now_s = trio.current_time()
        if min(self._feeds.left(peer, now_s), self._all_feeds.left(None, now_s)) < 1:
            return False
        self._draw_feed(peer, 1)
        return True

    def give_back_feed(self, peer: PeerId) -> None:
        """One that was counted did not come."""
        self._draw_feed(peer, -1)

    def _draw_feed(self, peer: PeerId, count: int) -> None:
        now_s = trio.current_time()
        self._feeds.draw(peer, now_s, count)
        self._all_feeds.draw(None, now_s, count)

    def count(self, peer: PeerId, fault: PeerFault) -> None:
        """The peer broke a rule."""
        refused = self.statistics.refused
        refused[fault.rule] = refused.get(fault.rule, 0) + 1
        self._faults.is_within(peer, trio.current_time())
        log.info(
            "peer broke a rule",
            extra={"peer": peer.hex(), "rule": fault.rule, "detail": fault.detail},
        )

    def is_shunned(self, peer: PeerId) -> bool:
        """Whether the peer broke too many rules of late."""
        return self._faults.left(peer, trio.current_time()) < 1

    def check_welcome(self, peer: PeerId) -> None:
        """Raises Unavailable for a peer that is shunned."""
        if self.is_shunned(peer):
            raise Unavailable("shunned for the rules it broke")


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerPace:
    """See Pace."""

    conduct: Conduct
    peer: PeerId

    def take(self) -> bool:
        return self.conduct.take_feed(self.peer)

    def give_back(self) -> None:
        self.conduct.give_back_feed(self.peer)


def _budget(per_s: float, burst: float) -> Budget[PeerId]:
    return Budget(per_s=per_s, burst=burst, keys_max=PEERS_MAX)
