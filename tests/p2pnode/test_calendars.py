"""Calendars of other programs: nothing of one is passed over in silence, and none is too dense."""

import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from msgspec.structs import replace

from p2pnode.api.owner_documents import WindowOrder
from p2pnode.config import Availability
from p2pnode.matching.calendars import SPANS_MAX, Events
from p2pnode.matching.timetable import (
    BLOCK_MS,
    HORIZON_MS,
    Span,
    Timetable,
    Window,
    check_window,
    moment,
    without,
)
from p2pnode.network.memory_transport import MemoryHub
from p2pnode.own_prices import AskRecord, TierPrice
from p2pnode.owner_views import OwnerViews
from p2pnode.quantities import Money
from protocol.errors import LocalFault
from protocol.units import Micros, Millis
from tests.make_node import Party
from tests.make_windows import BERLIN, at
from tests.transport_suite import until

NOW = at("2026-11-01T00:00+00:00")
DAY = 86_400_000
HOUR = 3_600_000


def calendar(*events: str, head: str = "") -> str:
    body = "".join(f"BEGIN:VEVENT\n{event}\nEND:VEVENT\n" for event in events)
    return f"BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:-//a//b//EN\n{head}{body}END:VCALENDAR\n"


NIGHTLY = """UID:night@example
SUMMARY:Rig free
DTSTART;TZID=Europe/Berlin:20261101T000000
DURATION:PT3H
RRULE:FREQ=DAILY"""
MOVED = """UID:night@example
RECURRENCE-ID;TZID=Europe/Berlin:20261102T000000
DTSTART;TZID=Europe/Berlin:20261102T100000
DURATION:PT1H"""


def read(events: str, **changes: object) -> Window:
    return Window(**{"name": "w1", "events": events, "zone": BERLIN, **changes})  # type: ignore[arg-type]


def opens(events: str, days: int = 4) -> list[str]:
    spans = Timetable((read(events),)).spans(NOW, Millis(NOW + days * DAY))
    return [f"{moment(start)[8:16]} {(end - start) // HOUR}h" for start, end in spans]


