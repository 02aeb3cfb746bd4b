"""`p2pnode receipt`: what a lease's receipt proves, without a node."""

import importlib
from pathlib import Path
from typing import Any

import click

from ledger.limits import RECEIPT_BYTES_MAX
from p2pnode.cli.files import read_file
from p2pnode.cli.output import home_option, json_option, note, print_struct, say
from p2pnode.home import find_home


@click.group()
def receipt() -> None:
    """Check receipts; needs no node and no network connection."""


@receipt.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--network",
    help="The network it must be of: its id, an invitation, or a file with genesis or invitation "
    "(default: that of the home, else the one that the receipt names).",
)
@home_option
@json_option
def verify(file: Path, network: str | None, home: Path | None, as_json: bool) -> None:
    """Check the receipt in FILE and say who owes whom what; exit code 1 if it does not hold."""
    raw = read_file(file, size_max=RECEIPT_BYTES_MAX, what="a receipt")
    known = importlib.import_module("p2pnode.known_network").known_network(network, find_home(home))
    document = importlib.import_module("p2pnode.receipt_check").verify_receipt(raw, known)
    if as_json:
        print_struct(document)
        return
    say(
        f"holds     lease {document.lease}",
        *network_lines(document.network),
        f"owner     feed {document.owner.feed}",
        f"          account {document.owner.account}",
        f"renter    feed {document.renter.feed}",
        f"          account {document.renter.account}",
    )
    for statement in document.statements:
        by = {"both": " by both", "nobody": ""}.get(statement.by, f" by the {statement.by}")
        say(f"{statement.class_ + by:<21} {statement.text}")
    if document.simulated:
        say(f"simulated {', '.join(document.simulated)}")


def network_lines(network: Any) -> list[str]:
    """Which network something was checked against, and how far that says something."""
    name = "" if network.name is None else f"  {network.name} ({network.kind})"
    if network.known_by == "receipt":
        note("the network is only named by the file itself; compare its id, or use --network")
    return [f"network   {network.id}{name}"]
