"""Opening hours as people write them."""

from pathlib import Path

import pytest

from p2pnode.opening import Opening, check_date, check_zone, parse_opening, zone_of_host
from protocol.errors import LocalFault

ALL = tuple(range(7))


@pytest.mark.parametrize(
    ("text", "days", "start", "end"),
    [
        ("22:00-06:00 daily", ALL, 1_320, 1_800),
        ("22:00-06:00", ALL, 1_320, 1_800),
        ("mon-fri 18:00-08:00", (0, 1, 2, 3, 4), 1_080, 1_920),
        ("weekdays 9:30-17:00", (0, 1, 2, 3, 4), 570, 1_020),
        ("sat,sun", (5, 6), 0, 1_440),
        ("WEEKENDS", (5, 6), 0, 1_440),
        ("fri-mon 00:00-24:00", (0, 4, 5, 6), 0, 1_440),
        ("wed 12:00-12:00", (2,), 720, 2_160),
        ("sun 23:59-00:00", (6,), 1_439, 1_440),
    ],
)
def test_hours_are_read(text: str, days: tuple[int, ...], start: int, end: int) -> None:
    assert parse_opening(text) == Opening(days=days, start_min=start, end_min=end)


@pytest.mark.parametrize(
    "text",
    [
        *("", "now", "22-06", "24:00-06:00", "22:00-24:01", "22:60-06:00", "funday", "mon-"),
        *("mon-x", "22:00-06:00 23:00-04:00", "22:00-06:00\x1b"),
    ],
)
def test_what_are_no_hours_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(LocalFault) as caught:
        parse_opening(text)
    assert "22:00-06:00 daily" in caught.value.cure
    assert caught.value.what.isprintable()


@pytest.mark.parametrize("name", ["Europe/Berlin", "UTC", "America/Argentina/Ushuaia"])
def test_a_zone_is_known_by_its_name(name: str) -> None:
    assert check_zone(name) == name


@pytest.mark.parametrize("name", ["", "Berlin/Europe", "../../etc/passwd", "/etc/localtime", "A\0"])
def test_a_name_that_is_no_zone_is_refused(name: str) -> None:
    with pytest.raises(LocalFault):
        check_zone(name)


def test_dates_exist() -> None:
    assert check_date("2028-02-29") == "2028-02-29"
    for text in ("2027-02-29", "24.12.2026", "20261224", ""):
        with pytest.raises(LocalFault):
            check_date(text)


def test_the_hosts_zone_is_where_its_link_points(tmp_path: Path) -> None:
    zone = tmp_path / "zoneinfo" / "Asia" / "Kolkata"
    zone.parent.mkdir(parents=True)
    zone.touch()
    link = tmp_path / "localtime"
    assert zone_of_host(link) == "UTC"
    link.symlink_to(zone)
    assert zone_of_host(link) == "Asia/Kolkata"
