"""One peer's ledger: writes its own feed, takes everybody's, remembers what they add up to.

SPEC.md sections 5 to 8. Synchronous; one owner; no byte of ours leaves before it is durable.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import UNSET

from ledger import keys
from ledger.audit import Audit, Report, begin_audit, check_own_feed
from ledger.author import Author
from ledger.bodies import Accept, Body, Grant, Reason, read_body
from ledger.calendar import grant_of, release_of, turns_after
from ledger.entry import Entry, Link, read_entry
from ledger.evidence import check
from ledger.export import Record, begin_export
from ledger.fold import Lease, State
from ledger.guard import Guard
from ledger.holdings import Holdings
from ledger.intake import Intake, RunTaken, Taken
from ledger.judging import Offence
from ledger.limits import INGEST_AT_ONCE
from ledger.pruning import Pruned
from ledger.records import Head, check_stamp
from ledger.store import Store
from ledger.summing import sum_up
from ledger.waiting import Waiting
from ledger.witness_bodies import Cosigned
from protocol.errors import LocalFault
from protocol.lease import LeaseRequest
from protocol.rules import RULES_DIGEST
from protocol.signing import Signer
from protocol.units import Digest, Millis, NetId, PublicKey, Signature
from protocol.wire import Sealed, unpack

__all__ = ["Ledger", "RunTaken", "Taken", "open_ledger"]


class Ledger:
    """The entries in a store and their fold. `open_ledger` makes one."""

    def __init__(
        self, *, store: Store, guard: Guard, signer: Signer, net: NetId, rules: bytes
    ) -> None:
        self.feed: Final = signer.public
        self.net: Final = net
        self._store = store
        self._held = Holdings(store, net)
        self._records = self._held.records
        self._author = Author(self._held, guard=guard, signer=signer, rules=rules)
        self._intake = Intake(self._held, signer.public)
        self._waiting = Waiting(self._held, self._intake, signer.public)

    @property
    def state(self) -> State:
        """The fold of all entries here. To look at, not to change."""
        return self._held.state

    @property
    def changes(self) -> int:
        """Writes since the ledger was opened: whoever keeps what it derived compares this."""
        return self._held.changes

    @property
    def accusations(self) -> int:
        """Evidence written since the ledger was opened: whoever passes it on compares this."""
        return len(self._held.accused)

    @property
    def uuid(self) -> bytes:
        """Of the store: a peer that meets another one must not count on what we had."""
        value = self._store.get(keys.meta(b"uuid"))
        assert value is not None
        return value

    def head(self, feed: PublicKey) -> Head | None:
        """The end of the feed's main chain; None for a feed that is not here."""
        link = self._held.head(feed)
        return None if link is None else self._head(feed, link)

    def heads(self) -> list[Head]:
        """All feeds, in the order of their keys."""
        return [self._head(feed, link) for feed, link in self._held.heads()]

    def _head(self, feed: PublicKey, link: Link) -> Head:
        fork = self.state.fork_of(feed)
        return Head(feed=feed, seq=link.seq, id=link.id, ts_ms=link.ts_ms, fork=fork)

    def entry(self, entry_id: Digest) -> Entry | None:
        """The entry with this id, on whichever branch."""
        return self._records.find(entry_id)

    def entries(self, feed: PublicKey, first: int, stop: int) -> Iterator[bytes]:
        """The bytes of the feed's main chain from `first` up to but not including `stop`."""
        head = self._held.head(feed)
        # Behind the head may be entries of ours that nobody may see yet.
        return self._records.raw_entries(
            feed, first, min(stop, 0 if head is None else head.seq + 1)
        )

    def places(self, feed: PublicKey, first: int, stop: int) -> tuple[list[Entry], list[Entry]]:
        """The main chain from `first` up to `stop`: entries, and stubs where a body is gone."""
        head = self._held.head(feed)
        stop = min(stop, 0 if head is None else head.seq + 1)
        bodies = self._records.bodies_between(feed, first, stop)
        entries = [self._records.read(raw) for raw in bodies]
        return entries, list(self._records.stubs_between(feed, first, stop))

    def stub(self, feed: PublicKey, seq: int) -> Entry | None:
        """What is left of the main chain's entry at this place, if its body was dropped."""
        return self._records.stub(feed, seq)

    def conflicts(self, feed: PublicKey) -> list[Entry]:
        """The entries of the feed's other branches, by place."""
        return self._records.conflicts(feed)

    def referrers(self, entry_id: Digest) -> list[Entry]:
        """The entries that name this one: the ACCEPT and RELEASE of a GRANT, for example."""
        return self._records.referrers(entry_id)

    def evidence(self) -> list[bytes]:
        """All evidence kept, one for each offence, by offender."""
        return list(self._records.evidence())

    def evidence_since(self, accusations: int) -> list[bytes]:
        """What was written since there were so many `accusations`, as far as it is kept."""
        return self._held.evidence_since(accusations)

    def offences(self) -> list[Offence]:
        """What the evidence proves."""
        return [check(raw, self.net) for raw in self._records.evidence()]

    def lease(self, grant: Digest) -> Lease | None:
        """The lease of this GRANT, if the GRANT is here."""
        return self.state.lease(grant)

    def grant_for(self, renter: PublicKey, nonce: bytes) -> Entry | None:
        """Our GRANT that answered this request; one request gives one lease."""
        grant = self._store.get(keys.nonce(renter, nonce))
        return None if grant is None else self._records.find(Digest(grant))

    def clamped(self, now: Millis) -> Millis:
        """The time that our next entry would bear: ours never runs back."""
        return self._author.clamped(now)

    def verify(self) -> Report:
        """Walks everything that is stored and judges it anew."""
        return self.begin_audit()(lambda: None)

    def begin_audit(self) -> Audit:
        """What `verify` does, of the store as it is now, to be done beside other work."""
        return begin_audit(self._records)

    def begin_export(self, feed: PublicKey | None = None) -> Iterator[Record]:
        """All that is stored now, or of one feed; may be walked beside other work."""
        return begin_export(self._records, feed)

    def grant(self, request: bytes, now: Millis) -> Entry:
        """The GRANT that answers this sealed lease request; the one there is, if it came before.

        Raises Unavailable if a unit is leased then or its counter has moved on; PeerFault
        `codec.*`, `seal.*` or `grant.*` if the request is bad or not to us; LocalFault as `append`.
        """
        self._author.check_writable()
        sealed = unpack(request, self.net, LeaseRequest)
        known = self.grant_for(sealed.signer, sealed.body.nonce)
        if known is not None:
            return known
        return self.append(self._grant_after((), sealed, request, now), now)

    def check_grant(
        self, request: bytes, now: Millis, *, after: Sequence[tuple[Lease, Millis]]
    ) -> None:
        """Raises what `grant` would, were these leases of ours released first, each from then on.

        Writes nothing: nobody's lease is ended for one that is refused.
        """
        self._author.check_writable()
        sealed = unpack(request, self.net, LeaseRequest)
        self._author.check(self._grant_after(after, sealed, request, now), now, ahead=len(after))

    def _grant_after(
        self,
        ends: Sequence[tuple[Lease, Millis]],
        sealed: Sealed[LeaseRequest],
        raw: bytes,
        now: Millis,
    ) -> Grant:
        ts_ms = self.clamped(now)
        turn_of = turns_after(self.state, ends, owner=self.feed, ts_ms=ts_ms)
        return grant_of(turn_of, raw, sealed.body, ts_ms=ts_ms)

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
        self._author.check_writable()
        lease = self.state.lease(grant)
        if lease is None or lease.owner != self.feed:
            raise LocalFault(f"There is no lease {grant.hex()[:16]} of ours.", "p2pnode leases")
        ts_ms = self.clamped(now)
        body = release_of(
            self.state, lease, ts_ms=ts_ms, at_ms=at_ms, reason=reason, consent=consent
        )
        return self.append(body, now)

    def accept(self, grant: Digest, now: Millis, *, cosigned: Cosigned | None = None) -> Entry:
        """The ACCEPT by which we take the lease of this GRANT; the one there is, if there is.

        `cosigned` is what its witnesses have signed.
        """
        self._held.check_whole()
        for entry in self.referrers(grant):
            if entry.feed == self.feed and isinstance(read_body(entry.draft), Accept):
                return entry
        return self.append(Accept(grant=grant, cosigned=cosigned or UNSET), now)

    def append(self, body: Body, now: Millis) -> Entry:
        """Our next entry, durable; from now on its bytes may be handed out.

        Raises PeerFault if the body breaks a rule; LocalFault if it would prove an offence of ours
        or if our feed must be recovered first. Whatever the guard or the store raises may have come
        too late: the ledger must then be opened again, which finishes the entry or drops it.
        """
        return self._author.append(body, now)

    def append_all(self, bodies: Sequence[Body], now: Millis) -> list[Entry]:
        """Our next entries, made durable together: in about the time of one.

        Raises as `append`; of a body that is refused those before it are written.
        """
        return self._author.append_all(bodies, now)

    def hold(self, why: str | None) -> None:
        """From now on our next entry is refused with this reason; None lets us write again.

        Where guard and store are rolled back together no `fault` tells, and only others can.
        """
        self._author.hold(why)

    def confirm_head(self) -> None:
        """Makes our head the guard's reservation, after the guard was lost.

        Only to be called when the peers and witnesses have been asked for a longer feed of ours.
        """
        self._author.confirm_head()

    def is_guard_lost(self) -> bool:
        """Whether the guard is empty and our feed is not, so that `confirm_head` is needed."""
        return self._author.is_guard_lost()

    def is_ended(self) -> bool:
        """Whether our next entry would give us nothing: our feed forks, or another follows it."""
        return self._author.is_ended()

    def fault(self) -> LocalFault | None:
        """Why we must not write now, or None."""
        return self._author.fault()

    def ingest(self, raw: bytes) -> Taken:
        """Judges an entry and keeps it. Others' entries are on the disk after our next or `flush`.

        Raises PeerFault `entry.*`, `codec.*` or a rule of the entry's kind, and changes nothing.
        """
        done = self.ingest_run((read_entry(raw, self.net),))
        if done.fault is not None:
            raise done.fault
        return done.taken[0]

    def ingest_run(self, entries: Iterable[Entry]) -> RunTaken:
        """As `ingest`, of several one after the other, which are written together where they can.

        The first that breaks a rule, or is dear (see RunTaken), ends it; those before it are kept.
        """
        ours = self._held.head(self.feed)
        done = self._intake.take(entries)
        if self._held.head(self.feed) != ours and self.fault() is None:
            # Entries of ours that others had: the guard must not forget that they are out.
            self._author.level()
        return done

    def take_on_trust(self, run: tuple[Entry, ...]) -> bool:
        """Keeps entries of one feed for later; only the last one's signature is verified now.

        The others hang on it by their ids. Until `judge_waiting` has judged them they are not in
        the record. False if they must be judged at once: if the feed is ours or known to fork, if
        one of its entries that waited did not hold, or if too many wait.
        Raises PeerFault `entry.*` if they do not follow what we have, and keeps none.
        """
        return self._waiting.take(run)

    def waiting_end(self, feed: PublicKey) -> Link | None:
        """The last entry of the feed that waits to be judged, if any does."""
        return self._waiting.end(feed)

    def waiting_feeds(self) -> list[PublicKey]:
        """The feeds of which entries wait to be judged."""
        return self._waiting.feeds()

    def judge_waiting(
        self, feed: PublicKey, count: int = INGEST_AT_ONCE
    ) -> tuple[tuple[Entry, ...], RunTaken]:
        """Judges the next entries of the feed that wait, as `ingest_run` does; these, and how.

        If one does not hold, no more of its feed wait, and nobody is at fault: the bad signature
        may be the sender's, or a relay's.
        """
        return self._waiting.judge(feed, count)

    def accuse(self, raw: bytes) -> Offence:
        """Keeps this evidence, if it proves an offence that is new here or does so in fewer bytes.

        Raises PeerFault as `evidence.check`.
        """
        return self._intake.accuse(raw)

    def checkpoint(self, now: Millis) -> list[Entry]:
        """Our next entries: all that our feed adds up to, in as many parts as it takes.

        Raises as `append`; LocalFault if there is nothing to sum up.
        """
        head = self._held.head(self.feed)
        if head is None:
            raise LocalFault("There is nothing to sum up.", "start the node once")
        bodies = sum_up(self.state, self._records, self.feed, head)
        return [self.append(body, now) for body in bodies]

    def prune_feed(self, feed: PublicKey, before_ms: Millis) -> Iterator[Pruned]:
        """Drops bodies of another's entries that its checkpoints sum up and nothing needs.

        What is older than `before_ms` alone. Each step takes some milliseconds, and others may
        write before the next; on the disk after our next or `flush`. What is derived from entries
        remembers them until the ledger is opened again: no number hangs on them. Nothing of ours
        is dropped. SPEC.md section 15.
        """
        self._held.check_whole()
        return iter(()) if feed == self.feed else self._held.prune(feed, before_ms)

    def flush(self) -> None:
        """Everything taken so far is on the disk on return. LocalFault if a write failed."""
        self._held.write({}, sync=True)

    def load(self) -> None:
        """Folds what is stored, and brings guard and store level. For `open_ledger`."""
        check_own_feed(self._records, self.feed)
        self._held.load()
        self._waiting.load()
        if self.fault() is None:
            self._author.level()


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
