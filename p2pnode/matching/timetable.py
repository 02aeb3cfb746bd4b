"""When an owner is open: its windows, compiled. Pure; the instant now is an argument.

Windows are calendars by RFC 5545, or hours in the short form of `p2pnode.opening`, which become
such. Their times are those of the clock on the wall of their zone, so a clock change moves no
window. A time that a change leaves out counts by the offset before it; one that comes twice is
the first of the two.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, UnsetType

from p2pnode.matching import calendars
from p2pnode.matching.calendars import BLOCK_DAYS, SPANS_MAX, Events, UnreadError
from p2pnode.opening import check_date, check_zone, parse_opening
from protocol.codec import CurrencyCode, Money, Name, Wire
from protocol.errors import LocalFault
from protocol.units import Micros, Millis, MillisSpan

SLOT_MS: Final = 300_000
DAY_SLOTS: Final = 288
WEEK_SLOTS: Final = 2_016
HORIZON_MS: Final = MillisSpan(5 * WEEK_SLOTS * SLOT_MS)
"""How far ahead the next opening is looked for."""
AHEAD_MS_MAX: Final = MillisSpan(4_000 * DAY_SLOTS * SLOT_MS)
"""No lease ends later where there are windows: calendars end with the year 9999."""
EVENTS_BYTES_MAX: Final = 262_144
BLOCK_MS: Final = MillisSpan(BLOCK_DAYS * DAY_SLOTS * SLOT_MS)
"""Calendars are worked out for so long at once, since each time costs milliseconds."""
BLOCKS_KEPT_MAX: Final = 160
"""More than there are up to AHEAD_MS_MAX."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MONDAY: Final = date(2020, 1, 6)
_BYDAY: Final = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")

Span = tuple[Millis, Millis]
"""[start, end): the end is not part of it."""


class Window(Wire, frozen=True, kw_only=True):
    """Times at which an owner is open, or is not."""

    name: Name
    hours: Annotated[str, Meta(max_length=200)] = ""
    """In the short form; empty if `events` has them."""
    events: Annotated[str, Meta(max_length=EVENTS_BYTES_MAX)] = ""
    """A calendar by RFC 5545."""
    zone: Annotated[str, Meta(max_length=100)]
    """Of the hours, and of events that name none."""
    excepted: tuple[str, ...] = ()
    """Dates on which `hours` do not begin."""
    kind: Literal["open", "closed"] = "open"
    """Closed goes before open."""
    floor_micro: Money | UnsetType = UNSET
    """The least price while the window is open, in place of the owner's other floors."""
    money: CurrencyCode | UnsetType = UNSET
    """Of the floor; windows that were kept without are in the money of the node."""


def check_window(window: Window, now: Millis) -> "Timetable":
    """A timetable of this window alone, worked out for the time to come. Raises LocalFault."""
    table = Timetable((window,))
    table.check(now)
    table.prepare(now, Millis(now + HORIZON_MS))
    return table


def calendar_of(window: Window) -> str:
    """The window as a calendar by RFC 5545."""
    if window.events:
        return window.events
    opening = parse_opening(window.hours)
    zone = check_zone(window.zone)
    start = _at(_MONDAY + timedelta(days=opening.days[0]), opening.start_min)
    end = start + timedelta(minutes=opening.end_min - opening.start_min)
    lines = [
        "BEGIN:VCALENDAR",
        "VERSION:2.0",
        "PRODID:-//p2pnode//window//EN",
        "BEGIN:VEVENT",
        f"UID:{window.name}",
        f"SUMMARY:{window.kind}",
        f"DTSTART;TZID={zone}:{start:%Y%m%dT%H%M%S}",
        f"DTEND;TZID={zone}:{end:%Y%m%dT%H%M%S}",
        f"RRULE:FREQ=WEEKLY;BYDAY={','.join(_BYDAY[day] for day in opening.days)}",
        *(
            f"EXDATE;TZID={zone}:{_at(date.fromisoformat(day), opening.start_min):%Y%m%dT%H%M%S}"
            for day in map(check_date, window.excepted)
        ),
        "END:VEVENT",
        "END:VCALENDAR",
    ]
    return "\r\n".join(lines) + "\r\n"


def joined(windows: tuple[Window, ...]) -> str:
    """All windows as one calendar, without their floors."""
    return calendars.joined((window.name, calendar_of(window)) for window in windows)


