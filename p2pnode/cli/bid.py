"""`p2pnode bid`: what this owner was asked, what it bid, and what came of it."""

from pathlib import Path
from typing import Any

import click

from p2pnode.cli.client import get
from p2pnode.cli.output import (
    home_option,
    json_option,
    note,
    print_document,
    print_table,
    say,
    short,
)
from p2pnode.cli.since import for_option, since_option
from p2pnode.cli.watching import watch as watch_items
from p2pnode.home import find_home
from p2pnode.quantities import format_money, format_span
from p2pnode.words import instant_words
from protocol.errors import LocalFault
from protocol.units import Micros, MillisSpan


@click.group()
def bid() -> None:
    """See the requests this owner was asked, its bids, and what came of them."""


@bid.command("list")
@since_option("24h")
@click.option("--limit", default=50, show_default=True, help="Rows to show.")
@home_option
@json_option
def list_bids(since_ms: int, limit: int, home: Path | None, as_json: bool) -> None:
    """List what was asked, newest first. To be outbid is no error."""
    document = get(find_home(home).socket, "/v1/bids", since_ms=since_ms, limit=limit)
    if as_json:
        print_document(document)
        return
    if document["items"]:
        print_table(
            ("BID", "AT", "WANTED", "TIER", "FOR", "BID/GPU-H", "RANK", "STATE", "WHY"),
            [_row(item) for item in document["items"]],
        )
    counts = ", ".join(f"{count} {state}" for state, count in document["counts"].items())
    fill = document["fill_ppm"]
    share = "" if fill is None else f"; {fill / 10_000:.0f} % of the bids that are over won"
    note(f"{counts or 'nobody asked'}{share}; what was earned: p2pnode earn summary")
    if document["left_out"]:
        note(f"{document['left_out']} more; see them with --limit")


@bid.command()
@click.argument("number", type=int)
@home_option
@json_option
def show(number: int, home: Path | None, as_json: bool) -> None:
    """Show one request by its number in the list."""
    document = get(find_home(home).socket, "/v1/bids", limit=16_384)
    found = [item for item in document["items"] if item["number"] == number]
    if not found:
        raise LocalFault(f"There is no bid {number}.", "p2pnode bid list --since 7d")
    if as_json:
        print_document({**document, "items": found, "left_out": 0})
        return
    for key, value in found[0].items():
        say(f"{key:<20} {'-' if value is None else value}")


@bid.command()
@for_option
@home_option
@json_option
def watch(for_ms: int | None, home: Path | None, as_json: bool) -> None:
    """Say each request as it comes, and what comes of it."""
    node = find_home(home).socket
    watch_items(
        lambda: get(node, "/v1/bids", limit=200)["items"][::-1],
        key="number",
        told=lambda item: item["state"],
        line=lambda _what, item: "  ".join(_row(item)),
        for_ms=for_ms,
        as_json=as_json,
    )


def _row(item: dict[str, Any]) -> tuple[str, ...]:
    price = item["micro_per_gpu_hour"]
    return (
        str(item["number"]),
        instant_words(item["seen_ms"])[11:19],
        f"{item['gpus']} x {item['vram_mib_min']} MiB by {short(item['renter'])}",
        item["tier"],
        format_span(MillisSpan(item["span_ms"] // 1_000 * 1_000)),
        "-" if price is None else format_money(Micros(price), item["money"]),
        "-" if item["rank"] is None else f"{item['rank']} of {item['rivals'] + 1}",
        item["state"],
        item["why"],
    )
