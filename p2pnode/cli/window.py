"""`p2pnode window`: when this node is open."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import click

from p2pnode.cli.client import get, post
from p2pnode.cli.output import home_option, json_option, note, print_document, print_table, say
from p2pnode.home import find_home, host_faults
from p2pnode.opening import check_zone, parse_opening, zone_of_host
from p2pnode.quantities import format_money, format_span, parse_rate, parse_span
from protocol.errors import LocalFault
from protocol.units import MillisSpan

zone_option = click.option("--tz", help="Time zone of the hours (default: that of this host).")


@click.group()
def window() -> None:
    """See or change the hours of this node; without any it is always open."""


@window.command()
@click.argument("hours")
@zone_option
@click.option("--except", "excepted", multiple=True, help="Date on which they do not begin.")
@click.option("--closed", is_flag=True, help="The node is closed then; goes before open hours.")
@click.option("--floor", help="Least price then, for example '0.30 USD/gpu-h'.")
@home_option
@json_option
def add(
    hours: str,
    tz: str | None,
    excepted: tuple[str, ...],
    closed: bool,
    floor: str | None,
    home: Path | None,
    as_json: bool,
) -> None:
    """Add HOURS, for example '22:00-06:00 daily', 'mon-fri 18:00-08:00' or 'sat,sun'."""
    parse_opening(hours)
    order = _order(hours=hours, tz=tz, excepted=excepted, closed=closed, floor=floor)
    _added(post(find_home(home).socket, "/v1/windows", order), as_json=as_json)


@window.command("import")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@zone_option
@click.option("--closed", is_flag=True, help="The node is closed then; goes before open hours.")
@click.option("--floor", help="Least price then, for example '0.30 USD/gpu-h'.")
@home_option
@json_option
def import_file(
    file: Path, tz: str | None, closed: bool, floor: str | None, home: Path | None, as_json: bool
) -> None:
    """Add the events of an iCalendar FILE as one window.

    Nothing is added if any event would be misread; the error names it.
    """
    with host_faults(f"read {file}"):
        try:
            events = file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise LocalFault(f"{file}: this is no calendar.", "export it as .ics") from error
    order = _order(events=events, tz=tz, closed=closed, floor=floor)
    try:
        document = post(find_home(home).socket, "/v1/windows", order)
    except LocalFault as fault:
        raise LocalFault(f"{file}: {fault.what}", fault.cure) from fault
    _added(document, as_json=as_json)


@window.command("list")
@home_option
@json_option
def list_windows(home: Path | None, as_json: bool) -> None:
    """List the windows."""
    document = get(find_home(home).socket, "/v1/windows")
    if as_json:
        print_document(document)
        return
    rows = [_row(item, document["money"]) for item in document["items"]]
    if rows:
        print_table(("NAME", "HOURS", "ZONE", "EXCEPT", "FLOOR/GPU-H", "FROM"), rows)
    until = document["open_until_ms"]
    if not rows:
        note("no windows: always open")
    elif not document["open_now"]:
        note("closed now; p2pnode window test --next 3d shows when it opens")
    else:
        note("open now" + ("" if until is None else f" until {_moment(until, zone_of_host())}"))


@window.command()
@click.argument("name")
@home_option
@json_option
def remove(name: str, home: Path | None, as_json: bool) -> None:
    """Remove the window NAME. Leases that run are not touched."""
    document = post(find_home(home).socket, "/v1/windows/remove", {"name": name})
    if as_json:
        print_document(document)
    else:
        say(f"{name} removed, applies {document['applies']}")


@window.command()
@click.argument("hours", required=False)
@click.option("--next", "span", default="3d", show_default=True, help="How far to look.")
@zone_option
@home_option
@json_option
def test(hours: str | None, span: str, tz: str | None, home: Path | None, as_json: bool) -> None:
    """Print when this node is open, or would be with HOURS alone; clock changes included."""
    zone = check_zone(tz or zone_of_host())
    order: dict[str, Any] = {"span_ms": parse_span(span)}
    if hours is not None:
        parse_opening(hours)
        order["window"] = _order(hours=hours, tz=zone)
    document = post(find_home(home).socket, "/v1/windows/test", order)
    if as_json:
        print_document(document)
        return
    for item in document["items"]:
        long = format_span(MillisSpan((item["end_ms"] - item["start_ms"]) // 1_000 * 1_000))
        opens, closes = (_moment(item[key], zone) for key in ("start_ms", "end_ms"))
        say(f"{opens} to {closes}  {long}")
    if not document["items"]:
        note(f"closed for the next {span}")


@window.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False)
@home_option
@json_option
def export(file: Path | None, home: Path | None, as_json: bool) -> None:
    """Write all windows as an iCalendar FILE, or print them."""
    document = get(find_home(home).socket, "/v1/windows/export")
    if as_json:
        print_document(document)
    elif file is None:
        say(*document["events"].splitlines())
    else:
        with host_faults(f"write {file}"):
            file.write_text(document["events"], encoding="utf-8", newline="")
        note(f"written to {file}")


def _order(
    *,
    tz: str | None,
    hours: str = "",
    events: str = "",
    excepted: tuple[str, ...] = (),
    closed: bool = False,
    floor: str | None = None,
) -> dict[str, Any]:
    rate = None if floor is None else parse_rate(floor)
    return {
        "hours": hours,
        "events": events,
        "zone": check_zone(tz or zone_of_host()),
        "excepted": excepted,
        "kind": "closed" if closed else "open",
        "floor_micro": None if rate is None else rate.micros,
        "money": None if rate is None else rate.code,
    }


def _added(document: Any, *, as_json: bool) -> None:
    if as_json:
        print_document(document)
        return
    item = document["window"]
    what = item["hours"] or "the imported calendar"
    say(f"{item['name']}  {item['kind']} {what} ({item['zone']}), applies {document['applies']}")


def _row(item: dict[str, Any], money: str) -> tuple[str, ...]:
    floor = item["floor_micro"]
    return (
        item["name"],
        ("closed " if item["kind"] == "closed" else "") + (item["hours"] or "imported calendar"),
        item["zone"],
        ", ".join(item["excepted"]) or "-",
        "-" if floor is None else format_money(floor, money),
        item["origin"],
    )


def _moment(instant_ms: int, zone: str) -> str:
    when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=instant_ms)
    return f"{when.astimezone(ZoneInfo(zone)):%a %Y-%m-%d %H:%M %Z}"
