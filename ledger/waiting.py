"""Entries taken on the word of their feed's newest signature, until each has been judged.

SPEC.md section 5.4. They lie under a key of their own that nothing else reads: they are not
folded, not served, no evidence, and not the head. Judging one is the same as if a peer had just
handed it in.
"""

from hashlib import sha256
from itertools import islice

from ledger import keys
from ledger.entry import Entry, Link, check_link, check_place, check_seal, link_of
from ledger.holdings import Holdings
from ledger.intake import Intake, RunTaken
from ledger.limits import WAITING_MAX
from protocol.errors import PeerFault
from protocol.units import PublicKey


class Waiting:
    """What waits to be judged: of each feed a run that begins behind its head."""

    def __init__(self, held: Holdings, intake: Intake, feed: PublicKey) -> None:
        """`feed` is our own, of which nothing is taken so."""
        self._held = held
        self._intake = intake
        self._feed = feed
        self._ends: dict[PublicKey, Link] = {}
        self._count = 0
        self._doubted: dict[PublicKey, None] = {}
        """Feeds of which something waited that did not hold."""

    def load(self) -> None:
        """Finds what waited when the store was last used."""
        for _, raw in self._held.records.store.range(keys.WAITING, keys.after(keys.WAITING)):
            entry = self._held.records.read(raw)
            self._ends[entry.feed] = link_of(entry.draft)
            self._count += 1

    def end(self, feed: PublicKey) -> Link | None:
        """The last entry of the feed that waits; None if none does."""
        return self._ends.get(feed)

    def feeds(self) -> list[PublicKey]:
        """The feeds of which something waits."""
        return list(self._ends)

    def take(self, run: tuple[Entry, ...]) -> bool:
        """See Ledger.take_on_trust."""
        self._held.check_whole()
        feed = run[0].feed
        if (
            feed == self._feed
            or feed in self._doubted
            or self._held.state.fork_of(feed) is not None
            or self._count + len(run) > WAITING_MAX
        ):
            return False
        after = self._ends.get(feed) or self._held.head(feed)
        for entry in run:
            _check_chained(entry, after)
            after = link_of(entry.draft)
        check_seal(run[-1], self._held.net)
        self._held.write({keys.waiting(feed, entry.seq): entry.raw for entry in run}, sync=False)
        self._ends[feed] = link_of(run[-1].draft)
        self._count += len(run)
        return True

    def judge(self, feed: PublicKey, count: int) -> tuple[tuple[Entry, ...], RunTaken]:
        """See Ledger.judge_waiting."""
        records = self._held.records
        stored = list(islice(records.store.range(*keys.waiting_of(feed)), count))
        run = tuple(records.read(raw) for _, raw in stored)
        done = self._intake.take(run)
        judged = run[: len(done.taken)]
        gone = [key for key, _ in stored[: len(judged)]]
        if done.fault is not None:
            # An id does not cover the signature, so who sent a bad one need not be its author: the
            # rest is asked for again, of anybody, and judged as it comes.
            self._doubted[feed] = None
            gone = [key for key, _ in records.store.range(*keys.waiting_of(feed))]
        self._held.write(dict.fromkeys(gone), sync=False)
        self._count -= len(gone)
        if done.fault is not None or not judged or judged[-1].seq >= self._ends[feed].seq:
            self._ends.pop(feed, None)
        return judged, done


def _check_chained(entry: Entry, after: Link | None) -> None:
    """All of an entry but its signature and its kind. Raises PeerFault `entry.*`."""
    header, body = entry.draft.header, entry.draft.body
    check_place(header)
    check_link(header, after)
    if header.body_len != len(body) or header.body_hash != sha256(body).digest():
        raise PeerFault("entry.body", "not the body that the header names")
