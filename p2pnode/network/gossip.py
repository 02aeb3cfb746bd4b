"""From a topic's messages to our state: budget, judge, verdict. No peer can end the feed."""

import logging
from collections.abc import Callable
from typing import Final

import trio

from p2pnode.network.budget import Budget
from p2pnode.network.transport import Judge, Verdict
from protocol.errors import PeerFault
from protocol.units import PeerId

log = logging.getLogger(__name__)

MESSAGES_PER_S: Final = 100
MESSAGES_BURST: Final = 400
"""What one neighbour may make us verify: 100 signatures a second are about 2 % of a core."""
PEERS_MAX: Final = 1_024

PUBLISHED_PER_S: Final = 4
PUBLISHED_BURST: Final = 128
"""What one publisher may make the network pass on: the 64 groups of a feed, renewed in time."""
PUBLISHERS_MAX: Final = 16_384

LATE: Final = ("advert.expired", "advert.future", "certificate.time")
"""Rules that depend on the clock: the forwarder's may differ from ours, so it is not blamed."""

TakeMessage = Callable[[PeerId, bytes], bool]
"""take(publisher, payload) -> whether it was news; raises PeerFault."""


class Feed:
    """The judge of one kind of gossip, and the count of what it refused."""

    def __init__(self, take: TakeMessage) -> None:
        self._take = take
        self._budget: Budget[PeerId] = Budget(
            per_s=MESSAGES_PER_S, burst=MESSAGES_BURST, keys_max=PEERS_MAX
        )
        self._published: Budget[PeerId] = Budget(
            per_s=PUBLISHED_PER_S, burst=PUBLISHED_BURST, keys_max=PUBLISHERS_MAX
        )
        self.taken = 0
        self.late = 0
        self.over_budget = 0
        self.refused: dict[str, int] = {}

    @property
    def judge(self) -> Judge:
        """What the transport calls for each message."""
        return self._judge

    def _judge(self, forwarder: PeerId, publisher: PeerId, payload: bytes) -> Verdict:
        now_s = trio.current_time()
        # The publisher has signed, so nobody can use up the budget of another.
        if not (
            self._budget.is_within(forwarder, now_s) and self._published.is_within(publisher, now_s)
        ):
            self.over_budget += 1
            return Verdict.IGNORE
        try:
            is_news = self._take(publisher, payload)
        except PeerFault as fault:
            self.refused[fault.rule] = self.refused.get(fault.rule, 0) + 1
            log.info(
                "gossip refused",
                extra={"peer": forwarder.hex(), "rule": fault.rule, "detail": fault.detail},
            )
            return Verdict.IGNORE if fault.rule in LATE else Verdict.REJECT
        if not is_news:
            self.late += 1
            return Verdict.IGNORE
        self.taken += 1
        return Verdict.ACCEPT
