"""One peer's ledger: writes its own feed, takes everybody's, remembers what they add up to.

SPEC.md sections 5 to 8. Synchronous; one owner; no byte of ours leaves before it is durable.
"""

from collections.abc import Iterator
from enum import Enum
from typing import Final

from ledger import keys
from ledger.audit import Audit, Report, begin_audit, check_own_feed
from ledger.bodies import Accept, Body, Reason, encode_body, kind_of, read_body
from ledger.calendar import check_innocent, grant_of, release_of
from ledger.entry import (
    Draft,
    Entry,
    Link,
    check_link,
    check_place,
    check_seal,
    draft_entry,
    link_of,
    read_entry,
    seal,
)
from ledger.evidence import Offence, check
from ledger.fold import Lease, State
from ledger.guard import Guard, recovery_fault
from ledger.limits import CONFLICTS_MAX
from ledger.offences import batch_of_evidence, forks_with, turns_with
from ledger.records import Head, Records, batch_of, check_stamp
from ledger.store import Store
from ledger.validity import check_body
from protocol.errors import LocalFault
from protocol.lease import LeaseRequest
from protocol.rules import RULES_DIGEST
from protocol.signing import Signer
from protocol.units import Digest, Millis, NetId, PublicKey, Signature
from protocol.wire import unpack


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


