"""The requests for quote that this owner saw, what it answered, and what came of that.

Bounded: a new note takes the place of the oldest. Kept in the cabinet now and then, so that a
crash costs the notes of the last minute and nothing that anybody relies on.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace

from p2pnode.cabinet import Cabinet
from p2pnode.matching.surcharge import Shape
from p2pnode.network.budget import Budget
from protocol.advert import Tier
from protocol.auction import Bid, Need, Reason, Rfq
from protocol.codec import (
    CurrencyCode,
    Id16,
    Instant,
    Key,
    Money,
    Span,
    UInt,
    Wire,
    decode,
    encode,
)
from protocol.errors import LocalFault, PeerFault
from protocol.units import Digest, Micros, Millis, PublicKey

log = logging.getLogger(__name__)

PAGE_NOTES: Final = 64
PAGES: Final = 64
NOTES_MAX: Final = PAGE_NOTES * PAGES
"""4,096 notes: a week of an owner that is asked every two and a half minutes, about 1.5 MB."""
PAGE_BYTES_MAX: Final = 1_048_576
WRITE_MS: Final = 60_000
"""Changed pages are written at most so often."""

NOTES_PER_S: Final = 0.5
NOTES_BURST: Final = 128
"""One renter that asks more than this is noted so often alone: it must not push out all others."""
RENTERS_MAX: Final = 1_024

USUAL_LEAST: Final = 16
USUAL_OF_ONE: Final = 8
"""Of one renter, who could else say alone what is usual; of many identities it still can."""
USUAL_OF: Final = 512
"""By so many requests an owner says what is usually asked, and by no fewer."""

Result = Literal["refused", "open", "won", "lost", "expired"]
"""`open`: the bid is firm still. `lost`: it ran out, and nobody took it. `expired`: it was taken
and gave nothing: too late, or the job was refused."""


class Note(Wire, frozen=True, kw_only=True):
    """One request for quote."""

    seen_ms: Instant
    renter: Key
    group: Id16
    need: Need
    tier: Tier
    start_ms: Instant
    end_ms: Instant
    notice_ms: Span
    money: CurrencyCode
    result: Result
    reason: Reason | UnsetType = UNSET
    """Of the refusal, if we refused."""
    detail: Annotated[str, Meta(max_length=200)] | UnsetType = UNSET
    ask_micro: Money | UnsetType = UNSET
    """What we bid per GPU-hour."""
    valid_until_ms: Instant | UnsetType = UNSET
    """Of the bid."""
    rival_micro: Money | UnsetType = UNSET
    """The lowest ask of others in our book that fitted then, in the same money."""
    rivals: UInt | UnsetType = UNSET
    """How many fitted; absent where nobody looked."""
    cheaper: UInt | UnsetType = UNSET
    """How many of them asked less than we bid."""


class Page(Wire, frozen=True, kw_only=True):
    """Some notes that follow each other."""

    first: UInt
    """The number of the first one."""
    notes: Annotated[tuple[Note, ...], Meta(max_length=PAGE_NOTES)]


Rivals = Callable[[Rfq, Millis], tuple[Micros, ...] | None]
"""rivals(request, now): the asks of others that fit it, lowest first; None: not looked."""


def nobody(_rfq: Rfq, _now: Millis) -> None:
    """Where there is no book to look into."""


class Journal:
    """Owns the notes."""

    def __init__(self, cabinet: Cabinet, *, rivals: Rivals = nobody) -> None:
        self._cabinet = cabinet
        self._rivals = rivals
        self._notes: OrderedDict[int, Note] = OrderedDict()
        self._open: dict[Digest, int] = {}
        self._changed: dict[int, None] = {}
        self._written_ms = Millis(0)
        self._budget: Budget[PublicKey] = Budget(
            per_s=NOTES_PER_S, burst=NOTES_BURST, keys_max=RENTERS_MAX
        )
        self._load()
        self._next = max(self._notes, default=-1) + 1

    def refused(self, rfq: Rfq, renter: PublicKey, now: Millis, no: tuple[Reason, str]) -> None:
        """We do not quote for this one."""
        if not self._is_noted(renter, now):
            return
        reason, detail = no
        note = self._note(rfq, renter, now, result="refused")
        self._add(replace(note, reason=reason, detail=detail[:200] or UNSET), now)

    def bid(self, rfq: Rfq, renter: PublicKey, now: Millis, made: tuple[Digest, Bid]) -> None:
        """We have made this bid."""
        if not self._is_noted(renter, now):
            return
        digest, bid = made
        self._open[digest] = self._next
        note = self._note(rfq, renter, now, result="open", bid=bid.micro_per_gpu_hour)
        self._add(replace(note, valid_until_ms=bid.valid_until_ms), now)

    def taken(self, digest: Digest, now: Millis, *, is_granted: bool) -> None:
        """A renter took the bid, which gave it a lease or not."""
        number = self._open.pop(digest, None)
        if number is None or number not in self._notes:
            return
        self._notes[number] = replace(
            self._notes[number], result="won" if is_granted else "expired"
        )
        self._changed[number // PAGE_NOTES] = None
        self._write_sometimes(now)

    def usual(self, group: bytes) -> tuple[Shape, ...]:
        """How many GPUs renters lately wanted of this group; empty before there were enough."""
        lately: list[int] = []
        of_renter: dict[PublicKey, int] = {}
        for note in reversed(self._notes.values()):
            counted = of_renter.get(note.renter, 0)
            is_odd = note.reason in {"SHAPE", "POLICY"}
            if note.group != group or is_odd or counted >= USUAL_OF_ONE:
                continue
            of_renter[note.renter] = counted + 1
            lately.append(note.need.gpus)
            if len(lately) >= USUAL_OF:
                break
        if len(lately) < USUAL_LEAST:
            return ()
        return tuple(Shape(gpus=gpus, weight=lately.count(gpus)) for gpus in sorted(set(lately)))

    def since(self, instant: int, now: Millis) -> list[Note]:
        """The notes from this instant on, oldest first, each with what has come of it by now."""
        return [note for _, note in self.numbered(instant, now)]

    def numbered(self, instant: int, now: Millis) -> list[tuple[int, Note]]:
        """As `since`, each with its number, which it keeps."""
        return [
            (number, _settled(note, now))
            for number, note in self._notes.items()
            if note.seen_ms >= instant
        ]

    def write(self) -> None:
        """Keep what has changed. A disk that fails costs the notes, and is told to the log."""
        for page in list(self._changed):
            notes = [
                self._notes[number]
                for number in range(page * PAGE_NOTES, (page + 1) * PAGE_NOTES)
                if number in self._notes
            ]
            record = encode(Page(first=page * PAGE_NOTES, notes=tuple(notes)))
            try:
                self._cabinet.put(f"journal/{page % PAGES:02}", record)
            except LocalFault as fault:
                log.warning("journal not kept", extra={"why": fault.what})
                return
            del self._changed[page]

    def _is_noted(self, renter: PublicKey, now: Millis) -> bool:
        return self._budget.is_within(renter, now / 1_000)

    def _note(
        self, rfq: Rfq, renter: PublicKey, now: Millis, *, result: Result, bid: Micros | None = None
    ) -> Note:
        rivals = self._rivals(rfq, now)
        cheaper: int | UnsetType = UNSET
        if rivals is not None and bid is not None:
            cheaper = sum(ask < bid for ask in rivals)
        return Note(
            seen_ms=now,
            renter=renter,
            group=rfq.group,
            need=rfq.need,
            tier=rfq.tier,
            start_ms=rfq.start_ms,
            end_ms=rfq.end_ms,
            notice_ms=rfq.notice_ms,
            money=rfq.money,
            result=result,
            ask_micro=UNSET if bid is None else bid,
            rival_micro=rivals[0] if rivals else UNSET,
            rivals=UNSET if rivals is None else len(rivals),
            cheaper=cheaper,
        )

    def _add(self, note: Note, now: Millis) -> None:
        self._notes[self._next] = note
        self._changed[self._next // PAGE_NOTES] = None
        self._next += 1
        # Whole pages go, so that the places of the others stay theirs.
        while len(self._notes) > NOTES_MAX - PAGE_NOTES:
            page = next(iter(self._notes)) // PAGE_NOTES
            for number in range(page * PAGE_NOTES, (page + 1) * PAGE_NOTES):
                self._notes.pop(number, None)
        self._write_sometimes(now)

    def _write_sometimes(self, now: Millis) -> None:
        if now - self._written_ms >= WRITE_MS:
            self._written_ms = now
            self._open = {
                digest: number
                for digest, number in self._open.items()
                if number in self._notes and _settled(self._notes[number], now).result == "open"
            }
            self.write()

    def _load(self) -> None:
        pages = []
        for name in self._cabinet.names("journal"):
            raw = self._cabinet.get(name)
            try:
                pages.append(decode(raw or b"", Page, size_max=PAGE_BYTES_MAX))
            except PeerFault as fault:
                log.warning("a page of the journal is damaged", extra={"why": str(fault)})
        for page in sorted(pages, key=lambda page: page.first):
            self._notes.update(enumerate(page.notes, page.first))


def _settled(note: Note, now: Millis) -> Note:
    is_over = note.valid_until_ms is not UNSET and note.valid_until_ms < now
    return replace(note, result="lost") if note.result == "open" and is_over else note
