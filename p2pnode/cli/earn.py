"""`p2pnode earn`: what renters owe this node, and what they have paid."""

from datetime import datetime
from pathlib import Path

import click

from p2pnode.cli.books import (
    accounts_of,
    export_lines,
    period_options,
    print_accounts,
    print_summary,
)
from p2pnode.cli.client import post
from p2pnode.cli.output import home_option, json_option, print_document, say
from p2pnode.home import find_home
from p2pnode.quantities import format_money, parse_sum
from protocol.units import Micros

_SIDE = "owner"


@click.group()
def earn() -> None:
    """See what this node has earned, and confirm what was paid."""


@earn.command()
@home_option
@json_option
def summary(home: Path | None, as_json: bool) -> None:
    """Sum up what was agreed, paid and is due; each money for itself."""
    items = accounts_of(find_home(home), _SIDE)
    print_summary(items, as_json=as_json)


@earn.command("list")
@home_option
@json_option
def list_accounts(home: Path | None, as_json: bool) -> None:
    """List what each renter owes."""
    items = accounts_of(find_home(home), _SIDE)
    print_accounts(items, as_json=as_json)


@earn.command()
@click.argument("peer")
@click.argument("amount")
@home_option
@json_option
def confirm(peer: str, amount: str, home: Path | None, as_json: bool) -> None:
    """Sign that AMOUNT (such as '1.20 USD') has arrived from a renter. It cannot be taken back."""
    paid = parse_sum(amount)
    document = post(
        find_home(home).socket,
        "/v1/payments",
        {"peer": peer, "amount_micro": paid.micros, "money": paid.code},
    )
    if as_json:
        print_document(document)
        return
    account = document["account"]
    due = format_money(Micros(account["due_micro"]), account["money"])
    say(f"confirmed {format_money(*paid)} from {account['peer_feed'][:16]}; {due} still due")


@earn.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@period_options
@home_option
@json_option
def export(
    file: Path,
    since: datetime | None,
    until: datetime | None,
    peer: str | None,
    home: Path | None,
    as_json: bool,
) -> None:
    """Write what was earned to FILE, line by line: as CSV, or with --json as JSON."""
    export_lines(find_home(home), file, _SIDE, as_json=as_json, peer=peer, period=(since, until))
