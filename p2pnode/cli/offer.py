"""`p2pnode offer`: what is offered on the network, as this node has seen it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import click

from p2pnode.cli.client import get
from p2pnode.cli.output import home_option, json_option, note, print_document, print_table, short
from p2pnode.cli.since import for_option
from p2pnode.cli.wanted import constraints_of, money_of, tiers_in, wanted_options
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
        _print_offers(document, tiers_in(wanted))
    if not document["items"]:
        click.get_current_context().exit(EXIT_NO_MATCH)


@offer.command()
@click.argument("key", metavar="OFFER|NODE")
@home_option
@json_option
def show(key: str, home: Path | None, as_json: bool) -> None:
    """Show one offer: by its node, as `offer search` prints it, or by the beginning of its key."""
    document = get(find_home(home).socket, f"/v1/offers/{quote(key, safe='')}")
    if as_json:
        print_document(document)
        return
    item = document["offer"]
    lines = {
        "key": item["key"],
        "node": item["peer"],
        "account": item["account"],
        "state": document["state"],
        "gpu": f"{item['units']} x {item['model']} ({item['gpu']}), {item['vram_mib']} MiB each",
        "free": str(item["free"]),
        "region": item["region"],
        "isolation": item["isolation"],
        "until": instant_words(item["expires_ms"]),
        **_terms(item),
    }
    for name, text in lines.items():
        click.echo(f"{name:<12} {text}")
    for line in rival_lines(item["rivals"]):
        click.echo(line)


def _terms(item: dict[str, Any]) -> dict[str, str]:
    """What it costs, for how long it can be had, and what else its owner tells."""
    asks = item["asks"]
    lines = {
        f"{tier} ask": format_money(asks[tier], item["money"]) if tier in asks else "on request"
        for tier in item["tiers"]
    }
    if item["gold_remedy_ppm"] is not None:
        share = format_percent(item["gold_remedy_ppm"])
        lines["gold remedy"] = f"{share} of the whole price, if its host fails the job"
    if item["lease_ms_min"] is not None and item["lease_ms_max"] is not None:
        least, most = (format_span(item[key]) for key in ("lease_ms_min", "lease_ms_max"))
        lines["leases"] = f"{least} to {most}"
    if item["host"]:
        lines["host"] = ", ".join(f"{name} {value}" for name, value in item["host"].items())
    return lines


def rival_lines(rivals: list[dict[str, Any]]) -> list[str]:
    """Who else offers the same GPUs, one line each, with what that is worth."""
    return [
        f"{rival['claim']:<12} feed {rival['owner'][:16]} offers {rival['devices']} of these GPUs "
        f"too; this node saw it {'before' if rival['is_first'] else 'after'} this owner"
        for rival in rivals
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
    tiers = tiers_in(wanted)
    watch_items(
        lambda: get(node, "/v1/offers", **query, limit=16_384)["items"],
        key="key",
        told=lambda item: (item["asks"], item["free"], item["units"]),
        line=lambda what, item: "  ".join((f"{what:<8}", *_row(item, tiers))),
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


def _print_offers(document: dict[str, Any], tiers: list[str]) -> None:
    items = document["items"]
    if items:
        print_table(
            ("NODE", "GPU", "VRAM", "FREE", "ASK/GPU-H", "REGION", "ISOLATION"),
            [_row(item, tiers) for item in items],
        )
    for item in items:
        note(*(f"{short(item['peer'])}: {line}" for line in rival_lines(item["rivals"])))
    note(*change_lines(document))
    fit = len(items) + document["left_out"]
    note(f"{fit} of {document['seen']} offers fit{_because(document['misfits'])}")
    if document["left_out"]:
        note(f"{document['left_out']} more fit; see them with --limit")


def _row(item: dict[str, Any], tiers: list[str]) -> tuple[str, ...]:
    asks = [(ask, tier) for tier, ask in item["asks"].items() if tier in tiers and ask is not None]
    ask, tier = min(asks, default=(None, ""))
    return (
        short(item["peer"]),
        f"{item['model']} ({item['gpu']})",
        f"{item['vram_mib']} MiB",
        f"{item['free']}/{item['units']}",
        "on request" if ask is None else _ask_text(format_money(ask, item["money"]), tier, tiers),
        item["region"],
        item["isolation"],
    )


def _ask_text(ask: str, tier: str, tiers: list[str]) -> str:
    """The least of the asks that are wanted, with its tier where there are several."""
    return f"{ask} {tier}" if len(tiers) > 1 else ask


def _because(misfits: dict[str, int]) -> str:
    if not misfits:
        return ""
    counts = sorted(misfits.items(), key=lambda pair: (-pair[1], pair[0]))
    return "; not fit: " + ", ".join(f"{count} {why}" for why, count in counts)
