"""`p2pnode earn`: what renters owe this node, and what they have paid."""

from pathlib import Path

import click

from p2pnode.cli.books import add_books
from p2pnode.cli.client import post
from p2pnode.cli.output import home_option, json_option, print_document, say
from p2pnode.home import find_home
from p2pnode.quantities import format_money, parse_sum
from protocol.units import Micros


@click.group()
def earn() -> None:
    """See what this node has earned, and confirm what was paid."""


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


add_books(
    earn,
    side="owner",
    accounts="List what each renter owes.",
    lines="Write what was earned to FILE, line by line: as CSV, or with --json as JSON.",
)
