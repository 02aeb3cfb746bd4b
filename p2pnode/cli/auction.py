"""`p2pnode auction`: whether an auction was decided by the rule, without a node."""

import importlib
from pathlib import Path
from typing import Any

import click

from p2pnode.cli.client import get_bytes
from p2pnode.cli.files import read_file
from p2pnode.cli.output import home_option, json_option, print_document, print_table, say
from p2pnode.cli.receipt import network_lines
from p2pnode.home import find_home
from protocol.limits import AUCTION_BYTES_MAX

EXIT_DEVIATES = 1

save_option = click.option(
    "--save",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the auction's record to this new file, for `auction verify` anywhere.",
)


@click.group()
def auction() -> None:
    """Recompute who had to win an auction; needs no node for a saved record."""


@auction.command()
@click.argument("source")
@click.option(
    "--network",
    help="The network it must be of: its id, an invitation, or a file with genesis or invitation "
    "(default: that of the home).",
)
@home_option
@json_option
def verify(source: str, network: str | None, home: Path | None, as_json: bool) -> None:
    """Check SOURCE: a saved record, or a job or a pool of the node here.

    `job bids --save FILE` and `pool bids --save FILE` save one.
    Prints what each bid was expected to cost, term by term, in the order in which the rule tries
    them. Exit code 1 if the renter chose otherwise, with the bid that was to win. Of a job on
    several nodes, prints the offers, and whom it asked to hold its GPUs.
    """
    here, file = find_home(home), Path(source)
    if file.exists() or "/" in source:
        raw = read_file(file, size_max=AUCTION_BYTES_MAX, what="the record of an auction")
    else:
        kind = "pools" if source.startswith("pool-") else "jobs"
        raw = get_bytes(here.socket, f"/v1/{kind}/{source}/auction")
    known = importlib.import_module("p2pnode.known_network").known_network(network, here)
    found = importlib.import_module("p2pnode.auction_check").verify_auction(raw, known)
    document = importlib.import_module("msgspec").to_builtins(found)
    if as_json:
        print_document(document)
    else:
        if document["pool"] is None:
            print_bids(document["auction"])
        else:
            print_pool_bids(document["pool"])
        say(*network_lines(found.network))
    if not (found.pool or found.auction).is_by_the_rule:
        click.get_current_context().exit(EXIT_DEVIATES)


TERMS = ("price", "staging", "queue", "failure", "interruption", "latency", "unmet", "score")


def print_bids(document: dict[str, Any]) -> None:
    """The bids with their terms in micro-units, what was tried, and the verdict."""
    tries = {digest: place for place, digest in enumerate(document["chosen"], 1)}
    rows = [
        (
            str(tries.get(bid["bid"], "")),
            bid["bid"][:12],
            bid["owner"][:12],
            str(bid["micro_per_gpu_hour"]),
            *(str(bid[f"{term}_micro"]) for term in TERMS),
        )
        for bid in document["bids"]
    ]
    if rows:
        print_table(("TRY", "BID", "OWNER", "MICRO/GPU-H", *map(str.upper, TERMS)), rows)
    for refusal in document["refusals"]:
        say(f"refused by {refusal['owner'][:12]}: {refusal['reason']} {refusal['detail']}".rstrip())
    _print_verdict(document)


def print_pool_bids(document: dict[str, Any]) -> None:
    """What was chosen among, who was asked, and the verdict."""
    rows = [
        (
            each["key"][:12],
            each["owner"][:12],
            each["account"][:12],
            str(each["places"]),
            str(each["score_micro"]),
        )
        for each in document["offers"]
    ]
    if rows:
        print_table(("OFFER", "OWNER", "ACCOUNT", "NODES", "MICRO/NODE"), rows)
    ranks = {digest: rank for rank, digest in enumerate(document["chosen"])}
    asked = [
        (
            str(each["turn"]),
            each["key"][:12],
            f"{each['answer']} {each['reason']}".strip(),
            (each["bid"] or "-")[:12],
            "-" if each["bid"] is None else str(each["micro_per_gpu_hour"]),
            str(ranks.get(each["bid"], "-")),
        )
        for each in document["asked"]
    ]
    if asked:
        print_table(("TRY", "OFFER", "ANSWER", "BID", "MICRO/GPU-H", "RANK"), asked)
    _print_verdict(document)


def _print_verdict(document: dict[str, Any]) -> None:
    wrong = document["deviation"]
    if wrong is None:
        pool = f", pool rule {document['pool_rule']}" if "pool_rule" in document else ""
        say(f"by the rule   scoring rule {document['rule']}{pool}")
    else:
        say(f"DEVIATES      {wrong['rule']}: {wrong['text']}")
