"""An honest author through crashes, lost tails and lost guards, watched by a replica (I1, I6)."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ledger.entry import Draft, read_draft
from ledger.guard import Guard, MemoryGuard
from ledger.ledger import Ledger, Taken
from ledger.store import MemoryStore, Store
from protocol.errors import LocalFault, Unavailable
from protocol.signing import Signer
from protocol.units import Digest, Millis, NetId, Signature
from tests.make_ledger import (
    NET,
    OWNER,
    STRANGER,
    UNIT,
    UNIT2,
    at,
    genesis,
    ledger,
    sealed_request,
    statement,
)
from tests.make_ledger_faults import Crash, FaultyGuard, FaultyStore, Fuse, copy_of


class WatchedSigner(Signer):
    """Remembers every header that it has put the feed's signature to."""

    def __init__(self) -> None:
        super().__init__(bytes([1]) * 32)
        self.signed: list[bytes] = []

    def sign(self, domain: str, net: NetId, data: bytes) -> Signature:
        if domain == "entry":
            self.signed.append(data)
        return super().sign(domain, net, data)


class SlipperyGuard:
    """See Guard. Hands on to whichever guard there is now."""

    def __init__(self) -> None:
        self.inner: Guard = MemoryGuard()

    def reserved(self) -> Draft | None:
        return self.inner.reserved()

    def reserve(self, draft: Draft) -> None:
        self.inner.reserve(draft)


