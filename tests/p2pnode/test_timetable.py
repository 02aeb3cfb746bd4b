"""When an owner is open, against the clock on the wall. Letters and numbers are public cases."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.matching.timetable import (
    AHEAD_MS_MAX,
    DAY_SLOTS,
    SLOT_MS,
    Span,
    Timetable,
    Window,
    check_window,
    joined,
    merged,
    without,
)
from protocol.errors import LocalFault
from protocol.units import Micros, Millis
from tests.make_windows import BERLIN, at, window

HOUR = 3_600_000
DAY = 24 * HOUR


def local(spans: list[Span], zone: str = BERLIN) -> list[tuple[str, str]]:
    def text(instant: Millis) -> str:
        when = datetime.fromtimestamp(instant // 1_000, ZoneInfo(zone))
        return f"{when:%d %H:%M%z}"

    return [(text(start), text(end)) for start, end in spans]


def test_without_windows_it_is_always_open() -> None:
    table = Timetable()
    start = at("2026-06-01T00:00+00:00")
    assert table.covers(start, Millis(start + 9_999 * DAY), now=start)
    assert table.why_closed(start, Millis(start + 9_999 * DAY), now=start) is None
    assert table.open_until(start) is None
    assert table.slots(start) == (1 << DAY_SLOTS) - 1


def test_hours_stay_at_the_wall_clock_over_both_changes() -> None:
    # M6
    table = Timetable((window("22:00-06:00 daily"),))
    spring = table.spans(at("2026-03-28T12:00+01:00"), at("2026-03-30T12:00+02:00"))
    assert local(spring) == [("28 22:00+0100", "29 06:00+0200"), ("29 22:00+0200", "30 06:00+0200")]
    assert [end - start for start, end in spring] == [7 * HOUR, 8 * HOUR]
    autumn = table.spans(at("2026-10-24T12:00+02:00"), at("2026-10-25T12:00+01:00"))
    assert local(autumn) == [("24 22:00+0200", "25 06:00+0100")]
    assert autumn[0][1] - autumn[0][0] == 9 * HOUR


def test_a_time_that_comes_twice_is_the_first_and_one_left_out_is_as_before() -> None:
    table = Timetable((window("01:00-02:30 daily"),))
    autumn = table.spans(at("2026-10-25T00:00+02:00"), at("2026-10-25T12:00+01:00"))
    assert local(autumn) == [("25 01:00+0200", "25 02:30+0200")]
    spring = table.spans(at("2026-03-29T00:00+01:00"), at("2026-03-29T12:00+02:00"))
    assert local(spring) == [("29 01:00+0100", "29 03:30+0200")]
    gone = Timetable((window("02:15-02:45 daily"), window("02:30-03:00 daily")))
    assert [
        end - start
        for start, end in gone.spans(at("2026-03-29T00:00+01:00"), at("2026-03-29T12:00+02:00"))
    ] == [HOUR // 2]


def test_exceptions_closed_windows_and_unions_are_minded() -> None:
    # M6
    table = Timetable(
        (
            window("mon-fri 18:00-08:00", excepted=("2026-12-24",)),
            window("sat,sun"),
            window("sat 12:00-13:00", kind="closed"),
        )
    )
    # Thursday evening is left out; the weekend's days join what ends in them.
    spans = table.spans(at("2026-12-23T12:00+01:00"), at("2026-12-28T12:00+01:00"))
    assert local(spans) == [
        ("23 18:00+0100", "24 08:00+0100"),
        ("25 18:00+0100", "26 12:00+0100"),
        ("26 13:00+0100", "28 00:00+0100"),
    ]


def test_only_closed_windows_leave_all_else_open() -> None:
    table = Timetable((window("weekdays 09:00-17:00", kind="closed"),))
    now = at("2026-12-02T16:00+01:00")
    assert not table.covers(now, Millis(now + HOUR), now=now)
    assert table.covers(Millis(now + HOUR), Millis(now + 17 * HOUR), now=now)
    assert not table.covers(Millis(now + HOUR), Millis(now + 17 * HOUR + 1), now=now)


CALENDAR = """BEGIN:VCALENDAR
VERSION:2.0
PRODID:-//a//b//EN
BEGIN:VEVENT
UID:1
DTSTART;TZID=America/New_York:20261101T000000
DURATION:PT3H
RRULE:FREQ=DAILY;COUNT=3
EXDATE;TZID=America/New_York:20261102T000000
END:VEVENT
BEGIN:VEVENT
UID:2
DTSTART;VALUE=DATE:20261110
DTEND;VALUE=DATE:20261112
END:VEVENT
BEGIN:VEVENT
UID:3
DTSTART:20261113T100000Z
DTEND:20261113T110000Z
END:VEVENT
BEGIN:VEVENT
UID:4
DTSTART:20261114T100000
DTEND:20261114T110000
END:VEVENT
END:VCALENDAR
"""


def test_a_calendar_of_another_program_is_read() -> None:
    # M6
    imported = Window(name="w1", events=CALENDAR, zone=BERLIN)
    spans = Timetable((imported,)).spans(at("2026-10-31T00:00+00:00"), at("2026-12-01T00:00+00:00"))
    assert local(spans, "UTC") == [
        ("01 04:00+0000", "01 08:00+0000"),  # the clock is set back at 06:00
        ("03 05:00+0000", "03 08:00+0000"),
        ("09 23:00+0000", "11 23:00+0000"),  # days of the owner's zone
        ("13 10:00+0000", "13 11:00+0000"),
        ("14 09:00+0000", "14 10:00+0000"),  # floating: the owner's zone
    ]


def test_what_is_exported_means_the_same() -> None:
    windows = (
        window("mon-fri 18:00-08:00", excepted=("2026-12-24",)),
        window("sat,sun", zone="Asia/Kolkata", name="w2"),
        Window(name="w3", events=CALENDAR, zone=BERLIN),
    )
    start, end = at("2026-10-20T00:00+00:00"), at("2027-01-10T00:00+00:00")
    again = Window(name="w9", events=joined(windows), zone=BERLIN)
    assert Timetable((again,)).spans(start, end) == Timetable(windows).spans(start, end)


@pytest.mark.parametrize(
    "events",
    [
        "nonsense",
        "BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:x\nEND:VCALENDAR\n",
        CALENDAR.replace("FREQ=DAILY;COUNT=3", "FREQ=SECONDLY"),
        CALENDAR.replace("FREQ=DAILY;COUNT=3", "FREQ=MINUTELY"),
        CALENDAR.replace("FREQ=DAILY;COUNT=3", "FREQ=NEVER"),
        CALENDAR.replace("20261101T000000", "yesterday"),
        CALENDAR.replace("DTSTART;VALUE=DATE:20261110\n", ""),
    ],
)
def test_a_calendar_that_cannot_be_read_is_a_fault_of_ours(events: str) -> None:
    with pytest.raises(LocalFault):
        check_window(Window(name="w1", events=events, zone=BERLIN), at("2026-11-01T00:00+00:00"))


def test_why_closed_says_when_it_opens_and_for_how_long() -> None:
    table = Timetable((window("22:00-06:00 daily"),))
    noon = at("2026-12-01T12:00+01:00")
    night = at("2026-12-01T22:00+01:00")
    for start, span, said in (
        (noon, HOUR, "closed then; opens 2026-12-01 21:00 UTC until 2026-12-02 05:00 UTC"),
        (noon, 9 * HOUR, "closed then; opens 2026-12-01 21:00 UTC, but only until 2026-12-02 05"),
        (night, 8 * HOUR, None),
        (night, 8 * HOUR + 1, "closes 2026-12-02 05:00 UTC; opens 2026-12-02 21:00 UTC, but only"),
        (night + 4 * HOUR, 5 * HOUR, "closes 2026-12-02 05:00 UTC; opens 2026-12-02 21:00 UTC unt"),
    ):
        why = table.why_closed(Millis(start), Millis(start + span), now=noon)
        assert (why is None) if said is None else why is not None and why.startswith(said)
    far = Millis(2**62)
    assert table.why_closed(far, Millis(far + HOUR), now=noon) == "nobody knows so far ahead"
    edge = Millis(noon + AHEAD_MS_MAX)
    assert table.why_closed(Millis(edge - HOUR), edge, now=noon) != "nobody knows so far ahead"


def test_one_that_opens_no_more_says_so() -> None:
    table = Timetable((Window(name="w1", events=CALENDAR, zone="UTC"),))
    later = at("2027-01-01T00:00+00:00")
    why = table.why_closed(later, Millis(later + HOUR), now=later)
    assert why == "closed then; opens no more within five weeks"


def test_it_is_open_until_it_closes() -> None:
    table = Timetable((window("22:00-06:00 daily"),))
    assert table.open_until(at("2026-12-01T23:00+01:00")) == at("2026-12-02T06:00+01:00")
    assert table.open_until(at("2026-12-01T12:00+01:00")) is None
    always = Timetable((window("daily"),))
    assert always.open_until(at("2026-12-01T12:00+01:00")) is None


def test_a_slot_is_open_if_all_of_it_is() -> None:
    table = Timetable((window("12:02-12:20 daily", zone="UTC"),))
    now = at("2026-12-01T12:01+00:00")
    assert table.slots(now, 5) == 0b01110
    assert table.slots(Millis(now + 4 * 60_000), 5) == 0b00111


def test_the_highest_floor_that_holds_in_a_lease_is_its_floor() -> None:
    night, late = Micros(300_000), Micros(280_000)
    table = Timetable(
        (
            window("00:00-24:00 daily"),
            window("22:00-06:00 daily", floor_micro=night),
            window("02:00-04:00 daily", floor_micro=late),
        )
    )
    start = at("2026-12-01T22:00+01:00")

    def floor(after: float, hours: float, other: int = 350_000) -> int:
        first = Millis(start + round(after * HOUR))
        return table.floor(first, Millis(first + round(hours * HOUR)), other=Micros(other))

    assert floor(0, 8) == night
    assert floor(0, 8.1) == 350_000
    assert floor(-1, 2) == 350_000
    assert floor(-1, 2, other=100_000) == night
    assert floor(4, 1) == night
    assert floor(9, 1) == 350_000


class Broken:
    uid = "1"

    def between(self, *_span: object) -> list[object]:
        raise ValueError


def test_what_fails_only_later_is_closed() -> None:
    far = CALENDAR.replace("COUNT=3", "INTERVAL=1")
    for kind in ("open", "closed"):
        table = Timetable((Window(name="w1", events=far, zone=BERLIN, kind=kind),))
        table.rules[0].events._series[:] = [Broken()]
        start = at("2027-06-01T00:00+00:00")
        assert table.spans(start, Millis(start + DAY)) == []


spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60))).map(
    lambda pairs: [(Millis(a), Millis(b)) for a, b in pairs]
)


def minutes(of: list[Span]) -> set[int]:
    return {minute for start, end in of for minute in range(start, end)}


@given(spans, spans)
def test_spans_are_sets_of_instants(some: list[Span], others: list[Span]) -> None:
    assert minutes(merged(some)) == minutes(some)
    assert minutes(without(merged(some), merged(others))) == minutes(some) - minutes(others)
    for one, next_one in zip(merged(some), merged(some)[1:], strict=False):
        assert one[1] < next_one[0]


@given(
    st.integers(0, 400 * 24 * 12),
    st.integers(0, 299),
    st.integers(-60, 8 * 24 * 60),
    st.integers(1, 2 * 24 * 60),
)
def test_the_bitmap_never_says_more_than_the_exact_hours(
    slot: int, second: int, after_min: int, long_min: int
) -> None:
    table = Timetable((window("mon-fri 18:07-08:03"), window("sat 10:00-16:00")))
    now = Millis(at("2026-01-01T00:00+00:00") + slot * SLOT_MS + second * 1_000)
    start = Millis(now + after_min * 60_000)
    end = Millis(start + long_min * 60_000)
    assert table.covers(start, end, now=now) == (table.spans(start, end) == [(start, end)])


def test_a_closed_hour_is_found_by_the_clock_on_the_wall_alone() -> None:
    """An independent look: minute by minute of a week with a change, by wall time."""
    table = Timetable((window("mon-fri 18:00-08:00"),))
    start = datetime(2026, 10, 22, tzinfo=UTC)
    expected = set()
    for minute in range(7 * 24 * 60):
        wall = (start + timedelta(minutes=minute)).astimezone(ZoneInfo(BERLIN))
        before = wall - timedelta(days=1)
        is_night = wall.hour >= 18 and wall.weekday() < 5
        if is_night or (wall.hour < 8 and before.weekday() < 5):
            expected.add(minute)
    first = at("2026-10-22T00:00+00:00")
    found = table.spans(first, Millis(first + 7 * DAY))
    got = {
        minute
        for opens, closes in found
        for minute in range((opens - first) // 60_000, (closes - first) // 60_000)
    }
    assert got == expected
