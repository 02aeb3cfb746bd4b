"""`p2pnode reputation`: what this node thinks of a peer, and why."""

from pathlib import Path
from typing import Any

import click

from p2pnode.cli.client import get
from p2pnode.cli.offer import rival_lines
from p2pnode.cli.output import home_option, json_option, print_document
from p2pnode.home import find_home
from p2pnode.quantities import format_money
from protocol.units import Micros


@click.group()
def reputation() -> None:
    """See what this node thinks of a peer."""


@reputation.command()
@click.argument("peer")
@click.option("--why", is_flag=True, help="Name the entries that each number comes from.")
@click.option("--limit", default=100, show_default=True, help="Ids to name of each kind.")
@home_option
@json_option
def show(peer: str, why: bool, limit: int, home: Path | None, as_json: bool) -> None:
    """Show a peer's standing: its feed (a prefix of 8 digits will do) or its peer id."""
    asked = "true" if why else None
    document = get(find_home(home).socket, f"/v1/reputation/{peer}", why=asked, limit=limit)
    if as_json:
        print_document(document)
        return
    money = document["money"]
    lines = {
        "feed": document["feed"],
        "standing": f"{document['standing']} ({document['kept_ppm'] / 10_000:.1f} % of its weight)",
        "reliability": f"at least {document['reliability_ppm'] / 1_000_000:.3f}",
        "credit": format_money(Micros(document["credit_micro"]), money),
        "reached by": format_money(Micros(document["flow_micro"]), money),
        "seen here": f"{document['failures_seen']} jobs not finished since this node is up",
    }
    for name, text in lines.items():
        click.echo(f"{name:<12} {text}")
    for offence in document["offences"]:
        of = "" if offence["feed"] == document["feed"] else f", as feed {offence['feed'][:16]}"
        click.echo(f"{offence['claim']:<12} {offence['rule']}: {offence['what']}{of}")
    for fact in document["attested"]:
        click.echo(f"{fact['claim']:<12} {fact['text']}, lease {fact['lease'][:16]}")
    for line in rival_lines(document["rivals"]):
        click.echo(line)
    for finding in document["why"]:
        print_finding(finding)


def print_finding(finding: dict[str, Any]) -> None:
    """One number with what it comes from."""
    click.echo(f"{finding['name']} = {finding['value']} comes from")
    if finding["note"]:
        click.echo(f"  {finding['note']}")
    lists = {"word of": "said_by", "entry": "entries", "overdue": "overdue", "proof": "proofs"}
    for word, key in lists.items():
        for name in finding[key]:
            click.echo(f"  {word} {name}")
    if finding["left_out"]:
        click.echo(f"  and {finding['left_out']} more; see them with --limit")