class Ledger:
    """The entries in a store and their fold. `open_ledger` makes one."""

    def __init__(
        self, *, store: Store, guard: Guard, signer: Signer, net: NetId, rules: bytes
    ) -> None:
        self.feed: Final = signer.public
        self.net: Final = net
        self._guard = guard
        self._signer = signer
        self._rules = rules
        self._store = store
        self._records = Records(store=store, net=net)
        self._state = State()
        self._is_whole = True

    @property
    def state(self) -> State:
        """The fold of all entries here. To look at, not to change."""
        return self._state

    @property
    def uuid(self) -> bytes:
        """Of the store: a peer that meets another one must not count on what we had."""
        value = self._store.get(keys.meta(b"uuid"))
        assert value is not None
        return value

    def head(self, feed: PublicKey) -> Head | None:
        """The end of the feed's main chain; None for a feed that is not here."""
        link = self._records.head(feed)
        return None if link is None else self._head(feed, link)

    def heads(self) -> list[Head]:
        """All feeds, in the order of their keys."""
        return [self._head(feed, link) for feed, link in self._records.heads()]

    def _head(self, feed: PublicKey, link: Link) -> Head:
        fork = self._state.fork_of(feed)
        return Head(feed=feed, seq=link.seq, id=link.id, ts_ms=link.ts_ms, fork=fork)

    def entry(self, entry_id: Digest) -> Entry | None:
        """The entry with this id, on whichever branch."""
        return self._records.find(entry_id)

    def entries(self, feed: PublicKey, first: int, stop: int) -> Iterator[bytes]:
        """The bytes of the feed's main chain from `first` up to but not including `stop`."""
        return self._records.raw_entries(feed, first, stop)

    def conflicts(self, feed: PublicKey) -> list[Entry]:
        """The entries of the feed's other branches, by place."""
        return self._records.conflicts(feed)

    def referrers(self, entry_id: Digest) -> list[Entry]:
        """The entries that name this one: the ACCEPT and RELEASE of a GRANT, for example."""
        return self._records.referrers(entry_id)

    def evidence(self) -> list[bytes]:
        """All evidence kept, one for each offence, by offender."""
        return list(self._records.evidence())

    def offences(self) -> list[Offence]:
        """What the evidence proves."""
        return [check(raw, self.net) for raw in self._records.evidence()]

    def lease(self, grant: Digest) -> Lease | None:
        """The lease of this GRANT, if the GRANT is here."""
        return self._state.lease(grant)

    def grant_for(self, renter: PublicKey, nonce: bytes) -> Entry | None:
        """Our GRANT that answered this request; one request gives one lease."""
        grant = self._store.get(keys.nonce(renter, nonce))
        return None if grant is None else self._records.find(Digest(grant))

    def clamped(self, now: Millis) -> Millis:
        """The time that our next entry would bear: ours never runs back."""
        head = self._records.head(self.feed)
        return now if head is None else max(now, head.ts_ms)

    def verify(self) -> Report:
        """Walks everything that is stored and judges it anew."""
        return self.begin_audit()(lambda: None)

    def begin_audit(self) -> Audit:
        """What `verify` does, of the store as it is now, to be done beside other work."""
        return begin_audit(self._records)

    def grant(
        self,
        request: bytes,
        now: Millis,
        *,
        witnesses: tuple[PublicKey, ...] = (),
        quorum: int = 0,
    ) -> Entry:
        """The GRANT that answers this sealed lease request; the one there is, if it came before.

        Raises Unavailable if a unit is leased then or its counter has moved on; PeerFault
        `codec.*`, `seal.*` or `grant.*` if the request is bad or not to us; LocalFault as `append`.
        """
        self._check_writable()
        sealed = unpack(request, self.net, LeaseRequest)
        known = self.grant_for(sealed.signer, sealed.body.nonce)
        if known is not None:
            return known
        body = grant_of(
            self._state,
            request,
            sealed.body,
            owner=self.feed,
            ts_ms=self.clamped(now),
            witnesses=witnesses,
            quorum=quorum,
        )
        return self.append(body, now)

    def release(
        self,
        grant: Digest,
        now: Millis,
        *,
        at_ms: Millis,
        reason: Reason,
        consent: Signature | None = None,
    ) -> Entry:
        """The RELEASE that ends our lease at `at_ms`. Whether we may is for the caller.

        Raises LocalFault if there is no such lease of ours, and as `append`.
        """
        self._check_writable()
        lease = self._state.lease(grant)
        if lease is None or lease.owner != self.feed:
            raise LocalFault(f"There is no lease {grant.hex()[:16]} of ours.", "p2pnode leases")
        ts_ms = self.clamped(now)
        body = release_of(
            self._state, lease, ts_ms=ts_ms, at_ms=at_ms, reason=reason, consent=consent
        )
        return self.append(body, now)

    def accept(self, grant: Digest, now: Millis) -> Entry:
        """The ACCEPT by which we take the lease of this GRANT; the one there is, if there is."""
        for entry in self.referrers(grant):
            if entry.feed == self.feed and isinstance(read_body(entry.draft), Accept):
                return entry
        return self.append(Accept(grant=grant), now)

    def append(self, body: Body, now: Millis) -> Entry:
        """Our next entry, durable; from now on its bytes may be handed out.

        Raises PeerFault if the body breaks a rule; LocalFault if it would prove an offence of ours
        or if our feed must be recovered first. Whatever the guard or the store raises may have come
        too late: the ledger must then be opened again, which finishes the entry or drops it.
        """
        self._check_writable()
        ts_ms = self.clamped(now)
        draft = draft_entry(
            feed=self.feed,
            after=self._records.head(self.feed),
            ts_ms=ts_ms,
            kind=kind_of(body),
            rules=self._rules,
            body=encode_body(body),
            net=self.net,
        )
        check_place(draft.header)
        check_body(read_body(draft), draft.header, self.net)
        check_innocent(self._state, body, author=self.feed, ts_ms=ts_ms)
        self._is_whole = False
        self._guard.reserve(draft)
        return self._commit(draft)

    def confirm_head(self) -> None:
        """Makes our head the guard's reservation, after the guard was lost.

        Only to be called when the peers and witnesses have been asked for a longer feed of ours.
        """
        head = self._records.head(self.feed)
        entry = None if head is None else self._records.entry(self.feed, head.seq)
        if entry is not None:
            self._guard.reserve(entry.draft)

    def is_guard_lost(self) -> bool:
        """Whether the guard is empty and our feed is not, so that `confirm_head` is needed."""
        head = self.head(self.feed)
        return head is not None and head.fork is None and self._guard.reserved() is None

    def fault(self) -> LocalFault | None:
        """Why we must not write now, or None."""
        try:
            held = self._guard.reserved()
        except LocalFault as fault:
            return fault
        if self._state.fork_of(self.feed) is not None:
            return LocalFault("Our feed is forked and cannot be continued.", "start a new feed")
        head = self._records.head(self.feed)
        stored = None if held is None else self._records.entry(self.feed, held.header.seq)
        return recovery_fault(held, feed=self.feed, head=head, stored=stored)

    def _check_writable(self) -> None:
        self._check_whole()
        if fault := self.fault():
            raise fault
        self._finish()

    def _finish(self) -> None:
        """Signs what was reserved and not stored: the same id, whenever it is done."""
        held = self._guard.reserved()
        head = self._records.head(self.feed)
        if held is not None and (head is None or held.header.seq > head.seq):
            self._commit(held)

    def _commit(self, draft: Draft) -> Entry:
        entry = seal(draft, signer=self._signer, net=self.net)
        body = read_body(draft)
        self._write(batch_of(entry, body, is_main=True, is_ours=True), sync=True)
        self._state.add(entry, body)
        return entry

    def _write(self, batch: dict[bytes, bytes], *, sync: bool) -> None:
        self._is_whole = False
        self._store.write(batch, sync=sync)
        self._is_whole = True

    def _check_whole(self) -> None:
        if not self._is_whole:
            raise LocalFault("A write to the ledger failed before.", "restart the node")

    def ingest(self, raw: bytes) -> Taken:
        """Judges an entry and keeps it. Others' entries are on the disk after our next or `flush`.

        Raises PeerFault `entry.*`, `codec.*` or a rule of the entry's kind, and changes nothing.
        """
        self._check_whole()
        entry = read_entry(raw, self.net)
        header = entry.header
        check_place(header)
        if (early := self._judge_place(entry)) is not None:
            return early
        check_seal(entry, self.net)
        body = read_body(entry.draft)
        check_body(body, header, self.net)
        return self._keep(entry, body)

    def _judge_place(self, entry: Entry) -> Taken | None:
        """What becomes of the entry at once; None if it is to be judged further."""
        header = entry.header
        if self._state.fork_of(header.feed) is None and self._is_next(entry):
            check_link(header, self._records.head(header.feed))
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
        if self._state.fork_of(feed) is not None:
            return self._records.at(feed, seq)
        main = self._records.entry(feed, seq) if seq >= 0 else None
        return [] if main is None else [main]

    def _keep(self, entry: Entry, body: Body | None) -> Taken:
        feed, is_main = entry.feed, self._is_next(entry)
        proofs = turns_with(self._records, entry, body)
        if not is_main or self._state.fork_of(feed) is not None:
            proofs += forks_with(self._records, entry)
        is_kept = is_main or len(self._records.conflicts(feed)) < CONFLICTS_MAX
        batch = batch_of_evidence(self._records, proofs)
        is_grave = bool(batch)
        if is_kept:
            batch |= batch_of(entry, body, is_main=is_main, is_ours=feed == self.feed)
        self._write(batch, sync=is_grave or feed == self.feed)
        if is_kept:
            self._state.add(entry, body)
        self._learn_forks(proofs)
        return Taken.NEW if is_main else Taken.CONFLICT

    def _is_next(self, entry: Entry) -> bool:
        head = self._records.head(entry.feed)
        if head is None:
            return entry.seq == 0
        return entry.seq == head.seq + 1 and entry.header.prev == head.id

    def _learn_forks(self, proofs: list[bytes]) -> None:
        for raw in proofs:
            offence = check(raw, self.net)
            if offence.seq is not None:
                self._state.fork(offence.offender, offence.seq)

    def accuse(self, raw: bytes) -> Offence:
        """Keeps this evidence, if it proves an offence that is new here or does so in fewer bytes.

        Raises PeerFault as `evidence.check`.
        """
        self._check_whole()
        offence = check(raw, self.net)
        batch = batch_of_evidence(self._records, [raw])
        if batch:
            self._write(batch, sync=True)
        self._learn_forks([raw])
        return offence

    def flush(self) -> None:
        """Everything taken so far is on the disk on return."""
        self._write({}, sync=True)

    def load(self) -> None:
        """Folds what is stored, and finishes an entry that was reserved. For `open_ledger`."""
        check_own_feed(self._records, self.feed)
        for entry in self._records.all_entries():
            self._state.apply(entry)
        self._learn_forks(self.evidence())
        if self.fault() is None:
            self._finish()


def open_ledger(
    *,
    store: Store,
    guard: Guard,
    signer: Signer,
    net: NetId,
    uuid: bytes,
    rules: bytes = RULES_DIGEST[:8],
) -> Ledger:
    """The ledger in this store, our own feed verified, a half-finished append finished.

    `uuid` is for a store that is new: sixteen bytes drawn by the caller. A feed that must be
    recovered first opens too (`Ledger.fault` says so) and takes its own entries from the peers.
    Raises LocalFault if the store is another network's or another layout's, or is damaged.
    """
    check_stamp(store, net=net, uuid=uuid)
    ledger = Ledger(store=store, guard=guard, signer=signer, net=net, rules=rules)
    ledger.load()
    return ledger
