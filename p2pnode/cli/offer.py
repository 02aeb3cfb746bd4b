"""`p2pnode offer`: what is offered on the network, as this node has seen it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

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
from p2pnode.cli.since import for_option
from p2pnode.cli.wanted import constraints_of, money_of, tier_in, wanted_options
from p2pnode.cli.watching import watch as watch_items
from p2pnode.cli.why import change_lines
from p2pnode.home import find_home
from p2pnode.quantities import (
    format_money,
    format_percent,
    format_span,
    mib_ceil,
    parse_size,
    parse_span,
)
from p2pnode.words import instant_words

F = TypeVar("F", bound=Callable[..., Any])
EXIT_NO_MATCH = 5


@click.group()
def offer() -> None:
    """See what is offered on the network."""


def offer_options(command: F) -> F:
    """What a node must have, in a search."""
    for option in reversed(
        (
            click.option("--cpus", default=0, help="Least cores of the node."),
            click.option("--memory", help="Least memory of the node, for example 64GB."),
            click.option("--disk", help="Least disk of the node."),
            click.option(
                "--time", "span", help="For how long, for example 2h; limits on it are judged so."
            ),
        )
    ):
        command = option(command)
    return wanted_options(command)


@offer.command()
@offer_options
@click.option("--limit", default=50, show_default=True, help="Rows to show.")
@home_option
@json_option
def search(*, limit: int, home: Path | None, as_json: bool, **wanted: Any) -> None:
    """List the offers that fit, cheapest first; exit code 5 if none does."""
    document = get(find_home(home).socket, "/v1/offers", **query_of(wanted), limit=limit)
    if as_json:
        print_document(document)
    else:
        _print_offers(document, tier_in(wanted).partition(",")[0].replace("any", "silver"))
    if not document["items"]:
        click.get_current_context().exit(EXIT_NO_MATCH)


@offer.command()
@click.argument("name", metavar="NODE|OFFER")
@home_option
@json_option
def show(name: str, home: Path | None, as_json: bool) -> None:
    """Show all that one node offers: named as `search` prints it, or by an offer's key."""
    document = get(find_home(home).socket, f"/v1/offers/{quote(name, safe='')}")
    if as_json:
        print_document(document)
        return
    for item in document["items"]:
        say(*_lines(item))


def _lines(item: dict[str, Any]) -> list[str]:
    asks = ", ".join(
        f"{tier} {format_money(item['asks'][tier], item['money'])}/gpu-h"
        if tier in item["asks"]
        else f"{tier} on request"
        for tier in item["tiers"]
    )
    lines = [
        f"offer      {item['key']}",
        f"node       {item['peer']}",
        f"account    {item['account']}",
        f"gpu        {item['units']} x {item['model']} ({item['gpu']}), {item['free']} free",
        f"vram       {item['vram_mib']} MiB",
        f"ask        {asks}",
    ]
    if item["gold_remedy_ppm"] is not None:
        share = format_percent(item["gold_remedy_ppm"])
        lines.append(f"remedy     gold: {share} of the whole price is let off if the host fails")
    if item["lease_ms_min"] is not None and item["lease_ms_max"] is not None:
        least, most = (format_span(item[key]) for key in ("lease_ms_min", "lease_ms_max"))
        lines.append(f"leases     {least} to {most}")
    told = ", ".join(f"{name} {value}" for name, value in item["host"].items())
    return [
        *lines,
        f"host       {item['isolation']}, {item['region']}" + (f", {told}" if told else ""),
        f"until      {instant_words(item['expires_ms'])}, unless it is heard of again",
    ]


@offer.command()
@offer_options
@for_option
@home_option
@json_option
def watch(*, for_ms: int | None, home: Path | None, as_json: bool, **wanted: Any) -> None:
    """Say each offer that fits as it comes, changes or goes, until Ctrl-C."""
    node = find_home(home).socket
    query = query_of(wanted)
    tier = tier_in(wanted).partition(",")[0].replace("any", "silver")
    watch_items(
        lambda: get(node, "/v1/offers", **query, limit=16_384)["items"],
        key="key",
        told=lambda item: (item["asks"], item["free"], item["units"]),
        line=lambda what, item: "  ".join((f"{what:<8}", *_row(item, tier))),
        for_ms=for_ms,
        as_json=as_json,
    )


def query_of(wanted: dict[str, Any]) -> dict[str, Any]:
    """The options as parameters of a URL. Raises LocalFault."""
    query = constraints_of(wanted)
    for field, name in (("models", "model"), ("regions", "region"), ("or_tiers", "or_tier")):
        if field in query:
            query[name] = query.pop(field)
    return {
        **query,
        "money": money_of(wanted),
        "cpus_min": wanted["cpus"],
        "memory_mib_min": mib_ceil(parse_size(wanted["memory"])) if wanted["memory"] else None,
        "disk_mib_min": mib_ceil(parse_size(wanted["disk"])) if wanted["disk"] else None,
        "time_ms": parse_span(wanted["span"]) if wanted["span"] else None,
    }


def _print_offers(document: dict[str, Any], tier: str) -> None:
    items = document["items"]
    if items:
        print_table(
            ("NODE", "GPU", "VRAM", "FREE", "ASK/GPU-H", "REGION", "ISOLATION"),
            [_row(item, tier) for item in items],
        )
    note(*change_lines(document))
    fit = len(items) + document["left_out"]
    note(f"{fit} of {document['seen']} offers fit{_because(document['misfits'])}")
    if document["left_out"]:
        note(f"{document['left_out']} more fit; see them with --limit")


def _row(item: dict[str, Any], tier: str) -> tuple[str, ...]:
    ask = item["asks"].get("silver" if tier == "any" else tier)
    return (
        short(item["peer"]),
        f"{item['model']} ({item['gpu']})",
        f"{item['vram_mib']} MiB",
        f"{item['free']}/{item['units']}",
        "on request" if ask is None else format_money(ask, item["money"]),
        item["region"],
        item["isolation"],
    )


def _because(misfits: dict[str, int]) -> str:
    if not misfits:
        return ""
    counts = sorted(misfits.items(), key=lambda pair: (-pair[1], pair[0]))
    return "; not fit: " + ", ".join(f"{count} {why}" for why, count in counts)