def _at(day: date, minutes: int) -> datetime:
    return datetime.combine(day, time(minutes // 60, minutes % 60))


class _Rule:
    """One window, ready to be asked."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self._blocks: dict[int, list[Span]] = {}
        self.missing: set[int] = set()
        """Blocks that were asked for and are not worked out."""
        zone = check_zone(window.zone)
        try:
            self.events = Events(calendar_of(window), zone)
        except UnreadError as error:
            raise _unread(window, error) from error

    def spans(self, start: Millis, end: Millis, *, is_aside: bool = False) -> list[Span]:
        """Where it lies within [start, end), merged.

        `is_aside`: what is not worked out yet is closed, and `missing` tells it.
        """
        return merged(
            (max(start, opens), min(end, closes))
            for block in _blocks(start, end)
            for opens, closes in self._block(block, is_aside=is_aside)
        )

    def prepare(self, start: Millis, end: Millis) -> None:
        """Work out what was asked for, and all within [start, end)."""
        for block in sorted({*self.missing, *_blocks(start, end)}):
            self._block(block, is_aside=False)
            self.missing.discard(block)

    def has(self, start: Millis, end: Millis) -> bool:
        """Whether all within [start, end) is worked out."""
        return all(block in self._blocks for block in _blocks(start, end))

    def _block(self, number: int, *, is_aside: bool) -> list[Span]:
        """Where it lies within one block of time; whoever asks again gets it from memory."""
        found = self._blocks.get(number)
        if found is not None:
            return found
        start, end = Millis(number * BLOCK_MS), Millis((number + 1) * BLOCK_MS)
        closed = [] if self.window.kind == "open" else [(start, end)]
        if is_aside:
            self.missing.add(number)
            return closed
        try:
            found = self.worked_out(start, end)
        except LocalFault:
            # A renter's question has come upon it: whoever asks, what is not known is closed.
            found = closed
        if len(self._blocks) >= BLOCKS_KEPT_MAX:
            del self._blocks[min(self._blocks)]  # the oldest, which is over
        self._blocks[number] = found
        return found

    def worked_out(self, start: Millis, end: Millis) -> list[Span]:
        """The same without memory. Raises LocalFault if the calendar cannot be read."""
        try:
            spans = list(self.events.spans(_utc(start), _utc(end)))
        except UnreadError as error:
            raise _unread(self.window, error) from error
        return merged(
            (max(start, _instant(opens)), min(end, _instant(closes))) for opens, closes in spans
        )


def _blocks(start: Millis, end: Millis) -> range:
    return range(start // BLOCK_MS, -(-end // BLOCK_MS))


def _unread(window: Window, error: UnreadError) -> LocalFault:
    why = str(error)[:300]
    return LocalFault(f"window {window.name}: this calendar cannot be read: {why}.", calendars.CURE)


def _instant(when: datetime) -> Millis:
    return Millis((when - _EPOCH) // timedelta(milliseconds=1))


def _utc(instant: Millis) -> datetime:
    return _EPOCH + timedelta(milliseconds=instant)


def merged(spans: Iterable[Span]) -> list[Span]:
    """The same times in order, none touching another; empty spans are left out."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if end <= start:
            continue
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def without(spans: list[Span], gone: list[Span]) -> list[Span]:
    """What is left of merged spans without others, which are merged too."""
    left, first = [], 0
    for start, end in spans:
        at = start
        while first < len(gone) and gone[first][1] <= start:
            first += 1
        for number in range(first, len(gone)):
            opens, closes = gone[number]
            if opens >= end:
                break
            if opens > at:
                left.append((at, opens))
            at = max(at, closes)
        if at < end:
            left.append((at, end))
    return left


class Timetable:
    """All windows of an owner. Without an open one it is always open."""

    def __init__(
        self,
        windows: tuple[Window, ...] = (),
        *,
        known: "Iterable[Timetable]" = (),
        on_missing: Callable[[], None] | None = None,
    ) -> None:
        """`known` have read some of the windows before.

        With `on_missing` nothing is worked out when it is asked for: hours that `prepare` has not
        come to are closed until it has, and `on_missing` is called.
        Raises LocalFault if a window cannot be read, or all come to too much.
        """
        self.windows: Final = windows
        read = {rule.window: rule for table in known for rule in table.rules}
        self.rules: Final[list[_Rule]] = [read.get(w) or _Rule(w) for w in windows]
        if sum(rule.events.most for rule in self.rules) > SPANS_MAX:
            raise LocalFault(
                f"All windows together may come to over {SPANS_MAX} times in four weeks.",
                "p2pnode window remove, or take one out of config.toml",
            )
        self._on_missing = on_missing
        self._origin = 0
        self._week = -1

    def check(self, now: Millis) -> None:
        """Whether all windows can be worked out from now on. Raises LocalFault."""
        for rule in self.rules:
            try:
                rule.events.check_age(_utc(now))
            except UnreadError as error:
                raise _unread(rule.window, error) from error
            rule.worked_out(now, Millis(now + HORIZON_MS))

    def prepare(self, start: Millis, end: Millis) -> None:
        """Work out the hours within [start, end), and those that were missing. Takes a while.

        May be called in another thread than the rest.
        """
        for rule in self.rules:
            rule.prepare(start, end)

    def is_ready(self, start: Millis, end: Millis) -> bool:
        """Whether all within [start, end) is worked out, and all that was asked for."""
        return not any(rule.missing or not rule.has(start, end) for rule in self.rules)

    def refresh(self) -> None:
        """Look again at what `prepare` has worked out since."""
        self._week = -1

    def _spans_of(self, rule: _Rule, start: Millis, end: Millis) -> list[Span]:
        found = rule.spans(start, end, is_aside=self._on_missing is not None)
        if rule.missing and self._on_missing is not None:
            self._on_missing()
        return found

    @property
    def is_bounded(self) -> bool:
        """Whether there are windows at all."""
        return bool(self.rules)

    def spans(self, start: Millis, end: Millis) -> list[Span]:
        """When it is open within [start, end), merged."""
        opens = [rule for rule in self.rules if rule.window.kind == "open"]
        found: list[Span] = [(start, end)] if start < end else []
        if opens:
            found = merged(span for rule in opens for span in self._spans_of(rule, start, end))
        closed = [rule for rule in self.rules if rule.window.kind == "closed"]
        return without(
            found, merged(s for rule in closed for s in self._spans_of(rule, start, end))
        )

    def slots(self, now: Millis, count: int = DAY_SLOTS) -> int:
        """The next slots of five minutes from the one that has begun, lowest bit first.

        A bit is set if the whole slot is open. `count` is at most six days of them.
        """
        first = now // SLOT_MS
        if self._week < 0 or not 0 <= first - self._origin < DAY_SLOTS:
            self._origin, self._week = first, self._compiled(first)
        return (self._week >> (first - self._origin)) & ((1 << count) - 1)

    def _compiled(self, first: int) -> int:
        if not self.rules:
            return (1 << WEEK_SLOTS) - 1
        week = 0
        start, end = first * SLOT_MS, (first + WEEK_SLOTS) * SLOT_MS
        for opens, closes in self.spans(Millis(start), Millis(end)):
            low = -(-opens // SLOT_MS) - first
            high = closes // SLOT_MS - first
            if high > low:
                week |= ((1 << (high - low)) - 1) << low
        return week

    def covers(self, start: Millis, end: Millis, *, now: Millis) -> bool:
        """Whether all of [start, end) lies in open hours.

        The bitmap of the week answers most of it; what it leaves open, the exact hours do.
        """
        if not self.rules:
            return True
        low, high = start // SLOT_MS - now // SLOT_MS, -(-end // SLOT_MS) - now // SLOT_MS
        if 0 <= low < high <= WEEK_SLOTS - DAY_SLOTS:
            mask = (1 << high) - (1 << low)
            if self.slots(now, high) & mask == mask:
                return True
        return self.spans(start, end) == [(start, end)]

    def open_until(self, now: Millis) -> Millis | None:
        """When it closes; None if it is closed, or does not close within the horizon."""
        if not self.rules:
            return None
        spans = self.spans(now, Millis(now + HORIZON_MS))
        if not spans or spans[0][0] > now or spans[0][1] >= now + HORIZON_MS:
            return None
        return spans[0][1]

    def why_closed(self, start: Millis, end: Millis, *, now: Millis) -> str | None:
        """Why a lease cannot be from `start` to `end`, and when it could; None if it can."""
        if self.rules and end > now + AHEAD_MS_MAX:
            return "nobody knows so far ahead"
        if self.covers(start, end, now=now):
            return None
        spans = self.spans(start, Millis(start + HORIZON_MS))
        if any(rule.missing for rule in self.rules):
            return "its hours that far ahead are still worked out; ask again"
        texts = []
        if spans and spans[0][0] == start:
            texts.append(f"closes {moment(spans.pop(0)[1])}")
        else:
            texts.append("closed then")
        long = next((span for span in spans if span[1] - span[0] >= end - start), None)
        if long is not None:
            texts.append(f"opens {moment(long[0])} until {moment(long[1])}")
        elif spans:
            first = spans[0]
            texts.append(f"opens {moment(first[0])}, but only until {moment(first[1])}")
        else:
            texts.append("opens no more within five weeks")
        return "; ".join(texts)

    def floor(
        self,
        start: Millis,
        end: Millis,
        *,
        other: Micros,
        scale: Callable[[Micros], Micros] = lambda micros: micros,
    ) -> Micros:
        """The least price of a lease from `start` to `end`: the highest that holds in it.

        Where no open window has a floor of its own, `other` holds. `scale` gives what a window's
        floor means in a tier.
        """
        priced: list[tuple[Micros, list[Span]]] = []
        for rule in self.rules:
            own = rule.window.floor_micro
            if rule.window.kind == "open" and own is not UNSET:
                priced.append((scale(own), self._spans_of(rule, start, end)))
        floors = [own for own, spans in priced if spans]
        rest = without([(start, end)], merged(span for _, spans in priced for span in spans))
        return max([*floors, other] if rest or not floors else floors)

    @property
    def is_priced(self) -> bool:
        """Whether a window has a floor of its own."""
        return any(window.floor_micro is not UNSET for window in self.windows)


ALWAYS: Final = Timetable()


def moment(instant: Millis) -> str:
    """An instant to the minute in UTC, as peers tell it to people."""
    return f"{_utc(instant):%Y-%m-%d %H:%M} UTC"
