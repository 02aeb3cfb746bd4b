"""Sums up our own feed now and then, so that others may drop the bodies of what is old."""

import logging
from typing import Final

import trio

from ledger.ledger import Ledger
from p2pnode.clock import WallClock
from protocol.errors import LocalFault

log = logging.getLogger(__name__)

LOOK_S: Final = 3_600
ENTRIES_MIN: Final = 1_000
"""New entries since the last checkpoint: one costs a few kilobytes, these some hundred."""


def is_due(ledger: Ledger) -> bool:
    """Whether our feed has grown enough since it was summed up."""
    head = ledger.head(ledger.feed)
    if head is None or head.fork is not None:
        return False
    places = [part.upto for part in ledger.state.checkpoints(ledger.feed)]
    return head.seq - max(places, default=0) >= ENTRIES_MIN


async def keep_summed_up(ledger: Ledger, clock: WallClock) -> None:
    """Write checkpoints when they are due, until cancelled."""
    while True:
        await trio.sleep(LOOK_S)
        if is_due(ledger):
            try:
                parts = ledger.checkpoint(clock.now())
            except LocalFault as fault:
                log.warning("no checkpoint", extra={"why": str(fault)})
            else:
                log.info("feed summed up", extra={"parts": len(parts)})
