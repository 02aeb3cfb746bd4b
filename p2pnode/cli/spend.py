"""`p2pnode spend`: what this node owes to owners, and how they want to be paid."""

from pathlib import Path

import click

from p2pnode.cli.books import add_books
from p2pnode.cli.client import get
from p2pnode.cli.output import home_option, json_option, note, print_document, say
from p2pnode.home import find_home
from p2pnode.quantities import format_money
from p2pnode.words import instant_words
from protocol.units import Micros


@click.group()
def spend() -> None:
    """See what this node has spent and owes."""


@spend.command()
@home_option
@json_option
def settle(home: Path | None, as_json: bool) -> None:
    """List what is due, with each owner's own signed word on how to pay it.

    Nothing is paid by this: pay as the owner says, under the reference, and it will confirm what
    arrives.
    """
    document = get(find_home(home).socket, "/v1/debts")
    if as_json:
        print_document(document)
        return
    if not document["items"]:
        note("nothing is due")
    for item in document["items"]:
        due = format_money(Micros(item["due_micro"]), item["money"])
        since = "" if item["since_ms"] is None else f" since {instant_words(item['since_ms'])[:10]}"
        say(f"{due} to {item['peer_feed'][:16]}{since}{', LATE' if item['late'] else ''}")
        say(f"  reference {item['reference']}")
        if item["payout"] is None:
            say(f"  how: not known, {item['why']}")
        elif item["money"] == "TEST":
            say(f"  how: {item['payout']} (signed by the owner; TEST is worth nothing)")
        else:
            say(f"  how: {item['payout']} (signed by the owner)")


add_books(
    spend,
    side="renter",
    accounts="List what is owed to each owner.",
    lines="Write what was spent to FILE, line by line: as CSV, or with --json as JSON.",
)
