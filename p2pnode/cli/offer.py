"""`p2pnode offer`: what is offered on the network, as this node has seen it."""

from pathlib import Path
from typing import Any

import click

from p2pnode.cli.client import get
from p2pnode.cli.output import home_option, json_option, note, print_document, print_table, short
from p2pnode.home import find_home
from p2pnode.quantities import format_money, mib_ceil, parse_rate, parse_size

EXIT_NO_MATCH = 5


@click.group()
def offer() -> None:
    """See what is offered on the network."""


@offer.command()
@click.option("--vram", help="Least memory of each GPU, for example 24GB.")
@click.option("--gpus", default=1, show_default=True, help="Free GPUs wanted on one node.")
@click.option("--model", multiple=True, help="Part of the GPU's name; may be repeated.")
@click.option("--region", multiple=True, help="ISO 3166 country; may be repeated.")
@click.option("--tier", default="silver", show_default=True, help="gold, silver or bronze.")
@click.option("--max-price", help="Most per GPU-hour, for example '0.40 USD/gpu-h'.")
@click.option("--limit", default=50, show_default=True, help="Rows to show.")
@home_option
@json_option
def search(
    vram: str | None,
    gpus: int,
    model: tuple[str, ...],
    region: tuple[str, ...],
    tier: str,
    max_price: str | None,
    limit: int,
    home: Path | None,
    as_json: bool,
) -> None:
    """List the offers that fit, cheapest first; exit code 5 if none does."""
    most = parse_rate(max_price) if max_price else None
    document = get(
        find_home(home).socket,
        "/v1/offers",
        vram_mib_min=mib_ceil(parse_size(vram)) if vram else None,
        gpus=gpus,
        model=model,
        region=[code.upper() for code in region],
        tier=tier,
        ask_micro_max=most.micros if most else None,
        money=most.code if most else None,
        limit=limit,
    )
    if as_json:
        print_document(document)
    else:
        _print_offers(document, tier)
    if not document["items"]:
        click.get_current_context().exit(EXIT_NO_MATCH)


def _print_offers(document: dict[str, Any], tier: str) -> None:
    items = document["items"]
    if items:
        print_table(
            ("NODE", "GPU", "VRAM", "FREE", "ASK/GPU-H", "REGION", "ISOLATION"),
            [_row(item, tier) for item in items],
        )
    fit = len(items) + document["left_out"]
    note(f"{fit} of {document['seen']} offers fit{_because(document['misfits'])}")
    if document["left_out"]:
        note(f"{document['left_out']} more fit; see them with --limit")


def _row(item: dict[str, Any], tier: str) -> tuple[str, ...]:
    ask = item["asks"].get(tier)
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
