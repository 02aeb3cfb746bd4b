"""The ledger of a running node, as API documents: feeds, proofs, forks, the walk, files of it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import trio

from ledger import keys
from ledger.audit import Report
from ledger.bodies import Genesis, read_body
from ledger.entry import Entry, read_entry
from ledger.evidence import check
from ledger.ledger import Ledger, Taken
from ledger.pruning import Pruned
from ledger.records import Head
from p2pnode.api.ledger_documents import (
    EntryDocument,
    EvidenceDocument,
    ExportDocument,
    ExportOrder,
    FeedDocument,
    ForkDocument,
    ForkListDocument,
    HeadDocument,
    ImportDocument,
    ImportOrder,
    LedgerDocument,
    ProofDocument,
    PruneDocument,
    PruneOrder,
    VerifyDocument,
)
from p2pnode.clock import WallClock
from p2pnode.ledger_files import take_export, write_export
from p2pnode.network.peer_text import peer_text
from p2pnode.proofs import proof_document
from p2pnode.words import kind_words
from protocol.certificate import Certificate, read_certificate
from protocol.errors import LocalFault
from protocol.signing import digest
from protocol.units import Digest, Millis, PublicKey

_AUDITS: Final = trio.CapacityLimiter(1)
_SHOW: Final = "p2pnode ledger show"
PRUNE_MS_MIN: Final = 86_400_000


class LedgerViews:
    """What the API does with the ledger; `take` judges and keeps an entry from a file."""

    def __init__(self, ledger: Ledger, take: Callable[[bytes], Taken], *, clock: WallClock) -> None:
        self._ledger = ledger
        self._take = take
        self._clock = clock

    def ledger(self) -> LedgerDocument:
        """The heads of all feeds and what is proved against whom."""
        heads = self._ledger.heads()
        return LedgerDocument(
            feed=self._ledger.feed.hex(),
            root=_root_of(heads).hex(),
            heads=tuple(
                HeadDocument(
                    feed=head.feed.hex(),
                    seq=head.seq,
                    id=head.id.hex(),
                    ts_ms=head.ts_ms,
                    fork=head.fork,
                )
                for head in heads
            ),
            offences=tuple(
                {"offender": offence.offender.hex(), "rule": offence.rule, "class": "proved"}
                for offence in self._ledger.offences()
            ),
        )

    def feed(self, name: str, *, first: int | None, limit: int) -> FeedDocument:
        """Entries of one feed from `first` on, or the last ones. Raises LocalFault."""
        head = self._head(name)
        begin = max(0, head.seq + 1 - limit if first is None else first)
        stop = begin + limit
        shown = self._main_chain(head.feed, begin, stop)
        others = [
            _entry(entry, is_main=False)
            for entry in self._ledger.conflicts(head.feed)
            if begin <= entry.seq < stop
        ]
        certificate = self._certificate(head.feed)
        return FeedDocument(
            feed=head.feed.hex(),
            peer=_peer(certificate),
            account=_account(certificate),
            length=head.seq + 1,
            fork=head.fork,
            items=tuple(sorted(shown + others, key=lambda item: (item.seq, not item.is_main))),
            left_out=max(0, head.seq + 1 - stop),
        )

    def _main_chain(self, feed: PublicKey, first: int, stop: int) -> list[EntryDocument]:
        """Its entries from `first` up to but not including `stop`, or what is left of them.

        The places may be any numbers that fit a URL; the store's keys have eight bytes.
        """
        head = self._ledger.head(feed)
        return (
            []
            if head is None
            else [self._main_entry(feed, seq) for seq in range(first, min(stop, head.seq + 1))]
        )

    def _main_entry(self, feed: PublicKey, seq: int) -> EntryDocument:
        stub = self._ledger.stub(feed, seq)
        if stub is not None:
            return _entry(stub, is_main=True, has_body=False)
        [raw] = self._ledger.entries(feed, seq, seq + 1)
        return _entry(read_entry(raw, self._ledger.net), is_main=True)

    def evidence(self, offender: str | None, *, limit: int) -> EvidenceDocument:
        """The proofs against one feed or all. Raises LocalFault."""
        feed = None if offender is None else self._offender(offender)
        proofs = self._ledger.evidence()
        if feed is not None:
            proofs = [raw for raw in proofs if self._accused(raw) == feed]
        return EvidenceDocument(
            items=tuple(self._proof(raw) for raw in proofs[:limit]),
            left_out=max(0, len(proofs) - limit),
        )

    def forks(self) -> ForkListDocument:
        """The feeds that are proved to fork."""
        return ForkListDocument(items=tuple(self._forks()))

    async def verify(self) -> VerifyDocument:
        """All that is stored, judged anew, while the node goes on."""
        # First the place, then the view of the store, which it would keep from being tidied.
        async with _AUDITS:
            audit = self._ledger.begin_audit()
            report = await trio.to_thread.run_sync(audit, trio.from_thread.check_cancelled)
        return verify_document(report)

    async def export_to(self, order: ExportOrder) -> ExportDocument:
        """Write the ledger, or one feed of it, to a new file. Raises LocalFault."""
        feed = None if order.feed is None else self._head(order.feed).feed
        written = await write_export(
            self._ledger.begin_export(feed), self._ledger.net, Path(order.file)
        )
        return ExportDocument(
            file=order.file,
            feed=None if feed is None else feed.hex(),
            entries=written.counts[keys.ENTRIES],
            conflicts=written.counts[keys.CONFLICTS],
            proofs=written.counts[keys.EVIDENCE],
            bytes=written.size,
            sha256=written.sha256.hex(),
        )

    async def import_from(self, order: ImportOrder) -> ImportDocument:
        """Take what a file holds, judged as from a peer. Raises LocalFault."""
        before = len(self._ledger.evidence())
        tally = await take_export(Path(order.file), self._ledger, self._take)
        return ImportDocument(
            ok=tally.is_whole,
            new=tally.taken[Taken.NEW],
            known=tally.taken[Taken.KNOWN],
            conflicts=tally.taken[Taken.CONFLICT],
            missing=tally.taken[Taken.MISSING],
            proofs=tally.proofs,
            offences_new=len(self._ledger.evidence()) - before,
            refused=dict(tally.refused),
            broken=tally.broken,
        )

    async def prune(self, order: PruneOrder) -> PruneDocument:
        """Drop the bodies of what is summed up and old. Raises LocalFault."""
        if order.older_than_ms < PRUNE_MS_MIN:
            raise LocalFault("Nothing younger than a day is dropped.", "--older-than 180d")
        before = Millis(self._clock.now() - order.older_than_ms)
        done, feeds = Pruned(entries=0, size=0), dict[PublicKey, None]()
        for head in self._ledger.heads():
            for dropped in self._ledger.prune_feed(head.feed, before):
                done += dropped
                feeds[head.feed] = None
                await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
        self._ledger.flush()
        return PruneDocument(
            before_ms=before, entries=done.entries, bytes=done.size, feeds=len(feeds)
        )

    def _head(self, name: str) -> Head:
        found = [head for head in self._ledger.heads() if head.feed.hex().startswith(name.lower())]
        if len(found) != 1:
            raise LocalFault(
                f"{len(found) or 'no'} feeds here begin with {name!a}.",
                _SHOW,
            )
        return found[0]

    def _offender(self, name: str) -> PublicKey:
        """By a unique beginning of its feed, of which perhaps nothing but the proof is here."""
        accused = dict.fromkeys(self._accused(raw) for raw in self._ledger.evidence())
        found = [feed for feed in accused if feed.hex().startswith(name.lower())]
        if len(found) > 1:
            raise LocalFault(f"{len(found)} offenders begin with {name!a}.", "more of its digits")
        return found[0] if found else self._head(name).feed

    def _accused(self, raw: bytes) -> PublicKey:
        return check(raw, self._ledger.net).offender

    def _proof(self, raw: bytes) -> ProofDocument:
        certificate = self._certificate(self._accused(raw))
        return proof_document(
            raw, self._ledger.net, peer=_peer(certificate), account=_account(certificate)
        )

    def _forks(self) -> Iterator[ForkDocument]:
        for raw in self._ledger.evidence():
            proof = self._proof(raw)
            if proof.fork is None:
                continue
            feed = PublicKey(bytes.fromhex(proof.offender))
            main = self._main_chain(feed, proof.fork, proof.fork + 1)
            others = [
                _entry(entry, is_main=False)
                for entry in self._ledger.conflicts(feed)
                if entry.seq == proof.fork
            ]
            yield ForkDocument(
                feed=proof.offender,
                peer=proof.peer,
                account=proof.account,
                fork=proof.fork,
                proof=proof.id,
                entries=(*main, *others),
            )

    def _certificate(self, feed: PublicKey) -> Certificate | None:
        """Out of the first entry of the feed, if that is here."""
        for raw in self._ledger.entries(feed, 0, 1):
            body = read_body(read_entry(raw, self._ledger.net).draft)
            if isinstance(body, Genesis):
                return read_certificate(body.certificate, self._ledger.net)
        return None


def verify_document(report: Report) -> VerifyDocument:
    """What a walk of a ledger found."""
    broken = report.broken
    return VerifyDocument(
        ok=broken is None,
        feeds=report.feeds,
        entries=report.entries,
        conflicts=report.conflicts,
        evidence=report.evidence,
        broken=None if broken is None else f"{broken.rule}: {_record_words(broken.key)}",
    )


def _record_words(key: bytes) -> str:
    """Which record of the store has this key."""
    feed = key[1:33].hex()
    if key[:1] in {keys.ENTRIES, keys.CONFLICTS}:
        return f"entry {int.from_bytes(key[33:41], 'big')} of feed {feed}"
    return f"{'the head' if key[:1] == keys.HEADS else 'a proof'} of feed {feed}"


def _peer(certificate: Certificate | None) -> str | None:
    return None if certificate is None else peer_text(certificate.peer_id)


def _account(certificate: Certificate | None) -> str | None:
    return None if certificate is None else certificate.root.hex()


def _entry(entry: Entry, *, is_main: bool, has_body: bool = True) -> EntryDocument:
    return EntryDocument(
        seq=entry.seq,
        id=entry.id.hex(),
        ts_ms=entry.header.ts_ms,
        kind=entry.header.kind,
        what=kind_words(entry.header.kind),
        is_main=is_main,
        has_body=has_body,
    )


def _root_of(heads: list[Head]) -> Digest:
    parts = [head.feed + head.seq.to_bytes(8, "big") + head.id for head in heads]
    return digest("heads", b"".join(parts))
