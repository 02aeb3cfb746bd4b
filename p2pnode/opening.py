"""Opening hours as people write them: `22:00-06:00 daily`, `mon-fri 18:00-08:00`, `sat,sun`."""

import re
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from protocol.errors import LocalFault

OPENING_EXAMPLE: Final = "22:00-06:00 daily"
ZONE_EXAMPLE: Final = "Europe/Berlin"
DAY_MINUTES: Final = 1_440

_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_NAMES: Final = {"daily": range(7), "weekdays": range(5), "weekends": range(5, 7)}
_TIMES: Final = re.compile(r"([0-9]{1,2}):([0-9]{2})-([0-9]{1,2}):([0-9]{2})")
_ZONE: Final = re.compile(r"[A-Za-z0-9_+-]{1,32}(?:/[A-Za-z0-9_+-]{1,32}){0,2}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """The same hours on some days of each week, by the clock on the wall."""

    days: tuple[int, ...]
    """On which they begin; 0 is Monday."""
    start_min: int
    end_min: int
    """Minutes after the midnight before the start; above 1,440 they end on the next day."""


def parse_opening(text: str) -> Opening:
    """The hours in a text of times, days or both, in any order; no days are all days.

    Raises LocalFault.
    """
    times: tuple[int, int] | None = None
    days: set[int] = set()
    for word in text.lower().split():
        if found := _TIMES.fullmatch(word):
            if times is not None:
                raise _unread(text)
            times = _minutes(text, found)
        else:
            days.update(_days(text, word))
    if not (days or times):
        raise _unread(text)
    start, end = times or (0, DAY_MINUTES)
    return Opening(days=tuple(sorted(days or range(7))), start_min=start, end_min=end)


def check_zone(name: str) -> str:
    """The name of this time zone, which is known here. Raises LocalFault."""
    try:
        if not _ZONE.fullmatch(name):
            raise ValueError
        return ZoneInfo(name).key
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        shown = name[:40] if name[:40].isprintable() else ascii(name[:40])
        raise LocalFault(
            f'"{shown}" is no time zone of this host.', f"write for example {ZONE_EXAMPLE} or UTC"
        ) from error


def check_date(text: str) -> str:
    """The text, which is a date such as 2026-12-24. Raises LocalFault."""
    try:
        if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
            raise ValueError
        return date.fromisoformat(text).isoformat()
    except ValueError as error:
        raise LocalFault(f"{text[:40]!a} is no date.", "write for example 2026-12-24") from error


def zone_of_host(link: Path = Path("/etc/localtime")) -> str:
    """The name of the host's time zone; UTC if it does not tell."""
    try:
        _, mark, name = str(link.resolve()).partition("zoneinfo/")
        return check_zone(name) if mark else "UTC"
    except (LocalFault, OSError):
        return "UTC"


def _minutes(text: str, found: re.Match[str]) -> tuple[int, int]:
    hour, minute, end_hour, end_minute = map(int, found.groups())
    start, end = hour * 60 + minute, end_hour * 60 + end_minute
    if start >= DAY_MINUTES or end > DAY_MINUTES or max(minute, end_minute) > 59:
        raise _unread(text)
    return start, end if end > start else end + DAY_MINUTES


def _days(text: str, word: str) -> list[int]:
    found: list[int] = []
    for part in word.split(","):
        first, dash, last = part.partition("-")
        if part in _NAMES:
            found.extend(_NAMES[part])
        elif first in _DAYS and (last in _DAYS or not dash):
            start = _DAYS.index(first)
            count = (_DAYS.index(last) - start) % 7 if dash else 0
            found.extend((start + number) % 7 for number in range(count + 1))
        else:
            raise _unread(text)
    return found


def _unread(text: str) -> LocalFault:
    shown = text[:60] if text[:60].isprintable() else ascii(text[:60])
    return LocalFault(
        f'"{shown}" are no opening hours.',
        f'write for example "{OPENING_EXAMPLE}" or "mon-fri 18:00-08:00"',
    )
