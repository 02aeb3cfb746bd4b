"""`p2pnode market`: asks and cleared prices, as this node has seen them."""

from pathlib import Path
from typing import Any

import click

from p2pnode.cli.client import get
from p2pnode.cli.output import home_option, json_option, note, print_document, print_table, short
from p2pnode.cli.since import since_option
from p2pnode.home import find_home
from p2pnode.quantities import format_money
from protocol.units import Micros


@click.group()
def market() -> None:
    """See what is asked, and what leases were agreed at, per class of GPU."""


@market.command()
@since_option("7d")
@click.option("--class", "gpu_class", type=int, help="Only this class, in gigabytes of memory.")
@click.option("--depth", is_flag=True, help="Free GPUs at each ask or below.")
@home_option
@json_option
def show(
    since_ms: int, gpu_class: int | None, depth: bool, home: Path | None, as_json: bool
) -> None:
    """Show the book by class and tier, and the prices of leases in the ledger.

    Both are what this node has seen; another one sees others.
    """
    document = get(find_home(home).socket, "/v1/market", since_ms=since_ms)
    if as_json:
        print_document(document)
        return
    asks = [row for row in document["asks"] if gpu_class in {None, row["gpu_class"]}]
    cleared = [row for row in document["cleared"] if gpu_class in {None, row["gpu_class"]}]
    if asks:
        print_table(
            ("CLASS", "TIER", "OFFERS", "FREE", "LOWEST", "MEDIAN", "HIGHEST"),
            [_ask_row(row) for row in asks],
        )
    if depth:
        for row in asks:
            steps = ", ".join(
                f"{step['free']} to {_price(step['ask_micro'], row)}" for step in row["depth"]
            )
            note(f"{row['gpu_class']} GB {row['tier']}: {steps or 'quoted on request'}")
    if cleared:
        print_table(
            ("CLASS", "TIER", "LEASES", "LOWEST", "MEDIAN", "HIGHEST"),
            [_cleared_row(row) for row in cleared],
        )
    note(f"as seen by this node, {short(document['seen_by'])}: {len(cleared)} rows of leases")


def _ask_row(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"{row['gpu_class']} GB",
        row["tier"],
        str(row["offers"]),
        f"{row['free']}/{row['gpus']}",
        *(_price(row[key], row) for key in ("ask_lowest", "ask_median", "ask_highest")),
    )


def _cleared_row(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        "?" if row["gpu_class"] is None else f"{row['gpu_class']} GB",
        row["tier"],
        str(row["leases"]),
        *(_price(row[key], row) for key in ("lowest", "median", "highest")),
    )


def _price(micros: int | None, row: dict[str, Any]) -> str:
    return "on request" if micros is None else format_money(Micros(micros), row["money"])
