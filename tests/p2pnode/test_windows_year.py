"""One simulated year in twenty time zones: no granted lease is outside its owner's windows."""

import random
from datetime import UTC, date, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

import pytest

from p2pnode.matching.provider import Posting
from p2pnode.matching.quoting import No
from p2pnode.matching.room import LEAD_MS
from p2pnode.matching.timetable import Timetable
from protocol.auction import Bid
from protocol.units import Millis
from tests import make
from tests.make_desk import HOUR, posting, quoted
from tests.make_windows import window

ZONES: Final = (
    "Europe/Berlin",
    "Europe/London",
    "Europe/Lisbon",
    "Europe/Athens",
    "Europe/Moscow",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Asia/Jerusalem",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Asia/Tokyo",
    "Australia/Adelaide",
    "Australia/Lord_Howe",
    "Pacific/Auckland",
    "Pacific/Chatham",
    "America/New_York",
    "America/Los_Angeles",
    "America/St_Johns",
    "America/Santiago",
    "America/Sao_Paulo",
)
YEAR: Final = 2027
DAY_S: Final = 86_400
HOURS: Final = {
    "22:00-06:00 daily": (range(7), 1_320, 1_800),
    "mon-fri 18:30-08:15": (range(5), 1_110, 1_935),
    "sat,sun 10:00-16:00": (range(5, 7), 600, 960),
}
"""The short forms, and by hand: days, minutes of the start, minutes of the end."""


def by_hand(zone: str) -> list[tuple[int, int]]:
    """The windows of the year in seconds, merged; worked out date by date without a calendar."""
    found = []
    for number in range(-2, 368):
        day = date(YEAR, 1, 1) + timedelta(days=number)
        for days, start, end in HOURS.values():
            if day.weekday() in days:
                found.append((instant(zone, day, start), instant(zone, day, end)))
    merged: list[tuple[int, int]] = []
    for start, end in sorted(found):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def instant(zone: str, day: date, minutes: int) -> int:
    on = day + timedelta(days=minutes // 1_440)
    wall = datetime.combine(on, time(minutes % 1_440 // 60, minutes % 60), ZoneInfo(zone))
    return round(wall.timestamp())


def changes_of(zone: str) -> list[int]:
    """The instants of the year at which the zone's clocks change, in seconds."""
    found = []
    at = round(datetime(YEAR, 1, 1, tzinfo=UTC).timestamp())
    offset = None
    for hour in range(at, at + 365 * DAY_S, 1_800):
        now = datetime.fromtimestamp(hour, ZoneInfo(zone)).utcoffset()
        if offset is not None and now != offset:
            found.append(hour)
        offset = now
    return found


def asked(by: Posting, now: int, start: int, span: int) -> Bid | No:
    return quoted(
        make.rfq(
            start_ms=Millis(start * 1_000),
            end_ms=Millis((start + span) * 1_000),
            issued_ms=Millis(now * 1_000),
            not_after_ms=Millis(now * 1_000 + 2_000),
        ),
        by=by,
        now=Millis(now * 1_000),
    )


@pytest.mark.parametrize("zone", ZONES)
def test_no_lease_of_a_year_crosses_a_window(zone: str) -> None:
    # M6
    table = Timetable(tuple(window(hours, zone=zone) for hours in HOURS))
    by = posting(timetable=table, lease_ms_max=30 * HOUR, lease_ms_min=60_000)
    expected = by_hand(zone)
    dice = random.Random(zone)
    first = round(datetime(YEAR, 1, 1, tzinfo=UTC).timestamp())
    moments = [first + dice.randrange(365 * DAY_S) for _ in range(120)]
    # Both sides of each change, and of each side of some windows, get their share.
    for change in changes_of(zone):
        moments += [change + dice.randrange(-DAY_S, DAY_S) for _ in range(40)]
    for start, end in dice.sample(expected, 20):
        moments += [start - 60, start, start + 60, end - 3_600, end - 60, end]
    granted = refused = 0
    for start in moments:
        now = start - dice.choice([10, 3_600, 3 * DAY_S])
        span = dice.choice([60, 900, 3_600, 5 * 3_600, 8 * 3_600, 12 * 3_600, 20 * 3_600])
        answer = asked(by, now, start, span)
        fits = any(opens <= start and start + span <= closes for opens, closes in expected)
        if isinstance(answer, No):
            assert answer.reason == "CLOSED"
            assert not fits, (zone, start, span, answer.detail)
            refused += 1
        else:
            assert (answer.start_ms, answer.end_ms) == (start * 1_000, (start + span) * 1_000)
            assert fits, (zone, start, span)
            granted += 1
    assert granted > 30
    assert refused > 30
    assert LEAD_MS < 10_000


def test_most_of_the_zones_change_their_clocks_twice() -> None:
    counts = [len(changes_of(zone)) for zone in ZONES]
    assert sum(count >= 2 for count in counts) >= 14
    assert 0 in counts
