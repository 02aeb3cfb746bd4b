"""Owns the ledger and keeps it equal to others': asks, answers, and tells counterparties.

ledger/SPEC.md section "Sync". What is exchanged is decided by `ledger.sync`; this moves it.
LevelDB is written in the trio thread: a run of INGEST_AT_ONCE entries takes some milliseconds, and
the task lets others run after each.
"""

import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final
from weakref import WeakValueDictionary

import trio

from ledger.entry import Entry, read_entry
from ledger.frontier import Frontier
from ledger.ledger import Ledger, RunTaken, Taken
from ledger.limits import ONLY_MAX
from ledger.pulls import Claims
from ledger.sync import Session
from p2pnode.network.transport import Streams
from p2pnode.replication.conduct import Conduct, PeerPace, Statistics
from p2pnode.replication.conversation import Conversation
from p2pnode.replication.judging import LateJudge
from protocol.errors import PeerFault, Unavailable
from protocol.units import PeerId, PublicKey

log = logging.getLogger(__name__)

PROTOCOL: Final = "/p2pnode/sync/1"
ROUND_S: Final = 30
SESSION_S: Final = 120
"""Then the rest is for another session, so that a peer that never ends has no place for good."""
WORKERS: Final = 4
"""Sessions that we open at once: a hung peer does not keep the others waiting."""
WAITING_MAX: Final = 256
ANSWERED_MAX: Final = 64
ANSWERED_PER_PEER_MAX: Final = 4
TELLS: Final = 5
"""How often we try to tell a counterparty; its own rounds find what it missed then."""

Wants = Callable[[PublicKey], bool]
"""Whether a light client keeps this feed; its own is kept in any case."""
Reach = Callable[[PeerId], Awaitable[None]]
"""Be connected with the peer; raises Unavailable."""


def _never() -> bool:
    return False


