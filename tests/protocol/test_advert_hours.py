"""What an advert tells of its owner's hours. SPEC.md 8.1."""

from typing import Any

import pytest
from msgspec import UNSET

from protocol.advert import CALENDAR_SLOT_MS, CALENDAR_SLOTS, Advert, is_closed
from protocol.units import Millis
from tests import make

SLOT = CALENDAR_SLOT_MS
ORIGIN = make.NOW // SLOT * SLOT


def advert(slots: int | None = None, **changes: Any) -> Advert:
    calendar = UNSET if slots is None else slots.to_bytes(CALENDAR_SLOTS // 8, "little")
    return make.advert(issued_ms=make.NOW, calendar=calendar, **changes)


def closed(of: Advert, start: float, end: float) -> bool:
    """From and to in slots of the advert's calendar."""
    return is_closed(of, Millis(ORIGIN + round(start * SLOT)), Millis(ORIGIN + round(end * SLOT)))


def test_what_an_advert_does_not_tell_is_open() -> None:
    assert not closed(advert(), 0, 10_000)
    assert not closed(advert((1 << CALENDAR_SLOTS) - 1), 0, 10_000)
    assert not closed(advert(0), CALENDAR_SLOTS, CALENDAR_SLOTS + 12)


@pytest.mark.parametrize(
    ("start", "end", "is_shut"),
    [
        (2, 5, False),
        (1, 5, True),
        (2, 6, True),
        (1.5, 5, False),  # slot 1 may be open in part
        (2, 5.5, False),
        (0.5, 5, True),
        (2, 6.5, True),
        (0.2, 0.4, True),  # nothing that it touches is open
        (0.2, 1.9, True),
        (1.9, 2.1, False),
        (5, 400, True),
        (286.5, 400, True),
    ],
)
def test_a_lease_needs_the_slots_that_it_covers(start: float, end: float, is_shut: bool) -> None:
    assert closed(advert(0b011100), start, end) == is_shut


def test_an_end_of_hours_binds_leases_that_begin_before_it() -> None:
    until = advert(open_until_ms=Millis(ORIGIN + 300 * SLOT))
    assert not closed(until, 10, 300)
    assert closed(until, 10, 300.01)
    assert not closed(until, 300, 400)
