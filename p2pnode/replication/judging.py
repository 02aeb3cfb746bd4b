"""Judges, beside everything else, the entries that a long catch-up has taken on trust."""

import logging
from collections.abc import Callable
from typing import Final

import trio

from ledger.entry import Entry
from ledger.ledger import Ledger, RunTaken
from protocol.units import PublicKey

log = logging.getLogger(__name__)

PAUSE_S: Final = 0.005
"""Between runs of entries, which take about twice as long. One that was dear can take much longer;
after it others have as long again."""


class LateJudge:
    """Takes up one feed after the other for as long as anything waits."""

    def __init__(self, ledger: Ledger, note: Callable[[tuple[Entry, ...], RunTaken], None]) -> None:
        """`note` is told of each run of one feed that was judged, and how."""
        self._ledger = ledger
        self._note = note
        self._has_work = trio.Event()

    def wake(self) -> None:
        """Something waits."""
        self._has_work.set()

    async def run(self) -> None:
        """Judge until cancelled, beginning with what waited when the node last stopped."""
        while True:
            for feed in self._ledger.waiting_feeds():
                await self.judge(feed)
            if not self._ledger.waiting_feeds():
                self._has_work = trio.Event()
                await self._has_work.wait()

    async def judge(self, feed: PublicKey) -> None:
        """Nothing of the feed waits on return."""
        while self._ledger.waiting_end(feed) is not None:
            began_s = trio.current_time()
            entries, done = self._ledger.judge_waiting(feed)
            spent_s = trio.current_time() - began_s
            if done.fault is not None:
                log.info(
                    "an entry taken on trust did not hold",
                    extra={"feed": feed.hex(), "rule": done.fault.rule},
                )
            self._note(entries, done)
            await trio.sleep(max(PAUSE_S, spent_s) if done.is_dear else PAUSE_S)
        self._ledger.flush()
