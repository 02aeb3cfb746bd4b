"""What one replica still wants of another in a session of sync. SPEC.md section "Sync"."""

from collections.abc import Iterator
from dataclasses import dataclass

from ledger.admission import Admission
from ledger.entry import Entry, read_entry
from ledger.frontier import HeadItem, id_at
from ledger.ledger import Ledger
from ledger.limits import FORK_WINDOW, PUSH_MAX, TAIL_MAX, TRUST_FROM, WANTS_MAX
from ledger.ranges import Part
from ledger.sync_messages import Run, Tail, Want
from protocol.errors import PeerFault
from protocol.units import PublicKey

Ask = Want | Tail


class Claims(dict[PublicKey, HeadItem]):
    """What sessions with one peer are bringing now, so that two of them do not bring it twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What was asked, and how many entries came of it; None while no answer has come."""

    ask: Ask
    came: int | None = None


class Pulls:
    """The feeds of which the peer has something that we lack.

    What is asked for must bring us on, else the feed is left to a later session.
    """

    def __init__(self, ledger: Ledger, admission: Admission, claims: Claims) -> None:
        """`claims` are those of all sessions with this peer; ours are among them until `end`."""
        self._ledger = ledger
        self._admission = admission
        self._claims = claims
        self._wanted: dict[PublicKey, HeadItem] = {}
        self._asked: dict[PublicKey, _Asked] = {}
        self._listed: dict[PublicKey, int] = {}
        """The place behind what we have of a feed, which the peer was told."""

    def add(self, theirs: HeadItem) -> None:
        """The peer has this of a feed, and we do not; another session may be bringing it."""
        claimed = self._claims.get(theirs.feed)
        if claimed is None or not _covers(claimed, theirs):
            self._claims[theirs.feed] = self._wanted.setdefault(theirs.feed, theirs)

    def end(self) -> None:
        """Nothing more is asked; other sessions may ask for what is left."""
        for feed in list(self._wanted):
            self._drop(feed)

    def _drop(self, feed: PublicKey) -> None:
        if self._claims.get(feed) is self._wanted.pop(feed):
            del self._claims[feed]
        self._admission.leave(feed)

    def note_listed(self, part: Part[HeadItem]) -> None:
        """We tell the peer this: what comes after a head that we list, it may send at once."""
        for leaf in part.leaves or ():
            for item in leaf.items:
                if not item.forked:
                    self._listed[item.feed] = item.seq + 1

    def is_long(self, feed: PublicKey) -> bool:
        """Whether we are so far behind with the feed that its entries may wait to be judged."""
        theirs, head = self._wanted.get(feed), self._ledger.head(feed)
        held = 0 if head is None else head.seq + 1
        return theirs is not None and not theirs.forked and theirs.seq - held >= TRUST_FROM

    def take(self, runs: tuple[Run, ...]) -> list[list[Entry]]:
        """The entries of these runs, which must be what was asked for or follow what was listed.

        Raises PeerFault `sync.unasked`, `sync.run`, or as `read_entry`.
        """
        taken = [self._taken(run) for run in runs]
        if not any(each.came is not None for each in self._asked.values()):
            # Somebody who is asked and does not answer at all has no room for it in any turn.
            for feed in self._asked:
                self._drop(feed)
            self._asked.clear()
        return taken

    def _taken(self, run: Run) -> list[Entry]:
        asked = self._asked.get(run.feed)
        is_asked = asked is not None and asked.came is None
        first = None if is_asked else self._listed.pop(run.feed, None)
        if not is_asked and first is None:
            raise PeerFault("sync.unasked", "a run that nobody asked for")
        read = [read_entry(raw, self._ledger.net) for raw in run.entries]
        if first is not None:
            _check_run(Want(run.feed, first, first + PUSH_MAX), read)
        elif asked is not None:
            _check_run(asked.ask, read)
            self._asked[run.feed] = _Asked(ask=asked.ask, came=len(read))
        return read

    def pause(self) -> None:
        """Nothing is asked in this turn."""
        self._asked = {feed: each for feed, each in self._asked.items() if each.came is not None}

    def next_asks(self) -> tuple[tuple[Want, ...], tuple[Tail, ...]]:
        """What to ask now that all entries taken are in the ledger."""
        asks = list(self._next_asks())
        self._asked = {ask.feed: _Asked(ask=ask) for ask in asks}
        wants = tuple(ask for ask in asks if isinstance(ask, Want))
        return wants, tuple(ask for ask in asks if isinstance(ask, Tail))

    def _next_asks(self) -> Iterator[Ask]:
        count = 0
        for feed, theirs in list(self._wanted.items()):
            if count == WANTS_MAX:
                return
            ask = self._next_ask(theirs)
            if ask is None or not self._admission.admit(feed):
                self._drop(feed)
            else:
                count += 1
                yield ask

    def _next_ask(self, theirs: HeadItem) -> Ask | None:
        asked = self._asked.get(theirs.feed)
        ask = plan(self._ledger, theirs)
        if asked is None or asked.came is None:
            return ask
        if asked.came == 0:
            return None
        if isinstance(ask, Tail) and isinstance(asked.ask, Tail) and ask.first == asked.ask.first:
            return Tail(ask.feed, ask.first, asked.ask.skip + asked.came)
        return None if ask == asked.ask else ask


def plan(ledger: Ledger, theirs: HeadItem) -> Ask | None:
    """The first thing to ask of a peer that has this; None if we have it."""
    feed, head = theirs.feed, ledger.head(theirs.feed)
    forks = [theirs.seq] if theirs.forked else []
    if (known := ledger.state.fork_of(feed)) is not None:
        forks.append(known)
    held = 0 if head is None else head.seq + 1
    waiting = ledger.waiting_end(feed)
    if waiting is not None:
        held = max(held, waiting.seq + 1)
    if forks:
        fork = min(forks)
        return Want(feed, held, fork) if held < fork else Tail(feed, max(0, fork - FORK_WINDOW), 0)
    if theirs.seq >= held:
        return Want(feed, held, theirs.seq + 1)
    if waiting is not None:
        return None  # Whether it is the same is seen when what waits has been judged.
    ours = id_at(ledger, feed, theirs.seq)
    if ours is not None and ours[:16] == theirs.id16:
        return None
    return Want(feed, theirs.seq, theirs.seq + 1)


def _covers(claimed: HeadItem, theirs: HeadItem) -> bool:
    """Whether what brings the one brings the other, too."""
    is_longer = not claimed.forked and not theirs.forked and claimed.seq > theirs.seq
    return is_longer or claimed == theirs


def _check_run(ask: Ask, entries: list[Entry]) -> None:
    if any(entry.feed != ask.feed for entry in entries):
        raise PeerFault("sync.run", "an entry of another feed")
    seqs = [entry.seq for entry in entries]
    if isinstance(ask, Want):
        stop = min(ask.first + len(seqs), ask.stop)
        is_asked = seqs == list(range(ask.first, stop))
    else:
        is_asked = ask.skip + len(seqs) <= TAIL_MAX and all(seq >= ask.first for seq in seqs)
    if not is_asked:
        raise PeerFault("sync.run", "not the places that were asked for")