class Replication:
    """The owner of a ledger: what others send is written by its tasks alone."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        streams: Streams,
        reach: Reach,
        rng: random.Random,
        wants: Wants | None,
        on_entry: Callable[[Entry], None],
        on_news: Callable[[], None],
        on_proof: Callable[[], None] = lambda: None,
    ) -> None:
        """`wants` is None for a full peer.

        `on_entry` sees each entry that others sent and that has become its feed's head here.
        `on_news` is called after such entries; while more wait to be judged late it is not, because
        who told us has them all. `on_proof` is called as soon as what others sent has given
        evidence that is new here.
        """
        self.ledger: Final = ledger
        self._conduct = Conduct()
        self._streams = streams
        self._reach = reach
        self._rng = rng
        self._wants = wants
        self._on_entry = on_entry
        self._on_news = on_news
        self._on_proof = on_proof
        self._accusations = ledger.accusations
        self._frontier: Frontier | None = None
        self._judge = LateJudge(ledger, self._take_note_late)
        self._to_sync, self._syncing = trio.open_memory_channel[PeerId](WAITING_MAX)
        self._due: dict[PeerId, bool] = {}
        """Who waits for a session; whether it is about all feeds or about ours alone."""
        self._comparing: dict[PeerId, bool] = {}
        """With whom we have opened a session about all feeds; whether to open one more after it."""
        self._claims: WeakValueDictionary[PeerId, Claims] = WeakValueDictionary()
        self._untold: dict[PeerId, int] = {}
        self._answered: dict[PeerId, int] = {}

    @property
    def statistics(self) -> Statistics:
        """What came of all sessions so far. To look at, not to change."""
        return self._conduct.statistics

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Answer and ask until cancelled."""
        self._frontier = Frontier(self.ledger)
        self._streams.serve(PROTOCOL, self._answer)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._judge.run)
            for _ in range(WORKERS):
                nursery.start_soon(self._work)
            task_status.started()
            while True:
                await trio.sleep(ROUND_S * self._rng.uniform(0.8, 1.2))
                self._begin_round()

    def meet(self, peer: PeerId) -> None:
        """A new neighbour: compare with it soon. When too many wait, the steady rounds find it."""
        self._enqueue(peer, is_whole=True)

    def tell(self, peer: PeerId) -> None:
        """Our feed has grown: this peer gets it soon, and again until it has, a few times."""
        while len(self._untold) >= WAITING_MAX:
            del self._untold[next(iter(self._untold))]
        self._untold[peer] = TELLS
        self._enqueue(peer, is_whole=False)

    def take(self, raw: bytes) -> Taken:
        """An entry that came another way than by sync. Raises as `Ledger.ingest`."""
        taken = self.ledger.ingest(raw)
        entry = read_entry(raw, self.ledger.net)
        if self._frontier is not None:
            self._frontier.refresh(entry.feed)
        if taken is Taken.NEW:
            self._on_entry(entry)
            self._on_news()
        self._look_for_proofs()
        return taken

    async def fetch(self, peer: PeerId, feed: PublicKey, seq: int) -> None:
        """Our ledger has the feed up to `seq` on return; the deadline is the caller's.

        Raises Unavailable if the peer cannot be reached or does not have it; PeerFault if it
        breaks a rule. What it had below `seq` stays.
        """

        def is_here() -> bool:
            head = self.ledger.head(feed)
            return head is not None and head.seq >= seq

        await self._judge.judge(feed)
        if not is_here():
            await self._sync_with(peer, (feed,), is_enough=is_here)
        if not is_here():
            raise Unavailable("the peer does not have the entry")

    async def compare_own(self, peer: PeerId) -> None:
        """We have all that the peer has of our own feed, and it has all that we have.

        The deadline is the caller's; what came before it stays. Raises Unavailable or PeerFault.
        """
        while await self._sync_with(peer, (self.ledger.feed,), is_enough=lambda: False):
            pass

    def _begin_round(self) -> None:
        for peer in list(self._untold):
            self._untold[peer] -= 1
            if self._untold[peer] == 0:
                del self._untold[peer]
            self._enqueue(peer, is_whole=False)
        neighbours = [
            peer for peer in self._streams.neighbours() if not self._conduct.is_shunned(peer)
        ]
        if neighbours:
            self._enqueue(self._rng.choice(neighbours), is_whole=True)

    def _enqueue(self, peer: PeerId, *, is_whole: bool) -> None:
        if is_whole and peer in self._comparing:
            self._comparing[peer] = True
            return
        if peer in self._due:
            self._due[peer] |= is_whole
            return
        try:
            self._to_sync.send_nowait(peer)
            self._due[peer] = is_whole
        except trio.WouldBlock:
            log.debug("too many peers wait for sync", extra={"peer": peer.hex()})

    async def _work(self) -> None:
        async for peer in self._syncing:
            is_whole = self._due.pop(peer)
            tells = self._untold.pop(peer, 0)
            try:
                if is_whole:
                    await self._compare_all(peer)
                else:
                    await self._sync_with(peer, (self.ledger.feed,))
            except (Unavailable, PeerFault) as error:
                log.info("sync failed", extra={"peer": peer.hex(), "why": str(error)})
                if tells:
                    self._untold.setdefault(peer, tells)

    async def _compare_all(self, peer: PeerId) -> None:
        """A session about all feeds; then soon another one, if it is wanted or there may be more.

        Raises Unavailable or PeerFault.
        """
        self._comparing[peer] = False
        try:
            self._comparing[peer] |= await self._sync_with(peer, self._only())
        finally:
            if self._comparing.pop(peer):
                self._enqueue(peer, is_whole=True)

    def _only(self) -> tuple[PublicKey, ...] | None:
        """The feeds that a light client talks about; None for a full peer."""
        if self._wants is None:
            return None
        feeds = [head.feed for head in self.ledger.heads() if self._keeps(head.feed)]
        others = [feed for feed in feeds if feed != self.ledger.feed]
        chosen = self._rng.sample(others, min(len(others), ONLY_MAX - 1))
        return (self.ledger.feed, *sorted(chosen))

    def _session(
        self,
        peer: PeerId,
        only: tuple[PublicKey, ...] | None,
        claims: Claims | None,
        *,
        is_opener: bool,
    ) -> Session:
        """`claims` are None if somebody waits for what is asked: then it is judged as it comes."""
        frontier = self._frontier
        assert frontier is not None, "not running"
        # Our own entries are not written here, nor is evidence that others of our parts found.
        frontier.refresh(self.ledger.feed)
        frontier.refresh_proofs()
        return Session(
            ledger=self.ledger,
            frontier=frontier,
            only=only,
            keeps=self._keeps,
            is_opener=is_opener,
            may_trust=claims is not None,
            claims=claims,
            pace=PeerPace(conduct=self._conduct, peer=peer),
        )

    def _claims_of(self, peer: PeerId) -> Claims:
        """Shared by all sessions with the peer while there are any."""
        return self._claims.setdefault(peer, Claims())

    def _take_note(self, entries: tuple[Entry, ...], done: RunTaken) -> None:
        """Of entries that others sent and that were judged."""
        if self._show(entries, done):
            self._on_news()

    def _show(self, entries: tuple[Entry, ...], done: RunTaken) -> bool:
        """Tell of each of these that is new; whether any is."""
        self._count(done)
        for entry, taken in zip(entries, done.taken, strict=False):
            if taken is Taken.NEW:
                self._on_entry(entry)
        self._look_for_proofs()
        return Taken.NEW in done.taken

    def _look_for_proofs(self) -> None:
        """Not only at the end of a session, which a peer can draw out."""
        if self._accusations != self.ledger.accusations:
            self._accusations = self.ledger.accusations
            self._on_proof()

    def _count(self, done: RunTaken) -> None:
        news = sum(taken in {Taken.NEW, Taken.CONFLICT} for taken in done.taken)
        self._conduct.statistics.entries += news

    def _take_note_late(self, entries: tuple[Entry, ...], done: RunTaken) -> None:
        """Likewise, where no session tells the frontier."""
        for feed in dict.fromkeys(entry.feed for entry in entries):
            assert self._frontier is not None
            self._frontier.refresh(feed)
        # The last run may have nothing new, where those before it had.
        self._show(entries, done)
        if entries and not self.ledger.waiting_feeds():
            self._on_news()

    def _keeps(self, feed: PublicKey) -> bool:
        return self._wants is None or feed == self.ledger.feed or self._wants(feed)

    async def _sync_with(
        self,
        peer: PeerId,
        only: tuple[PublicKey, ...] | None,
        *,
        is_enough: Callable[[], bool] = _never,
    ) -> bool:
        """One session of our opening; whether it brought something.

        Then a feed may have turned out to be forked, or the session was lost or took too long:
        another one finds the rest. Raises Unavailable or PeerFault.
        """
        self._conduct.check_welcome(peer)
        session: Session | None = None
        try:
            with trio.fail_after(SESSION_S):
                await self._reach(peer)
                stream = await self._streams.open_stream(peer, PROTOCOL)
                async with stream:
                    claims = self._claims_of(peer) if is_enough is _never else None
                    session = self._session(peer, only, claims, is_opener=True)
                    talk = self._conversation(peer, session, is_enough)
                    await talk.hold(stream, session.hello())
        except PeerFault as fault:
            self._conduct.count(peer, fault)
            raise
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            if session is None or not session.has_learned:
                raise Unavailable("the connection was lost") from error
        except trio.TooSlowError as error:
            if session is None or not session.has_learned:
                raise Unavailable("the peer did not answer in time") from error
        return session.has_learned

    async def _answer(self, peer: PeerId, stream: trio.abc.Stream) -> None:
        """A session that a peer opened."""
        self._conduct.check_welcome(peer)
        count = self._answered.get(peer, 0)
        if count >= ANSWERED_PER_PEER_MAX or sum(self._answered.values()) >= ANSWERED_MAX:
            raise Unavailable("too many sessions")
        self._answered[peer] = count + 1
        try:
            with trio.fail_after(SESSION_S):
                await self._conduct.wait_turn(peer)
                claims = self._claims_of(peer)
                session = self._session(peer, self._only(), claims, is_opener=False)
                await self._conversation(peer, session, _never).hold(stream, None)
        except PeerFault as fault:
            self._conduct.count(peer, fault)
            raise
        finally:
            self._answered[peer] -= 1
            if self._answered[peer] == 0:
                del self._answered[peer]

    def _conversation(
        self, peer: PeerId, session: Session, is_enough: Callable[[], bool]
    ) -> Conversation:
        return Conversation(
            peer=peer,
            session=session,
            ledger=self.ledger,
            conduct=self._conduct,
            on_taken=self._take_note,
            on_accused=self._look_for_proofs,
            on_waiting=self._judge.wake,
            is_enough=is_enough,
            is_free=is_enough is not _never,
        )
