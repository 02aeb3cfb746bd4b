"""`p2pnode pool`: look after jobs on several nodes."""

from pathlib import Path

import click

from p2pnode.cli.auction import print_pool_bids, save_option
from p2pnode.cli.client import get, get_bytes, post
from p2pnode.cli.output import home_option, json_option, note, print_document, print_table, say
from p2pnode.cli.several import pool_summary
from p2pnode.home import find_home, write_new
from p2pnode.quantities import format_money
from protocol.units import Micros


@click.group()
def pool() -> None:
    """Look after jobs on several nodes (`run --nodes`). POOL is an id, its beginning, or @."""


@pool.command("list")
@click.option("--limit", default=50, show_default=True, help="Rows to show.")
@home_option
@json_option
def list_pools(limit: int, home: Path | None, as_json: bool) -> None:
    """List them, newest first."""
    document = get(find_home(home).socket, "/v1/pools", limit=limit)
    if as_json:
        print_document(document)
        return
    rows = [
        (
            item["id"],
            item["state"],
            str(len(item["jobs"])),
            format_money(Micros(item["cost_micro"]), item["money"]),
            item["why"],
        )
        for item in document["items"]
    ]
    if rows:
        print_table(("POOL", "STATE", "NODES", "COST", "WHY"), rows)
    if document["left_out"]:
        note(f"{document['left_out']} more; see them with --limit")


@pool.command()
@click.argument("name", metavar="POOL")
@home_option
@json_option
def show(name: str, home: Path | None, as_json: bool) -> None:
    """Show one, and the jobs of its nodes."""
    document = get(find_home(home).socket, f"/v1/pools/{name}")
    if as_json:
        print_document(document)
        return
    say(pool_summary(document))
    for rank, job in enumerate(document["jobs"]):
        say(f"  {rank:>3}  {job}")


@pool.command()
@click.argument("name", metavar="POOL")
@home_option
@json_option
def cancel(name: str, home: Path | None, as_json: bool) -> None:
    """End it on all nodes."""
    document = post(find_home(home).socket, f"/v1/pools/{name}/cancel", {})
    if as_json:
        print_document(document)
    else:
        say(pool_summary(document))


@pool.command()
@click.argument("name", metavar="POOL")
@save_option
@home_option
@json_option
def bids(name: str, save: Path | None, home: Path | None, as_json: bool) -> None:
    """Show which owners were asked for its nodes, and check that the choice followed the rule."""
    node = find_home(home).socket
    if save is not None:
        write_new(save, get_bytes(node, f"/v1/pools/{name}/auction"))
    document = get(node, f"/v1/pools/{name}/bids")
    if as_json:
        print_document(document)
    else:
        print_pool_bids(document)
