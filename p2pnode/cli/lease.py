"""`p2pnode lease`: what is given and taken."""

from pathlib import Path

import click

from p2pnode.cli.client import get
from p2pnode.cli.output import home_option, json_option, note, print_document, print_table
from p2pnode.home import find_home
from p2pnode.quantities import format_money
from protocol.units import Micros


@click.group()
def lease() -> None:
    """See the leases given and taken."""


@lease.command("list")
@home_option
@json_option
def list_leases(home: Path | None, as_json: bool) -> None:
    """List the leases in which this node is one side, newest first."""
    document = get(find_home(home).socket, "/v1/leases")
    if as_json:
        print_document(document)
        return
    rows = [
        (
            item["id"][:12],
            item["side"],
            item["peer_feed"][:12],
            str(item["units"]),
            f"{(item['end_ms'] - item['start_ms']) / 1_000:.1f} s",
            format_money(Micros(item["micro_per_gpu_hour"]), item["money"]),
            item["reason"] or "runs its time",
        )
        for item in document["items"]
    ]
    if rows:
        print_table(("LEASE", "SIDE", "WITH", "GPUS", "LENGTH", "PRICE/GPU-H", "END"), rows)
    else:
        note("no leases yet")
