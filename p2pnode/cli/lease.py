"""`p2pnode lease` and `gpu`: what is given and taken, and what an owner takes back."""

from pathlib import Path
from typing import Any

import click

from p2pnode.cli.client import get, post
from p2pnode.cli.output import (
    home_option,
    json_option,
    note,
    print_document,
    print_table,
)
from p2pnode.home import find_home
from p2pnode.quantities import format_money, parse_span
from p2pnode.words import instant_words
from protocol.errors import LocalFault
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


@lease.command()
@click.argument("name")
@click.option("--yield", "is_yielding", is_flag=True, help="With the notice that was agreed.")
@click.option("--grace", default="0s", show_default=True, help="A longer notice, at most 1h.")
@home_option
@json_option
def stop(*, name: str, is_yielding: bool, grace: str, home: Path | None, as_json: bool) -> None:
    """Take the units of a bronze lease back: its job saves, and goes on elsewhere.

    NAME is the beginning of the lease's id. Silver and gold are never broken.
    """
    if not is_yielding:
        raise LocalFault(
            "A lease ends early only where its tier lets the owner take it back.",
            f"p2pnode lease stop {name} --yield",
        )
    order = {"grace_ms": parse_span(grace)}
    _print_yielded(post(find_home(home).socket, f"/v1/leases/{name}/yield", order), as_json)


@click.group()
def gpu() -> None:
    """Look after the GPUs of this node."""


@gpu.command()
@click.option("--grace", default="0s", show_default=True, help="A longer notice, at most 1h.")
@home_option
@json_option
def reclaim(grace: str, home: Path | None, as_json: bool) -> None:
    """Take all GPUs back from bronze leases; the others run their time."""
    order = {"grace_ms": parse_span(grace)}
    _print_yielded(post(find_home(home).socket, "/v1/gpus/reclaim", order), as_json)


def _print_yielded(document: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_document(document)
        return
    rows = [
        (
            item["lease"][:12],
            item["tier"],
            str(len(item["units"])),
            instant_words(item["free_ms"]),
            "taken back" if item["is_taken_back"] else "runs its time",
        )
        for item in document["items"]
    ]
    if rows:
        print_table(("LEASE", "TIER", "GPUS", "FREE FROM", ""), rows)
    else:
        note("no lease is open")
