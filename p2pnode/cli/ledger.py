"""`p2pnode ledger` and `p2pnode lease`: the replicated record."""

from pathlib import Path

import click

from p2pnode.cli.client import get
from p2pnode.cli.output import home_option, json_option, note, print_document, print_table
from p2pnode.home import find_home
from p2pnode.quantities import format_money
from protocol.units import Micros

EXIT_BROKEN = 1


@click.group()
def ledger() -> None:
    """See and verify the replicated record."""


@ledger.command()
@home_option
@json_option
def show(home: Path | None, as_json: bool) -> None:
    """Show the feeds that this node holds, and what is proved against whom."""
    document = get(find_home(home).socket, "/v1/ledger")
    if as_json:
        print_document(document)
        return
    click.echo(f"root {document['root']}")
    print_table(
        ("FEED", "ENTRIES", "HEAD", "FORK"),
        [
            (
                head["feed"][:16] + (" (ours)" if head["feed"] == document["feed"] else ""),
                str(head["seq"] + 1),
                head["id"][:16],
                "-" if head["fork"] is None else f"at {head['fork']}",
            )
            for head in document["heads"]
        ],
    )
    for offence in document["offences"]:
        click.echo(f"{offence['class']}: {offence['rule']} by {offence['offender'][:16]}")


@ledger.command()
@home_option
@json_option
def verify(home: Path | None, as_json: bool) -> None:
    """Judge all that is stored anew; exit code 1 if anything is broken."""
    document = get(find_home(home).socket, "/v1/ledger/verify")
    if as_json:
        print_document(document)
    else:
        click.echo(
            f"{document['entries']} entries of {document['feeds']} feeds, "
            f"{document['evidence']} proofs: {'ok' if document['ok'] else document['broken']}"
        )
    click.get_current_context().exit(0 if document["ok"] else EXIT_BROKEN)


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
