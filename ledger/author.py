"""Our own feed: judged like anybody's, guarded, signed, and durable before it is shown.

SPEC.md section 6.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from ledger.bodies import Accept, Body, Grant, Statement, encode_body, kind_of, read_body
from ledger.calendar import check_innocent, self_accusing
from ledger.contradictions import contradictions_with, stands_alone
from ledger.entry import Draft, Entry, Link, check_place, draft_entry, link_of, seal
from ledger.guard import ENDED_CURE, FORK_CURE, HELD_CURE, Guard, recovery_fault
from ledger.holdings import Holdings
from ledger.limits import BODY_BYTES_MAX
from ledger.records import put_answer, put_entry, put_head
from ledger.validity import check_body
from protocol.codec import checked_numbered
from protocol.errors import LocalFault, PeerFault
from protocol.signing import Signer
from protocol.units import Millis, Signature


class Author:
    """Writes the feed of one signer into the holdings of its replica."""

    def __init__(self, held: Holdings, *, guard: Guard, signer: Signer, rules: bytes) -> None:
        self._held = held
        self._guard = guard
        self._signer = signer
        self._feed = signer.public
        self._rules = rules
        self._why_held: str | None = None

    def hold(self, why: str | None) -> None:
        """See Ledger.hold."""
        self._why_held = why

    def clamped(self, now: Millis) -> Millis:
        """The time that our next entry would bear: ours never runs back."""
        head = self._held.head(self._feed)
        return now if head is None else max(now, head.ts_ms)

    def append(self, body: Body, now: Millis) -> Entry:
        """See Ledger.append."""
        self.check_writable()
        draft, read = self._judged(body, now, self._held.head(self._feed))
        self._held.begin_step()
        self._guard.reserve(draft)
        self._held.end_step()
        return self._commit(draft, read)

    def append_all(self, bodies: Sequence[Body], now: Millis) -> list[Entry]:
        """See Ledger.append_all."""
        self.check_writable()
        after = self._held.head(self._feed)
        if after is None:
            # The guard must know our feed before a store that is ahead of it can be told from one
            # that is another's.
            return [self.append(body, now) for body in bodies]
        written: list[Entry] = []
        shown = 0
        batch: dict[bytes, bytes] = {}
        for body in bodies:
            if not _is_judged_by_state(body):
                # It is held against entries in the store, so these must be there.
                self._show(written[shown:], batch)
                shown, batch = len(written), {}
            try:
                draft, read = self._judged(body, now, after)
            except (PeerFault, LocalFault):
                self._show(written[shown:], batch)
                raise
            entry = self._sealed(draft)
            put_entry(batch, entry, read, is_main=True)
            put_answer(batch, entry, read)
            # The next is judged by what this one adds up to; should the write fail, we are not
            # whole, and must be opened again anyway.
            self._held.state.add(entry, read)
            written.append(entry)
            after = link_of(draft)
        self._show(written[shown:], batch)
        return written

    def _show(self, written: list[Entry], batch: dict[bytes, bytes]) -> None:
        """Group commit: nothing is read beyond the head, which moves when the guard knows it."""
        if not written:
            return
        head = link_of(written[-1].draft)
        put_head(batch, self._feed, head)
        self._held.write(batch, sync=True)
        self._held.begin_step()
        self._guard.reserve(written[-1].draft)
        self._held.end_step()
        self._held.move_head(self._feed, head)

    def check(self, body: Body, now: Millis, *, ahead: int) -> None:
        """Raises PeerFault if an entry with this body would not hold by itself.

        It would come after so many that are not written yet; what went before is not looked at.
        """
        head = self._held.head(self._feed)
        assert head is not None, "who has leases has a feed"
        self._drafted(body, now, replace(head, seq=head.seq + ahead))

    def _judged(self, body: Body, now: Millis, after: Link | None) -> tuple[Draft, Body]:
        """The entry that says this after that, and its body as peers will read it."""
        draft, read = self._drafted(body, now, after)
        check_innocent(self._held.state, read, author=self._feed, ts_ms=draft.header.ts_ms)
        if not _is_judged_by_state(read):
            self._check_uncontradicted(draft, read)
        return draft, read

    def _drafted(self, body: Body, now: Millis, after: Link | None) -> tuple[Draft, Body]:
        ts_ms = now if after is None else max(now, after.ts_ms)
        read = checked_numbered(body)
        raw = encode_body(read)
        if len(raw) > BODY_BYTES_MAX:
            raise PeerFault("codec.size", f"{len(raw)} bytes, at most {BODY_BYTES_MAX}")
        draft = draft_entry(
            feed=self._feed,
            after=after,
            ts_ms=ts_ms,
            kind=kind_of(read),
            rules=self._rules,
            body=raw,
            net=self._held.net,
        )
        check_place(draft.header)
        check_body(read, draft.header, self._held.net)
        return draft, read

    def _check_uncontradicted(self, draft: Draft, body: Body) -> None:
        """Raises LocalFault if a peer that has our feed could prove an offence by this entry."""
        unsigned = Entry(draft=draft, signature=Signature(bytes(64)))
        found = contradictions_with(self._held.records, self._held.state, unsigned, body)
        if next(found, None) is not None:
            raise self_accusing("what we have signed before")

    def _sealed(self, draft: Draft) -> Entry:
        return seal(draft, signer=self._signer, net=self._held.net)

    def _commit(self, draft: Draft, body: Body) -> Entry:
        entry, head = self._sealed(draft), link_of(draft)
        batch: dict[bytes, bytes] = {}
        put_entry(batch, entry, body, is_main=True)
        put_head(batch, self._feed, head)
        put_answer(batch, entry, body)
        self._held.write(batch, sync=True)
        self._held.move_head(self._feed, head)
        self._held.state.add(entry, body)
        return entry

    def confirm_head(self) -> None:
        """See Ledger.confirm_head."""
        head = self._held.head(self._feed)
        entry = None if head is None else self._held.records.entry(self._feed, head.seq)
        if entry is not None:
            self._guard.reserve(entry.draft)

    def is_guard_lost(self) -> bool:
        """See Ledger.is_guard_lost."""
        has_head = self._held.head(self._feed) is not None
        return has_head and not self.is_ended() and self._guard.reserved() is None

    def fault(self) -> LocalFault | None:
        """Why we must not write now, or None."""
        try:
            held = self._guard.reserved()
        except LocalFault as fault:
            return fault
        if self._held.state.fork_of(self._feed) is not None:
            return LocalFault("Our feed is forked and cannot be continued.", FORK_CURE)
        head = self._held.head(self._feed)
        if self.is_ended():
            return LocalFault("Our account has ended this feed and goes on in another.", ENDED_CURE)
        stored = None
        if held is not None and head is not None and held.header.seq <= head.seq:
            stored = self._held.records.entry(self._feed, held.header.seq)
        return recovery_fault(held, feed=self._feed, head=head, stored=stored)

    def check_writable(self) -> None:
        """Raises LocalFault if we must not write; else guard and store end alike on return."""
        self._held.check_whole()
        if self._why_held is None and self._is_level():
            return
        if fault := self.fault():
            raise fault
        if self._why_held is not None:
            raise LocalFault(self._why_held, HELD_CURE)
        self.level()

    def _is_level(self) -> bool:
        """Whether guard and store end at the same entry, as they do between our appends."""
        held, head = self._guard.reserved(), self._held.head(self._feed)
        is_level = held is not None and head is not None and held.id == head.id
        return is_level and not self.is_ended()

    def is_ended(self) -> bool:
        """See Ledger.is_ended."""
        head = self._held.head(self._feed)
        return self._held.state.is_forked(self._feed, 0 if head is None else head.seq + 1)

    def level(self) -> None:
        """Guard and store end at the same entry on return; to be called without a `fault`.

        What was reserved and not stored is signed: the same id, whenever it is done. A head that
        the guard does not know is reserved: it may be handed out from now on.
        """
        held, head = self._guard.reserved(), self._held.head(self._feed)
        if held is None:
            return
        if head is None or held.header.seq > head.seq:
            body = read_body(held)
            assert body is not None
            self._commit(held, body)
        elif held.header.seq < head.seq:
            self.confirm_head()


def _is_judged_by_state(body: Body) -> bool:
    """Whether `check_innocent` says all there is to say of such an entry.

    An ACCEPT may show that a witness signed twice, which is no offence of ours.
    """
    return isinstance(body, Grant | Statement | Accept) or stands_alone(body)
