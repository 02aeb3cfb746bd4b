"""What peers hand in: entries and evidence, judged and kept. SPEC.md sections 5.3 and 8."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from ledger.bodies import Body, Statement, read_body
from ledger.continuity_bodies import Checkpoint
from ledger.contradictions import contradictions_with, stands_alone
from ledger.entry import Entry, Header, Link, check_link, check_place, check_seal, link_of
from ledger.evidence import check
from ledger.fold import Account
from ledger.holdings import Holdings
from ledger.judging import Found, Offence
from ledger.limits import CONFLICTS_MAX
from ledger.offences import forks_with, news_in
from ledger.records import put_answer, put_entry, put_head
from ledger.statements import contradicts, is_answer
from ledger.validity import check_body
from protocol.errors import PeerFault
from protocol.units import PublicKey


class Taken(Enum):
    """What became of an entry that was handed in."""

    NEW = "new"
    """It follows its feed's head, and is the head now."""
    KNOWN = "known"
    """It was here already."""
    MISSING = "missing"
    """Its predecessor is not here: ask for that first. Nothing was kept; nobody is at fault."""
    CONFLICT = "conflict"
    """Its author has forked its feed; it was kept as evidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTaken:
    """What became of entries that were handed in together."""

    taken: tuple[Taken, ...]
    """Of each, up to the first that was refused or, itself included, dear. Those after it were not
    looked at.
    """
    fault: PeerFault | None
    """Why an entry was refused."""
    is_dear: bool
    """Whether the last one taken is a conflict, has given evidence or is a CHECKPOINT: of such each
    costs as much as a hundred others, and whoever runs us may want to wait.
    """


Read = tuple[Entry, Body | None]
"""An entry and what it says."""


class Intake:
    """Judges entries one after the other; those that only follow are judged and written together.

    What stops a run of these is judged by itself, as every entry could be.
    """

    def __init__(self, held: Holdings, feed: PublicKey) -> None:
        """`feed` is our own: entries of it are on the disk at once."""
        self._held = held
        self._feed = feed

    def take(self, entries: Iterable[Entry]) -> RunTaken:
        """See Ledger.ingest_run."""
        self._held.check_whole()
        left = list(entries)
        taken: list[Taken] = []
        fault, is_dear = None, False
        try:
            while left and not is_dear:
                plain = self._keep_plain(left)
                taken += [Taken.NEW] * plain
                for entry in left[plain : plain + 1]:
                    done, is_dear = self._take(entry)
                    taken.append(done)
                left = left[plain + 1 :]
        except PeerFault as refusal:
            fault = refusal
        return RunTaken(taken=tuple(taken), fault=fault, is_dear=is_dear)

    def _keep_plain(self, entries: list[Entry]) -> int:
        """Keeps the first of these, as far as all just follow, hold, and contradict nothing.

        How many these are; why the next is not one of them is for `_take` to say. Each rule is
        asked of all before the next rule: signatures are verified faster without a pause.
        """
        run = self._valid(self._sealed(self._quiet(entries)))
        if not run:
            return 0
        batch: dict[bytes, bytes] = {}
        for entry, body in run:
            put_entry(batch, entry, body, is_main=True)
        ends = {entry.feed: entry for entry, _ in run}
        for feed, entry in ends.items():
            put_head(batch, feed, link_of(entry.draft))
        self._held.write(batch, sync=False)
        for feed, entry in ends.items():
            self._held.move_head(feed, link_of(entry.draft))
        for entry, body in run:
            self._held.state.add(entry, body)
        return len(run)

    def _quiet(self, entries: list[Entry]) -> list[Read]:
        """The first of these, as far as all follow and need no other entry to be judged by."""
        quiet: list[Read] = []
        ends: dict[PublicKey, Link] = {}
        halves: dict[Account, Statement] = {}
        head, fork_of = self._held.head, self._held.state.fork_of
        for entry in entries:
            draft = entry.draft
            header, feed = draft.header, draft.header.feed
            end = ends.get(feed) or head(feed)
            if feed == self._feed or fork_of(feed) is not None or not _is_next(header, end):
                break
            if end is not None and header.ts_ms < end.ts_ms:
                break
            try:
                check_place(header)
                body = read_body(draft)
            except PeerFault:
                break
            if not self._is_quiet(feed, body, halves):
                break
            ends[feed] = link_of(draft)
            quiet.append((entry, body))
        return quiet

    def _is_quiet(
        self, feed: PublicKey, body: Body | None, halves: dict[Account, Statement]
    ) -> bool:
        """Whether no other entry needs to be read to see that this one contradicts none.

        `halves` are the last ones of accounts, of those that are not kept yet.
        """
        if not isinstance(body, Statement):
            return stands_alone(body)
        account = (feed, body.peer, body.money, is_answer(body))
        last = [halves[account]] if account in halves else self._last_halves(account)
        halves[account] = body
        # Of several with the highest counter each may contradict it otherwise.
        return not last or (
            len(last) == 1 and last[0].ctr < body.ctr and not contradicts(last[0], body)
        )

    def _last_halves(self, account: Account) -> list[Statement]:
        """Those of the highest counter, as far as to see whether it is one: two at most."""
        author, peer, money, answers = account
        halves = self._held.state.halves(author, peer, money=money, is_answer=answers)[-2:]
        last = [half.statement for half in halves]
        return last[-1:] if last and last[0].ctr < last[-1].ctr else last

    def _sealed(self, run: list[Read]) -> list[Read]:
        """The first of these, as far as their signatures hold."""
        net = self._held.net
        for place, (entry, _) in enumerate(run):
            try:
                check_seal(entry, net)
            except PeerFault:
                return run[:place]
        return run

    def _valid(self, run: list[Read]) -> list[Read]:
        """The first of these, as far as what they say keeps to the rules of its kind."""
        net = self._held.net
        for place, (entry, body) in enumerate(run):
            try:
                check_body(body, entry.draft.header, net)
            except PeerFault:
                return run[:place]
        return run

    def _take(self, entry: Entry) -> tuple[Taken, bool]:
        """What became of it, and whether that was dear."""
        header = entry.header
        check_place(header)
        if (early := self._judge_place(entry)) is not None:
            return early, False
        check_seal(entry, self._held.net)
        body = read_body(entry.draft)
        check_body(body, header, self._held.net)
        return self._keep(entry, body)

    def _judge_place(self, entry: Entry) -> Taken | None:
        """What becomes of the entry at once; None: judge it further."""
        header, end = entry.header, self._held.head(entry.feed)
        if self._held.state.fork_of(header.feed) is None and _is_next(header, end):
            check_link(header, end)
            return None
        if any(other.id == entry.id for other in self._at(header.feed, header.seq)):
            return Taken.KNOWN
        before = self._at(header.feed, header.seq - 1)
        if header.seq > 0 and not before:
            return Taken.MISSING
        for other in before:
            if other.id == header.prev:
                check_link(header, link_of(other.draft))
        return None

    def _at(self, feed: PublicKey, seq: int) -> list[Entry]:
        """All entries there; only a forked feed can have more than one."""
        records = self._held.records
        if self._held.state.fork_of(feed) is not None:
            return records.headers_at(feed, seq)
        main = None if seq < 0 else records.entry(feed, seq) or records.stub(feed, seq)
        return [] if main is None else [main]

    def _keep(self, entry: Entry, body: Body | None) -> tuple[Taken, bool]:
        feed, records = entry.feed, self._held.records
        is_main, is_ours = _is_next(entry.header, self._held.head(feed)), feed == self._feed
        found = list(contradictions_with(records, self._held.state, entry, body))
        if not is_main or self._held.state.fork_of(feed) is not None:
            found += forks_with(records, entry)
        is_kept = is_main or len(records.conflicts(feed)) < CONFLICTS_MAX
        news = news_in(records, found)
        for one in news.values():
            check(one.raw, self._held.net)
        batch = {key: one.raw for key, one in news.items()}
        is_grave = bool(batch)
        if is_kept:
            put_entry(batch, entry, body, is_main=is_main)
        if is_main:
            put_head(batch, feed, link_of(entry.draft))
        if is_kept and is_ours:
            put_answer(batch, entry, body)
        if is_grave:
            self._held.write_grave(batch)
        else:
            self._held.write(batch, sync=is_ours)
        if is_main:
            self._held.move_head(feed, link_of(entry.draft))
        if is_kept:
            self._held.state.add(entry, body)
        self._held.learn_forks([one.raw for one in news.values() if one.fork is not None])
        is_dear = bool(found) or not is_main or isinstance(body, Checkpoint)
        return (Taken.NEW if is_main else Taken.CONFLICT), is_dear

    def accuse(self, raw: bytes) -> Offence:
        """See Ledger.accuse."""
        self._held.check_whole()
        offence = check(raw, self._held.net)
        found = Found(offender=offence.offender, key=offence.key, raw=raw, fork=offence.seq)
        news = news_in(self._held.records, [found])
        if news:
            self._held.write_grave(dict.fromkeys(news, raw))
        self._held.learn_forks([raw])
        return offence


def _is_next(header: Header, end: Link | None) -> bool:
    """Whether the entry comes right after this end of its feed's main chain."""
    if end is None:
        return header.seq == 0
    return header.seq == end.seq + 1 and header.prev == end.id
