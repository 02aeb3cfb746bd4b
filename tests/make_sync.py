"""Replicas that sync in one process, without a scheduler: for tests of the machine."""

from dataclasses import dataclass, field

from ledger.admission import UNPACED, Pace
from ledger.entry import Entry
from ledger.frontier import Frontier
from ledger.ledger import Ledger, Taken
from ledger.pulls import Claims
from ledger.store import Store
from ledger.sync import Effect, Ingest, Session
from protocol.units import Digest, PublicKey
from tests import make_ledger
from tests.make_ledger import Feed, statement


@dataclass
class Replica:
    """A ledger with what sync needs to know of it."""

    ledger: Ledger
    frontier: Frontier

    def take(self, *entries: Entry) -> None:
        for entry in entries:
            assert self.ledger.ingest(entry.raw) is not Taken.MISSING
            self.frontier.refresh(entry.feed)
        self.frontier.refresh_proofs()

    def ids(self) -> list[Digest]:
        """Of all entries, on all branches."""
        return sorted(entry.id for entry in self.ledger._records.all_entries())

    def roots(self) -> tuple[Digest, Digest]:
        return self.frontier.heads.root(), self.frontier.proofs.root()

    def session(
        self,
        *,
        is_opener: bool,
        only: tuple[PublicKey, ...] | None = None,
        may_trust: bool = False,
        claims: Claims | None = None,
        pace: Pace = UNPACED,
    ) -> Session:
        self.frontier.refresh_proofs()
        return Session(
            ledger=self.ledger,
            frontier=self.frontier,
            only=only,
            keeps=lambda feed: only is None or feed in only,
            is_opener=is_opener,
            may_trust=may_trust,
            claims=claims,
            pace=pace,
        )


def replica(name: int = 50, *, store: Store | None = None) -> Replica:
    here = make_ledger.ledger(make_ledger.signer(name), store=store)
    return Replica(ledger=here, frontier=Frontier(here))


def step(session: Session, frame: bytes) -> tuple[list[bytes], int]:
    """The answer to a frame, and how many entries it brought."""
    effects = session.handle(frame)
    for effect in effects:
        done(session, effect)
    entries = sum(len(effect.entries) for effect in effects if isinstance(effect, Ingest))
    return session.reply(), entries


def done(session: Session, effect: Effect) -> list[Taken]:
    """Does all of it, as the node does; what became of its entries."""
    taken: list[Taken] = []
    left: Effect | None = effect
    while left is not None:
        result = session.perform(left)
        if result is None:
            return []
        taken += result.taken
        if result.fault is not None:
            raise result.fault
        assert isinstance(left, Ingest)
        left = left.after(result)
    return taken


@dataclass
class Talk:
    """What went between two sides in one session."""

    frames: list[bytes] = field(default_factory=list)
    entries: int = 0

    @property
    def size(self) -> int:
        return sum(len(frame) + 4 for frame in self.frames)


def talk(opener: Session, server: Session, *, cut_after: int | None = None) -> Talk:
    """One session between the two, lost after that many frames have come through."""
    log = Talk()
    waiting: list[tuple[Session, bytes]] = [(server, opener.hello())]
    other = {id(opener): server, id(server): opener}
    while waiting:
        to, frame = waiting.pop(0)
        if len(log.frames) == cut_after:
            for session in (opener, server):
                session.settle()
            return log
        log.frames.append(frame)
        frames, entries = step(to, frame)
        log.entries += entries
        waiting += [(other[id(to)], each) for each in frames]
    assert opener.is_over
    assert server.is_over
    return log


def sync(one: Replica, two: Replica, *, cut_after: int | None = None) -> Talk:
    return talk(one.session(is_opener=True), two.session(is_opener=False), cut_after=cut_after)


def agree(one: Replica, two: Replica, *, sessions_max: int = 4) -> int:
    """Sync until a session is one exchange; how many brought something."""
    for count in range(sessions_max):
        if len(sync(one, two).frames) == 2:
            return count
    raise AssertionError(f"no agreement after {sessions_max} sessions")


def feed_of(name: int, length: int) -> list[Entry]:
    """A feed with that many entries."""
    feed = Feed(make_ledger.signer(name))
    return [feed.open(), *(feed.add(statement(ctr=n, used=n)) for n in range(length - 1))]


def forked_feed(name: int, stem: int, arms: tuple[int, ...]) -> list[list[Entry]]:
    """Branches that part after `stem` entries, each whole from entry 0."""
    feed = Feed(make_ledger.signer(name))
    below = [feed.open(), *(feed.add(statement(ctr=n, used=n)) for n in range(stem - 1))]
    branches: list[list[Entry]] = []
    for arm, length in enumerate(arms):
        branch = feed.branch()
        entries = [
            branch.add(statement(ctr=1_000 * (arm + 1) + n, used=1_000 * (arm + 1) + n))
            for n in range(length)
        ]
        branches.append(below + entries)
    return branches
