"""Calendars by RFC 5545 from other programs: judged when they are read, then expanded in bounds.

What a program would silently pass over is refused with the event's name, since it would sell time
that its owner has not offered. What is cancelled does not count; overrides and exceptions do.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Any, Final, TypeVar
from zoneinfo import ZoneInfo

import icalendar
import recurring_ical_events

from p2pnode.opening import check_zone
from p2pnode.words import printable
from protocol.errors import LocalFault

SPANS_MAX: Final = 4_000
"""Times within four weeks, of all calendars of an owner: one in ten minutes. To expand so many
takes a tenth of a second, and each question of a renter walks along them."""
STEPS_MAX: Final = 50_000
"""Repetitions from an event's first time until now, all of which are counted out each time: more
than five years of each hour, some tenths of a second."""
BLOCK_DAYS: Final = 28
CURE: Final = "mend or take out this event, and export the calendar again"

T = TypeVar("T")
_A_DAY: Final = timedelta(days=1)
_FREQUENCIES: Final = frozenset({"HOURLY", "DAILY", "WEEKLY", "MONTHLY", "YEARLY"})
_TOO_OFTEN: Final = frozenset({"SECONDLY", "MINUTELY"})
_DAYS_OF: Final = {"DAILY": 1, "WEEKLY": 7, "MONTHLY": 28, "YEARLY": 365}
_NARROWING: Final = ("BYMONTH", "BYMONTHDAY", "BYYEARDAY", "BYWEEKNO", "BYSETPOS")
_DATES: Final = ("DTSTART", "DTEND", "RDATE", "EXDATE", "RECURRENCE-ID")
_READ: Final = frozenset({*_DATES, "DURATION", "RRULE", "STATUS", "UID"})
"""What says when an event is."""
_FAULTS: Final = (
    ValueError, IndexError, KeyError, TypeError, AttributeError, ArithmeticError, AssertionError,
)  # fmt: skip
"""What the libraries raise for what they cannot read."""


class UnreadError(ValueError):
    """Something of a calendar cannot be read; the text says what and of which event."""


class Events:
    """The events of one calendar, judged."""

    def __init__(self, text: str, zone: str) -> None:
        """`zone` is that of times that name none. Raises UnreadError."""
        self._zone: Final = ZoneInfo(zone)
        try:
            calendar: Any = icalendar.Calendar.from_ical(text)
            events = calendar.walk("VEVENT")
        except _FAULTS as error:
            raise UnreadError(str(error)) from error
        if not events:
            raise UnreadError("it has no events")
        _check_whole(calendar)
        for event in events:
            named(event, _check_event)
        self._drop_cancelled(calendar, events)
        events = calendar.walk("VEVENT")
        self._events: Final[list[Any]] = events
        reach = _reach(events)
        self.most: Final = sum(named(one, lambda e: _most(e, reach)) for one in events)
        """Times within four weeks, by the rules alone: there may be fewer."""
        if self.most > SPANS_MAX:
            raise UnreadError(f"it may come to over {SPANS_MAX} times in four weeks")
        self._has_cancelled = any(_is_cancelled(event) for event in events)
        self._names: Final = {str(event.get("UID", "")): name_of(event) for event in events}
        self._series: Final[list[Any]] = _series_of(calendar, events)

    @staticmethod
    def _drop_cancelled(calendar: icalendar.Calendar, events: list[icalendar.Event]) -> None:
        """Leave out what is cancelled as a whole, with what was changed of it."""
        gone = {
            str(event.get("UID", ""))
            for event in events
            if _is_cancelled(event) and "RECURRENCE-ID" not in event
        }
        calendar.subcomponents = [
            part
            for part in calendar.subcomponents
            if part.name != "VEVENT" or str(part.get("UID", "")) not in gone
        ]

    def check_age(self, now: datetime) -> None:
        """Raises UnreadError if too much has gone by since an event began."""
        for event in self._events:
            named(event, lambda one: _check_age(one, now))

    def spans(self, start: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
        """The times that meet [start, end) and perhaps some beside it. Raises UnreadError."""
        for series in self._series:
            try:
                # A local date begins up to a day before that date does in UTC.
                for found in series.between(start - _A_DAY, end + _A_DAY):
                    if self._has_cancelled and _is_cancelled(found.as_component(False)):
                        continue
                    yield self._instant(found.start), self._instant(found.end)
            except _FAULTS as error:
                name = self._names.get(str(series.uid), "an event")
                raise UnreadError(f"{name}: {error}") from error

    def _instant(self, when: date) -> datetime:
        if not isinstance(when, datetime):
            when = datetime.combine(when, time())
        return (when.replace(tzinfo=self._zone) if when.tzinfo is None else when).astimezone(UTC)


def joined(calendars: Iterable[tuple[str, str]]) -> str:
    """Named calendars as one."""
    whole = icalendar.Calendar()
    whole.add("VERSION", "2.0")
    whole.add("PRODID", "-//p2pnode//windows//EN")
    for name, text in calendars:
        for part in icalendar.Calendar.from_ical(text).subcomponents:
            # Events of two calendars may bear one name, and would be taken for one another.
            if "UID" in part:
                part["UID"] = f"{name}-{part['UID']}"
            whole.add_component(part)
    return str(whole.to_ical(), "utf-8")


def name_of(event: icalendar.Event) -> str:
    """An event as its owner knows it."""
    title, uid = str(event.get("SUMMARY", "")), str(event.get("UID", ""))
    shown = f'event "{printable(title[:60])}"' if title else "event"
    return f"{shown} (UID {printable(uid[:80])})" if uid else f"{shown} without a UID"


def named(event: icalendar.Event, judge: Callable[[icalendar.Event], T]) -> T:
    """What `judge` finds of the event. Raises UnreadError that names it."""
    try:
        return judge(event)
    except _FAULTS as error:
        raise UnreadError(f"{name_of(event)}: {error}") from error


def _check_whole(calendar: icalendar.Calendar) -> None:
    if str(calendar.get("METHOD", "")).upper() == "CANCEL":
        raise UnreadError("it cancels events (METHOD:CANCEL), and holds none")
    zone = calendar.get("X-WR-TIMEZONE")
    if zone is not None:
        try:
            check_zone(str(zone))
        except LocalFault as fault:
            raise UnreadError(f"X-WR-TIMEZONE: {fault.what}") from fault


def _check_event(event: icalendar.Event) -> None:
    """Raises ValueError about what is there and cannot be read."""
    for name, why in event.errors:
        if name is None or str(name).upper() in _READ:
            raise ValueError(f"{name} cannot be read: {why}")
    if "DTSTART" not in event:
        raise ValueError("it has no DTSTART")
    if "EXRULE" in event:
        raise ValueError("EXRULE is not supported: write the exceptions as EXDATE")
    for name in _DATES:
        for value in _all_of(event, name):
            named = value.params.get("TZID")
            for each in getattr(value, "dts", [value]):
                zone = each.params.get("TZID", named)
                if zone is not None and not _has_zone(each.dt):
                    raise ValueError(f'{name}: "{printable(str(zone)[:60])}" is no known time zone')
    if event.duration < timedelta():
        raise ValueError("it ends before it begins")
    for rule in _all_of(event, "RRULE"):
        _check_rule(rule)


def _check_rule(rule: icalendar.vRecur) -> None:
    often = str(_first(rule, "FREQ", "")).upper()
    if often in _TOO_OFTEN:
        raise ValueError("it repeats more often than hourly")
    if often not in _FREQUENCIES:
        raise ValueError("RRULE says no frequency")
    if int(_first(rule, "INTERVAL", 1)) < 1:
        raise ValueError("RRULE: INTERVAL is at least 1")
    # Such a rule may never come true, and would be looked for until the year 9999.
    if often in {"HOURLY", "DAILY"} and sum(name in rule for name in _NARROWING) > 1:
        raise ValueError(f"RRULE: {often} with several limits: repeat it by month or year")


def _all_of(event: icalendar.Event, name: str) -> list[Any]:
    """The values of a property that may be there several times."""
    found = event.get(name, [])
    return found if isinstance(found, list) else [found]


def _first(rule: icalendar.vRecur, name: str, other: T) -> T:
    values: Any = rule.get(name, other)
    found: T = values[0] if isinstance(values, list) else values
    return found


def _has_zone(when: object) -> bool:
    first = when[0] if isinstance(when, tuple) else when
    return isinstance(getattr(first, "tzinfo", None), tzinfo) or (
        isinstance(first, date) and not isinstance(first, datetime)
    )


def _is_cancelled(event: icalendar.Event) -> bool:
    return str(event.get("STATUS", "")).strip().upper() == "CANCELLED"


def _reach(events: list[icalendar.Event]) -> dict[str, int]:
    """UID -> days around a block in which its events are looked for: they last, and were moved."""
    found: dict[str, int] = {}
    for event in events:
        days = named(event, lambda one: abs(one.duration.days) + 1)
        if "RECURRENCE-ID" in event:
            moved: Any = event["RECURRENCE-ID"]
            days += abs((_day(moved.dt) - _day(event.start)).days)
        uid = str(event.get("UID", ""))
        found[uid] = max(found.get(uid, 0), days)
    return found


def _day(when: date) -> date:
    return when.date() if isinstance(when, datetime) else when


def _most(event: icalendar.Event, reach: dict[str, int]) -> int:
    """No more times than these are looked at for one block."""
    days = BLOCK_DAYS + 2 + 2 * reach[str(event.get("UID", ""))]
    times = 1 + sum(len(value.dts) for value in _all_of(event, "RDATE"))
    return times + sum(min(_count(each), _times(each, days)) for each in _all_of(event, "RRULE"))


def _check_age(event: icalendar.Event, now: datetime) -> None:
    begun = _day(event.start)
    for rule in _all_of(event, "RRULE"):
        last = min(now.date(), _day(_first(rule, "UNTIL", now)))
        if min(_count(rule), _times(rule, max(0, (last - begun).days))) > STEPS_MAX:
            raise ValueError(f"over {STEPS_MAX} times of it are gone by: let it begin later")


def _count(rule: icalendar.vRecur) -> int:
    return int(_first(rule, "COUNT", STEPS_MAX + 1))


def _times(rule: icalendar.vRecur, days: int) -> int:
    """At most so often in so many days."""

    def count(*names: str) -> int:
        product = 1
        for name in names:
            product *= max(1, len(rule.get(name, ())))
        return product

    often, every = str(_first(rule, "FREQ", "")).upper(), int(_first(rule, "INTERVAL", 1))
    if often == "HOURLY":
        return (days * 24 // every + 1) * count("BYMINUTE", "BYSECOND")
    periods = days // (_DAYS_OF[often] * every) + 1
    if often == "DAILY":
        on = periods
    elif often == "WEEKLY":
        on = periods * count("BYDAY")
    else:
        is_one = not any(name.startswith("BY") and name != "BYMONTH" for name in rule)
        on = periods * (count("BYMONTH") if is_one else _DAYS_OF[often] + 3)
    return min(on, days + 1) * count("BYHOUR", "BYMINUTE", "BYSECOND")


def _series_of(calendar: icalendar.Calendar, events: list[icalendar.Event]) -> list[Any]:
    """Raises UnreadError that names the event which cannot be expanded."""
    try:
        return list(recurring_ical_events.of(calendar).series)
    except _FAULTS as error:
        for event in events:
            alone = icalendar.Calendar()
            alone.add_component(event)
            try:
                recurring_ical_events.of(alone)
            except _FAULTS as why:
                raise UnreadError(f"{name_of(event)}: {why}") from why
        raise UnreadError(str(error)) from error