class Author(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.signer = WatchedSigner()
        self.store: Store = MemoryStore()
        self.guard = SlipperyGuard()
        self.replica = ledger(STRANGER)
        self.backup = copy_of(self.store)
        self.now = 0
        self.nonce = 0
        self.grants: list[Digest] = []
        self.is_whole = True
        self.mine = self.reopen()

    def reopen(self, fuse: Fuse | None = None) -> Ledger:
        store = self.store if fuse is None else FaultyStore(self.store, fuse)
        guard: Guard = self.guard if fuse is None else FaultyGuard(self.guard, fuse)
        return ledger(self.signer, store=store, guard=guard)

    def time(self, step: int) -> Millis:
        self.now = max(0, self.now + step)
        return at(self.now)

    def publish(self) -> None:
        """What any peer may have: all that the ledger would hand out."""
        for raw in self.mine.entries(self.mine.feed, 0, 10_000):
            assert self.replica.ingest(raw) in {Taken.NEW, Taken.KNOWN}

    def write_grant(self, unit: bytes, step: int, start: int, length: int) -> None:
        now = self.time(step)
        self.nonce += 1
        turn = self.mine.state.turn(self.mine.feed, unit)
        ctr = 0 if turn is None else turn.ctr + 1
        begin = self.mine.clamped(now) - at(0)
        request = sealed_request(
            ((unit, ctr),),
            start=begin + start,
            end=begin + start + length,
            nonce=self.nonce,
            issued=begin,
        )
        try:
            self.grants.append(self.mine.grant(request, now).id)
        except Unavailable:
            return

    @precondition(lambda self: self.is_whole)
    @rule()
    def begin(self) -> None:
        if self.mine.head(self.mine.feed) is None:
            self.mine.append(genesis(OWNER), self.time(0))

    @precondition(lambda self: self.is_whole and self.mine.head(self.mine.feed) is not None)
    @rule(
        unit=st.sampled_from([UNIT, UNIT2]),
        step=st.integers(-50, 200),
        start=st.integers(0, 300),
        length=st.integers(1, 300),
    )
    def grant(self, unit: bytes, step: int, start: int, length: int) -> None:
        self.write_grant(unit, step, start, length)

    @precondition(lambda self: self.is_whole and self.grants)
    @rule(data=st.data(), step=st.integers(-50, 200), late=st.integers(-100, 100))
    def release(self, data: st.DataObject, step: int, late: int) -> None:
        grant = data.draw(st.sampled_from(self.grants))
        now = self.time(step)
        end = at(max(0, self.now + late))
        if self.mine.lease(grant) is not None:
            self.mine.release(grant, now, at_ms=end, reason="unpaid")

    def write_group(self, count: int) -> None:
        head = self.mine.head(self.mine.feed)
        assert head is not None
        bodies = [statement(ctr=head.seq + n, used=head.seq + n) for n in range(count)]
        self.mine.append_all(bodies, self.time(1))

    @precondition(lambda self: self.is_whole and self.mine.head(self.mine.feed) is not None)
    @rule(count=st.integers(0, 5))
    def append_all(self, count: int) -> None:
        self.write_group(count)

    @precondition(lambda self: self.is_whole and self.mine.head(self.mine.feed) is not None)
    @rule(n=st.integers(1, 4), after=st.booleans(), what=st.sampled_from(["grant", "one", "group"]))
    def crash(self, n: int, after: bool, what: str) -> None:
        fuse, count = Fuse(n, after=after), self.count()
        try:
            self.mine = self.reopen(fuse)
            if what == "grant":
                self.write_grant(UNIT, 1, 5, 5)
            elif what == "group":
                self.write_group(3)
            else:
                head = self.mine.head(self.mine.feed)
                assert head is not None
                self.mine.append(statement(ctr=head.seq, used=head.seq), self.time(1))
        except Crash:
            pass
        self.mine = self.reopen()
        if what == "group":
            self.forget_what_never_was(count)

    @precondition(lambda self: self.is_whole and self.mine.head(self.mine.feed) is not None)
    @rule(n=st.integers(1, 2), after=st.booleans(), lost=st.booleans())
    def crash_in_a_group(self, n: int, after: bool, lost: bool) -> None:
        """If the store lost the group too before the guard knew it, it never was."""
        before, shown, count = copy_of(self.store), self.mine.head(OWNER.public), self.count()
        fuse = Fuse(n, after=after)
        try:
            self.mine = self.reopen(fuse)
            self.write_group(3)
        except Crash:
            self.publish()
            assert self.replica.head(OWNER.public) == shown
        held = self.guard.reserved()
        assert held is not None
        assert shown is not None
        if lost and held.id == shown.id:
            self.store = before
        self.mine = self.reopen()
        assert self.mine.fault() is None
        self.forget_what_never_was(count)

    def count(self) -> int:
        return len(self.signer.signed)

    def forget_what_never_was(self, count: int) -> None:
        """A group is signed before it is reserved; what a crash took of it nobody has seen."""
        stored = [entry.draft.hdr for entry in self.mine._records.all_entries()]
        self.signer.signed[count:] = [hdr for hdr in self.signer.signed[count:] if hdr in stored]

    @precondition(lambda self: self.is_whole)
    @rule()
    def back_up(self) -> None:
        self.backup = copy_of(self.store)

    @precondition(lambda self: self.is_whole)
    @rule(lose_guard=st.booleans(), lose_tail=st.booleans())
    def roll_back(self, lose_guard: bool, lose_tail: bool) -> None:
        self.publish()
        if lose_tail:
            self.store = copy_of(self.backup)
        if lose_guard:
            self.guard.inner = MemoryGuard()
        self.mine = self.reopen()
        head, held = self.mine.head(self.mine.feed), self.guard.reserved()
        is_fault = self.mine.fault() is not None
        if held is None:
            assert is_fault == (head is not None)
        else:
            # The entry that was reserved last is finished if those before it are there.
            assert is_fault == (head is None or head.id != held.id)
        self.is_whole = not is_fault and not (lose_guard and head is None)

    @precondition(lambda self: not self.is_whole)
    @rule()
    def write_too_early(self) -> None:
        if self.mine.fault() is None:
            return
        count = len(self.signer.signed)
        try:
            self.mine.append(statement(ctr=99_999), at(self.now))
        except LocalFault:
            assert len(self.signer.signed) == count
        else:
            raise AssertionError("a feed was continued that had to be recovered")

    @precondition(lambda self: not self.is_whole)
    @rule()
    def recover(self) -> None:
        for raw in self.replica.entries(self.mine.feed, 0, 10_000):
            assert self.mine.ingest(raw) in {Taken.NEW, Taken.KNOWN}
        if self.guard.inner.reserved() is None:
            self.mine.confirm_head()
        assert self.mine.fault() is None
        self.is_whole = True

    @invariant()
    def no_place_is_signed_twice(self) -> None:
        by_place: dict[int, bytes] = {}
        for hdr in self.signer.signed:
            place = read_draft(hdr, b"", NET).header.seq
            assert by_place.setdefault(place, hdr) == hdr

    @invariant()
    def nothing_accuses_an_honest_author(self) -> None:
        self.publish()
        assert self.replica.evidence() == []
        assert self.mine.verify().broken is None


Author.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestAuthor = Author.TestCase
