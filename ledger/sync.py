"""One session of sync: two replicas talk until both have what either had. SPEC.md section "Sync".

The sides speak in turns, so neither can flood the other and nothing can block both. Reads the
ledger; what a turn brings is handed out as effects, of which `perform` does one.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from msgspec import UNSET

from ledger.admission import UNPACED, Admission, Pace
from ledger.entry import Entry
from ledger.frontier import Frontier, HeadItem, head_key, proof_id, proof_key
from ledger.ledger import Ledger, RunTaken, Taken
from ledger.limits import (
    COMPARE_BYTES,
    EVIDENCE_TURNS_MAX,
    INGEST_AT_ONCE,
    PROOFS_BYTES,
    SYNC_HELLO_BYTES_MAX,
    TURN_BYTES,
    WANTS_MAX,
)
from ledger.pulls import Ask, Claims, Pulls
from ledger.ranges import Compare, Items, Part
from ledger.serving import follow_ups, prove, serve
from ledger.sync_messages import SyncHello, Tail, Turn, Want, is_empty
from protocol.codec import decode, encode
from protocol.errors import PeerFault
from protocol.limits import FRAME_BYTES_MAX
from protocol.units import Digest, PublicKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuse:
    """Evidence that was asked for has come."""

    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingest:
    """Entries of one feed have come, at most INGEST_AT_ONCE."""

    entries: tuple[Entry, ...]

    def after(self, done: RunTaken) -> "Ingest | None":
        """What is left to do when so much has been done."""
        left = self.entries[len(done.taken) :]
        return Ingest(entries=left) if left and done.fault is None else None


Effect = Accuse | Ingest
Feeds = dict[PublicKey, None]


class _Talk:
    """What a session knows once both have said HELLO."""

    def __init__(
        self, heads: Items[HeadItem], proofs: Items[Digest], *, only: Feeds | None, is_first: bool
    ) -> None:
        self.only = only
        self.heads = Compare(heads, head_key, is_first=is_first)
        self.proofs = Compare(proofs, proof_key, is_first=is_first)
        self.asked_proofs: dict[Digest, None] = {}
        self.wanted_proofs: dict[Digest, None] = {}
        self.to_prove: tuple[Digest, ...] = ()
        self.to_serve: tuple[Ask, ...] = ()
        self.to_push: tuple[Ask, ...] = ()
        self.waited = 0
        """Turns in which we asked for no entries because of evidence."""
        self.has_heard_all = False
        """Whether the last turn that came was empty."""
        self.has_said_all = False
        """Whether the last turn that went was empty."""


class Session:
    """One side of one session.

    The opener sends `hello()`. Then each frame that comes goes to `handle`, its effects to
    `perform`, and what `reply` gives is sent, until `is_over`.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        frontier: Frontier,
        only: tuple[PublicKey, ...] | None,
        keeps: Callable[[PublicKey], bool],
        is_opener: bool,
        may_trust: bool = False,
        claims: Claims | None = None,
        pace: Pace = UNPACED,
    ) -> None:
        """`only` are the feeds that we want to talk about, None all.

        `keeps` says whether we talk about a feed that the opener names; `may_trust`, whether
        entries of which many are missing may wait to be judged. `claims` are shared by sessions
        with the same peer that need not bring the same entries twice. `pace` is the peer's.
        """
        self._ledger = ledger
        self._frontier = frontier
        self._only: Feeds | None = None if only is None else dict.fromkeys(only)
        self._keeps = keeps
        self._is_opener = is_opener
        self._may_trust = may_trust
        self._admission = Admission(frontier, named=self._only, pace=pace)
        self._pulls = Pulls(ledger, self._admission, Claims() if claims is None else claims)
        self._talk: _Talk | None = None
        self._to_send: list[bytes] = []
        self._changed: Feeds = {}
        self._may_accuse = False
        self._is_turn_due = False
        self.is_over = False
        self.has_learned = False
        """Whether something came that was not here. It may show a fork that another session is
        needed for.
        """

    def hello(self) -> bytes:
        """The frame with which the opener begins."""
        assert self._is_opener
        heads, proofs = self._items(self._only)
        self._said = self._hello(heads, proofs, self._only)
        return encode(self._said)

    def handle(self, frame: bytes) -> list[Effect]:
        """What is to be done about the peer's next frame, evidence first.

        Raises PeerFault `sync.*`, `codec.*` or `entry.*`; then the session is at its end.
        """
        if self._talk is None:
            self._meet(decode(frame, SyncHello, size_max=SYNC_HELLO_BYTES_MAX))
            return []
        turn = decode(frame, Turn, size_max=FRAME_BYTES_MAX)
        effects = self._take(self._talk, turn)
        self._talk.has_heard_all = is_empty(turn)
        self.is_over = self._talk.has_heard_all and self._talk.has_said_all
        self._is_turn_due = not self.is_over
        return effects

    def perform(self, effect: Effect) -> RunTaken | None:
        """Does it; what became of entries, of which some may be left to do (`Ingest.after`).

        None for entries that wait to be judged. Raises PeerFault as `Ledger.accuse` and
        `Ledger.take_on_trust`.
        """
        match effect:
            case Accuse():
                self._accuse(effect.raw)
                return None
            case Ingest():
                if self._trusts(effect.entries):
                    self.has_learned = True
                    return None
                done = self._ledger.ingest_run(effect.entries)
                # An honest peer's may be MISSING its predecessor: of long branches we keep a part.
                for entry, taken in zip(effect.entries, done.taken, strict=False):
                    self._note(entry, taken)
                self._may_accuse |= done.is_dear
                return done

    def _trusts(self, entries: tuple[Entry, ...]) -> bool:
        """Whether these are kept to be judged later; what waits of a feed must be judged first."""
        feed = entries[0].feed
        end, head = self._ledger.waiting_end(feed), self._ledger.head(feed)
        if end is None:
            place = 0 if head is None else head.seq + 1
            is_long = self._may_trust and self._pulls.is_long(feed)
        else:
            place, is_long = end.seq + 1, True
        return is_long and entries[0].seq == place and self._ledger.take_on_trust(entries)

    def _note(self, entry: Entry, taken: Taken) -> None:
        if taken is Taken.NEW or taken is Taken.CONFLICT:
            self._changed[entry.feed] = None
            self.has_learned = True

    def settle(self) -> None:
        """Lets the frontier know what was done."""
        for feed in self._changed:
            self._frontier.refresh(feed)
        self._changed.clear()
        if self._may_accuse:
            self._may_accuse = False
            self.has_learned |= self._frontier.refresh_proofs()

    def end(self) -> None:
        """Settles, and leaves to other sessions what has not come. However the session ended."""
        self.settle()
        self._pulls.end()

    def reply(self) -> list[bytes]:
        """The frames to send now that all effects are done."""
        self.settle()
        frames, self._to_send = self._to_send, []
        if not self._is_turn_due:
            return frames
        assert self._talk is not None
        self._is_turn_due = False
        turn = self._turn(self._talk)
        self._talk.has_said_all = is_empty(turn)
        self.is_over = self._talk.has_said_all and self._talk.has_heard_all
        return [*frames, encode(turn)]

    def _hello(
        self, heads: Items[HeadItem], proofs: Items[Digest], only: Feeds | None
    ) -> SyncHello:
        return SyncHello(
            net=self._ledger.net,
            uuid=self._ledger.uuid,
            feeds=len(heads),
            root=heads.root(),
            proofs=proofs.root(),
            only=UNSET if only is None else tuple(only),
        )

    def _meet(self, theirs: SyncHello) -> None:
        if theirs.net != self._ledger.net:
            raise PeerFault("sync.net", "another network")
        only = self._scope(theirs)
        heads, proofs = self._items(only)
        self._talk = _Talk(heads, proofs, only=only, is_first=not self._is_opener)
        if not self._is_opener:
            self._said = self._hello(heads, proofs, None if self._only is None else only)
            self._to_send.append(encode(self._said))
        is_equal = (theirs.root, theirs.proofs) == (self._said.root, self._said.proofs)
        self.is_over = is_equal
        self._is_turn_due = not is_equal and not self._is_opener

    def _scope(self, theirs: SyncHello) -> Feeds | None:
        """The feeds that both want to talk about; None for all.

        Whoever answers may say yes to a feed that it has nothing of yet.
        """
        if theirs.only is UNSET:
            return self._only
        if not self._is_opener:
            return {feed: None for feed in theirs.only if self._keeps(feed)}
        named = self._only
        return {feed: None for feed in theirs.only if named is None or feed in named}

    def _items(self, only: Feeds | None) -> tuple[Items[HeadItem], Items[Digest]]:
        """Evidence is everybody's, whichever feeds the session is about."""
        heads = self._frontier.heads if only is None else self._frontier.heads_of(only)
        return heads, self._frontier.proofs

    def _take(self, talk: _Talk, turn: Turn) -> list[Effect]:
        runs = self._pulls.take(turn.runs or ())
        proofs = _proofs(talk, turn.proofs or ())
        heads = talk.heads.take(turn.heads or Part())
        for item in heads:
            if talk.only is not None and item.feed not in talk.only:
                raise PeerFault("sync.scope", "a feed that this session is not about")
            if self._admission.may_want(item.feed):
                self._pulls.add(item)
        for proof in talk.proofs.take(turn.offences or Part()):
            talk.wanted_proofs[proof] = None
        talk.to_prove = turn.accuse or ()
        talk.to_serve = (*(turn.wants or ()), *(turn.tails or ()))
        talk.to_push = follow_ups(self._ledger, talk.heads.differing())
        accusations = [Accuse(raw=raw) for raw in proofs]
        return [*accusations, *(effect for run in runs for effect in _sliced(run))]

    def _accuse(self, raw: bytes) -> None:
        self._changed[self._ledger.accuse(raw).offender] = None
        self._may_accuse = True

    def _turn(self, talk: _Talk) -> Turn:
        heads, left_of_heads = talk.heads.give(COMPARE_BYTES)
        offences, left_of_offences = talk.proofs.give(COMPARE_BYTES)
        room = TURN_BYTES - 2 * COMPARE_BYTES + left_of_heads + left_of_offences
        proofs, left_of_proofs = prove(self._frontier, talk.to_prove, room=PROOFS_BYTES)
        room -= PROOFS_BYTES - left_of_proofs
        runs, room = serve(self._ledger, talk.to_serve, only=talk.only, room=room)
        answered = {ask.feed: None for ask in talk.to_serve}
        pushes = tuple(ask for ask in talk.to_push if ask.feed not in answered)
        runs += serve(self._ledger, pushes, only=talk.only, room=room)[0]
        self._pulls.note_listed(heads)
        accuse = _next_accusations(talk)
        wants: tuple[Want, ...] = ()
        tails: tuple[Tail, ...] = ()
        has_evidence = offences != Part() or bool(accuse)
        talk.waited += has_evidence
        if has_evidence and talk.waited <= EVIDENCE_TURNS_MAX:
            # Whoever is known to fork is asked for otherwise, so entries wait for evidence; but a
            # peer may have more of it than can be told in a session.
            self._pulls.pause()
        else:
            wants, tails = self._pulls.next_asks()
        return Turn(
            heads=UNSET if heads == Part() else heads,
            offences=UNSET if offences == Part() else offences,
            proofs=proofs or UNSET,
            runs=runs or UNSET,
            accuse=accuse or UNSET,
            wants=wants or UNSET,
            tails=tails or UNSET,
        )


def _sliced(run: list[Entry]) -> Iterator[Ingest]:
    for first in range(0, len(run), INGEST_AT_ONCE):
        yield Ingest(entries=tuple(run[first : first + INGEST_AT_ONCE]))


def _proofs(talk: _Talk, proofs: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """The evidence that came, which must have been asked for; what did not is asked for again."""
    for raw in proofs:
        proof = proof_id(raw)
        if proof not in talk.asked_proofs:
            raise PeerFault("sync.unasked", "evidence that nobody asked for")
        del talk.asked_proofs[proof]
    if proofs:
        talk.wanted_proofs |= talk.asked_proofs
    talk.asked_proofs.clear()
    return proofs


def _next_accusations(talk: _Talk) -> tuple[Digest, ...]:
    asked = tuple(talk.wanted_proofs)[:WANTS_MAX]
    for proof in asked:
        del talk.wanted_proofs[proof]
        talk.asked_proofs[proof] = None
    return asked