EACH_DAY = ["01 00:00 2h", "01 23:00 3h", "02 23:00 3h", "03 23:00 3h", "04 23:00 1h"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("RRULE:FREQ=DAILY", "RRULE:every night", "RRULE"),
        ("RRULE:FREQ=DAILY", "RRULE:FREQ=DAILY;BYDAY=XX", "RRULE cannot be read"),
        ("RRULE:FREQ=DAILY", "RRULE:FREQ=DAILY;UNTIL=soon", "RRULE cannot be read"),
        ("RRULE:FREQ=DAILY", "RRULE:FREQ=DAILY;COUNT=few", "RRULE cannot be read"),
        ("RRULE:FREQ=DAILY", "RRULE:FREQ=DAILY;ODD=3", "ODD"),
        ("RRULE:FREQ=DAILY", "RRULE:FREQ=DAILY;INTERVAL=0", "INTERVAL is at least 1"),
        ("RRULE:FREQ=DAILY", "RRULE:FREQ=MINUTELY", "more often than hourly"),
        ("RRULE:FREQ=DAILY", "RRULE:FREQ=DAILY\nEXRULE:FREQ=WEEKLY", "EXRULE is not supported"),
        ("RRULE:FREQ=DAILY", "RRULE:FREQ=DAILY\nEXDATE:never", "EXDATE cannot be read"),
        ("RRULE:FREQ=DAILY", "RDATE:sometimes", "RDATE cannot be read"),
        ("RRULE:FREQ=DAILY", "RRULE:FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30", "several limits"),
        ("DURATION:PT3H", "DURATION:long", "DURATION cannot be read"),
        ("DURATION:PT3H", "DTEND;TZID=Europe/Berlin:20261031T000000", "before"),
        ("TZID=Europe/Berlin", "TZID=Mars/Olympus", '"Mars/Olympus" is no known time zone'),
        (
            "RRULE:FREQ=DAILY",
            "RRULE:FREQ=DAILY\nEXDATE;TZID=Mars/Olympus:20261102T000000",
            'EXDATE: "Mars/Olympus" is no known time zone',
        ),
        (MOVED, MOVED.replace("20261102T000000", "then", 1), "RECURRENCE-ID cannot be read"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_event_and_a_cure(
    old: str, new: str, said: str
) -> None:
    whole = calendar(NIGHTLY, MOVED)
    check_window(read(whole), NOW)
    assert old in whole
    with pytest.raises(LocalFault) as caught:
        check_window(read(whole.replace(old, new, 1)), NOW)
    assert said in caught.value.what
    assert "UID night@example" in caught.value.what
    assert caught.value.cure.startswith("mend or take out this event")


@pytest.mark.parametrize("head", ["METHOD:CANCEL\n", "X-WR-TIMEZONE:Mars/Olympus\n"])
def test_a_calendar_that_means_something_else_is_refused(head: str) -> None:
    with pytest.raises(LocalFault, match=head.partition(":")[0]):
        check_window(read(calendar(NIGHTLY, head=head)), NOW)


def test_what_is_cancelled_does_not_count_and_what_is_moved_or_left_out_does() -> None:
    assert opens(calendar(NIGHTLY)) == EACH_DAY
    assert opens(calendar(f"{NIGHTLY}\nSTATUS:CANCELLED")) == []
    assert opens(calendar(f"{NIGHTLY}\nSTATUS:CANCELLED", MOVED)) == []
    assert opens(calendar(NIGHTLY, MOVED)) == [EACH_DAY[0], "02 09:00 1h", *EACH_DAY[2:]]
    gone = [EACH_DAY[0], *EACH_DAY[2:]]
    assert opens(calendar(NIGHTLY, f"{MOVED}\nSTATUS:CANCELLED")) == gone
    for_good = MOVED.replace("ID;", "ID;RANGE=THISANDFUTURE;")
    assert opens(calendar(NIGHTLY, f"{for_good}\nSTATUS:cancelled")) == EACH_DAY[:1]
    exdate = "EXDATE;TZID=Europe/Berlin:20261102T000000"
    assert opens(calendar(f"{NIGHTLY}\n{exdate}")) == gone
    assert opens(calendar(f"{NIGHTLY}\nEXDATE;VALUE=DATE:20261102")) == gone
    other = "UID:2\nDTSTART:20261103T100000Z\nDURATION:PT1H\nSTATUS:CONFIRMED"
    assert opens(calendar(f"{NIGHTLY}\nSTATUS:CANCELLED", other)) == ["03 10:00 1h"]


def test_a_zone_that_the_calendar_defines_itself_is_known() -> None:
    zone = """BEGIN:VTIMEZONE
TZID:House Time
BEGIN:STANDARD
DTSTART:19700101T000000
TZOFFSETFROM:+0500
TZOFFSETTO:+0500
TZNAME:HT
END:STANDARD
END:VTIMEZONE
"""
    event = NIGHTLY.replace("TZID=Europe/Berlin", "TZID=House Time")
    found = opens(calendar(event, head=zone), days=2)
    assert found == ["01 19:00 3h", "02 19:00 3h"]


# However dense, it costs little, and nothing where others wait.

FIVE_A_DAY = "RRULE:FREQ=DAILY;BYHOUR=0,4,8,12,16;BYMINUTE=0"


@pytest.mark.parametrize(
    "rule",
    [
        "FREQ=HOURLY;BYMINUTE=0,10,20,30,40,50",
        "FREQ=HOURLY;BYMINUTE=0,30;BYSECOND=0,15,30,45",
        "FREQ=DAILY;BYHOUR=0,6,12,18;BYMINUTE=0,1,2,3,4,5,6,7,8,9;BYSECOND=0,15,30,45",
        "FREQ=MONTHLY;BYMONTHDAY=1,2;BYHOUR=0,1,2,3;BYMINUTE=0,1,2,3,4,5,6,7;BYSECOND=0,9,20,40",
    ],
)
def test_a_rule_that_comes_to_too_many_times_is_refused_before_it_is_expanded(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def expand(*_of: object) -> Iterator[tuple[datetime, datetime]]:
        raise AssertionError

    monkeypatch.setattr(Events, "spans", expand)
    dense = calendar(NIGHTLY.replace("RRULE:FREQ=DAILY", f"RRULE:{rule}"))
    with pytest.raises(LocalFault, match=f"over {SPANS_MAX} times in four weeks"):
        check_window(read(dense), NOW)


def test_what_began_too_long_ago_is_refused_since_all_of_it_is_counted() -> None:
    old = NIGHTLY.replace("20261101", "20110101").replace("DAILY", "HOURLY")
    with pytest.raises(LocalFault, match="let it begin later"):
        check_window(read(calendar(old)), NOW)
    check_window(read(calendar(f"{old};UNTIL=20120101T000000Z")), NOW)
    check_window(read(calendar(f"{old};COUNT=100")), NOW)


def test_no_more_times_are_found_than_were_reckoned() -> None:
    for rule in (
        "FREQ=HOURLY",
        "FREQ=HOURLY;INTERVAL=5;BYMINUTE=0,30",
        "FREQ=DAILY;BYHOUR=1,2,3",
        "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR,SA,SU",
        "FREQ=WEEKLY;INTERVAL=2;BYDAY=SA",
        "FREQ=MONTHLY;BYDAY=MO,WE",
        "FREQ=MONTHLY;BYMONTHDAY=1,15,-1",
        "FREQ=YEARLY;BYDAY=MO,TU,WE,TH,FR",
        "FREQ=YEARLY;BYMONTH=11,12",
        "FREQ=YEARLY;BYMONTHDAY=1,2,3",
        "FREQ=YEARLY;BYYEARDAY=-1,1,2,3",
        "FREQ=DAILY;COUNT=7",
    ):
        for length in ("PT10M", "P3D"):
            one = NIGHTLY.replace("FREQ=DAILY", rule).replace("PT3H", length)
            events = Events(calendar(one, MOVED), BERLIN)
            for month in range(14):
                start = Millis(NOW // BLOCK_MS * BLOCK_MS + month * BLOCK_MS)
                first, last = (
                    datetime.fromisoformat(moment(each)[:16] + "+00:00")
                    for each in (start, Millis(start + BLOCK_MS))
                )
                assert len(list(events.spans(first, last))) <= events.most


def test_all_windows_together_are_bounded_too() -> None:
    dense = NIGHTLY.replace("RRULE:FREQ=DAILY", "RRULE:FREQ=HOURLY;BYMINUTE=0,30")
    windows = [read(calendar(dense), name=f"w{number}") for number in range(3)]
    Timetable(tuple(windows[:2]))
    with pytest.raises(LocalFault, match="All windows together"):
        Timetable(tuple(windows))


def test_what_is_closed_is_taken_out_in_one_pass() -> None:
    looks = 0

    class Counted(list[Span]):
        def __getitem__(self, number: Any) -> Any:
            nonlocal looks
            looks += 1
            return super().__getitem__(number)

    spans = [(Millis(10 * n), Millis(10 * n + 8)) for n in range(3_000)]
    gone = Counted((Millis(10 * n + 3), Millis(10 * n + 5)) for n in range(3_000))
    left = without(spans, gone)
    assert len(left) == 6_000
    assert looks <= 4 * (len(spans) + len(gone))


@pytest.fixture
def calendars_at_once() -> None:
    """Not here: these look at where calendars are worked out."""


@pytest.fixture
def party(tmp_path: Path, nursery: trio.Nursery) -> Party:
    return Party(tmp_path, nursery, MemoryHub())


@pytest.fixture
def worked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each calendar that is read, and each block that is expanded: was it on the loop?"""
    found: list[bool] = []
    loop = threading.get_ident()

    def seen(of: Callable[..., object]) -> Callable[..., object]:
        def note(*args: object) -> object:
            found.append(threading.get_ident() == loop)
            return of(*args)

        return note

    for name in ("__init__", "spans"):
        monkeypatch.setattr(Events, name, seen(getattr(Events, name)))
    return found


async def test_no_calendar_is_read_or_expanded_where_others_wait(
    party: Party,
    nursery: trio.Nursery,
    worked: list[bool],
    mock_clock: trio.testing.MockClock,
) -> None:
    mock_clock.rate = 1  # as threads have it, which no jump waits for
    node = party.build(ask=300_000)
    await nursery.start(node.terms.run)
    worked.clear()
    each_day = NIGHTLY.replace(";TZID=Europe/Berlin:20261101T000000", ":20261101T000000Z")
    order = WindowOrder(events=calendar(each_day.replace("PT3H", "P1D")), zone="UTC")
    await OwnerViews(node, tuple).add_window(order)
    assert False in worked
    table = node.terms.posting.timetable
    mock_clock.jump(40 * 86_400)  # the hours of the next weeks are there before they come
    now = node.ports.clock.now()
    await until(lambda: table.is_ready(now, Millis(now + HORIZON_MS)))
    assert table.covers(now, Millis(now + HOUR), now=now)
    far = Millis(now + 400 * DAY)
    why = table.why_closed(far, Millis(far + HOUR), now=now)
    assert why == "its hours that far ahead are still worked out; ask again"
    await until(lambda: table.is_ready(now, now))
    assert table.why_closed(far, Millis(far + HOUR), now=now) is None
    assert True not in worked
    nursery.cancel_scope.cancel()


async def test_what_is_read_once_is_not_read_again_with_the_next_window(
    party: Party, worked: list[bool], autojump_clock: trio.abc.Clock
) -> None:
    owner = await party.add(ask=300_000)
    views = OwnerViews(owner.node, tuple)
    order = WindowOrder(events=calendar(NIGHTLY), zone="UTC")
    await views.add_window(order)
    first = len(worked)
    for _ in range(3):
        await views.add_window(order)
    views.remove_window("w2")
    assert len(worked) <= 4 * first
    assert True not in worked


async def test_a_calendar_that_is_refused_leaves_the_hours_as_they_were(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner = await party.add(ask=300_000)
    views = OwnerViews(owner.node, tuple)
    await views.add_window(WindowOrder(hours="sat", zone="UTC"))
    before = owner.node.terms.posting.timetable
    broken = calendar(NIGHTLY).replace("FREQ=DAILY", "every night")
    with pytest.raises(LocalFault, match='event "Rig free"'):
        await views.add_window(WindowOrder(events=broken, zone="UTC"))
    assert owner.node.terms.posting.timetable is before
    assert len(views.windows().items) == 1


async def test_a_node_does_not_start_on_a_file_that_it_would_misread(
    party: Party, tmp_path: Path
) -> None:
    file = tmp_path / "rig.ics"
    file.write_text(calendar(NIGHTLY).replace("TZID=Europe/Berlin", "TZID=Mars/Olympus"))
    choice = (Availability(file=str(file)),)
    with pytest.raises(LocalFault) as caught:
        party.build(ask=1, choose=lambda config: replace(config, availability=choice))
    for each in (str(file), "UID night@example", "Mars/Olympus", "availability"):
        assert each in caught.value.what
    file.write_text(calendar(NIGHTLY))
    party.build(ask=1, choose=lambda config: replace(config, availability=choice))


# A floor is in the money in which it was said.


def ask_in(money: str) -> AskRecord:
    price = TierPrice(tier="silver", ask_micro=Micros(60_000))
    return AskRecord(set_ms=NOW, money=money, prices=(price,))


async def test_a_floor_keeps_its_money_and_is_never_read_as_another(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    node = party.build(ask=None, choose=lambda config: replace(config, roles=("owner",)))
    views = OwnerViews(node, tuple)
    order = WindowOrder(hours="sat", zone="UTC", floor_micro=1_000, money="TEST")
    named = (await views.add_window(order)).window.name
    with pytest.raises(LocalFault, match=f"window {named} has its floor in TEST") as caught:
        node.terms.prices.set(ask_in("INR"))
    assert f"p2pnode window remove {named}" in caught.value.cure
    assert node.terms.prices.record is None
    views.remove_window(named)
    node.terms.prices.set(ask_in("INR"))
    assert node.provider.posting.money == "INR"
    with pytest.raises(LocalFault, match="asks in INR"):
        await views.add_window(order)
    with pytest.raises(LocalFault, match="what was set before is in INR"):
        node.terms.prices.set(ask_in("TEST"))
    inr = WindowOrder(hours="sat", zone="UTC", floor_micro=1_000, money="INR")
    await views.add_window(inr)
    with pytest.raises(LocalFault, match="floor in INR, and this node asks in TEST"):
        node.terms.prices.reset()
    assert node.provider.posting.money == "INR"


async def test_a_node_does_not_start_with_floors_of_another_money_than_its_prices(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    node = party.build(ask=300_000)
    order = WindowOrder(hours="sat", zone="UTC", floor_micro=1_000, money="TEST")
    await OwnerViews(node, tuple).add_window(order)
    pricing = replace(node.config.pricing, ask=Money(Micros(9), "INR"))
    node.config = replace(node.config, pricing=pricing)  # type: ignore[misc]
    with pytest.raises(LocalFault, match="floor in TEST, and this node asks in INR"):
        party.revive(node)


async def test_a_floor_of_configured_hours_says_in_which_money_the_node_asks(party: Party) -> None:
    hours = (Availability(hours="sat", floor=Money(Micros(5), "INR")),)
    node = party.build(
        ask=None,
        choose=lambda config: replace(config, roles=("owner",), availability=hours),
    )
    assert node.provider.posting.money == "INR"
    with pytest.raises(LocalFault, match="this node asks in INR"):
        node.terms.prices.set(ask_in("TEST"))
