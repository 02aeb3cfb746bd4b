"""`p2pnode ledger evidence`: what is proved against whom, and proofs as files."""

import importlib
from pathlib import Path
from typing import Any

import click

from ledger.limits import EVIDENCE_BYTES_MAX
from p2pnode.cli.client import get
from p2pnode.cli.files import read_file
from p2pnode.cli.output import home_option, json_option, note, print_document, say
from p2pnode.home import find_home, write_new
from p2pnode.words import instant_words
from protocol.errors import LocalFault


@click.group(invoke_without_command=True)
@click.option("--offender", help="One feed only: its key or a unique beginning of it.")
@click.option(
    "--save",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the one proof that is shown to this new file.",
)
@click.option("--limit", default=50, show_default=True, help="Proofs to show.")
@home_option
@json_option
@click.pass_context
def evidence(
    context: click.Context,
    offender: str | None,
    save: Path | None,
    limit: int,
    home: Path | None,
    as_json: bool,
) -> None:
    """List what is proved, each by bytes that its offender signed; `check` checks a saved proof."""
    if context.invoked_subcommand is not None:
        return
    document = get(find_home(home).socket, "/v1/ledger/evidence", offender=offender, limit=limit)
    if save is not None:
        _save(document, save)
    if as_json:
        print_document(document)
        return
    for item in document["items"]:
        _print_proof(item)
    if document["left_out"]:
        note(f"{document['left_out']} more; see them with --limit")
    if not document["items"]:
        note("nothing is proved against anybody")


def _save(document: dict[str, Any], file: Path) -> None:
    if len(document["items"]) != 1 or document["left_out"]:
        raise LocalFault(
            f"--save writes one proof, and these are {len(document['items'])}.",
            "--offender FEED, or --limit 1 for the first",
        )
    write_new(file, bytes.fromhex(document["items"][0]["hex"]))


@evidence.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--network",
    help="Its id, an invitation, or a file with genesis or invitation (default: the home's).",
)
@home_option
@json_option
def check(file: Path, network: str | None, home: Path | None, as_json: bool) -> None:
    """Check the proof in FILE, without a node; exit code 1 if it proves nothing."""
    raw = read_file(file, size_max=EVIDENCE_BYTES_MAX, what="a proof")
    known = importlib.import_module("p2pnode.known_network").known_network(network, find_home(home))
    found = importlib.import_module("p2pnode.proofs").verify_proof(raw, known)
    document = importlib.import_module("msgspec").to_builtins(found)
    if as_json:
        print_document(document)
        return
    _print_proof(document["proof"])
    say(f"  network {document['network']['id']}")


def _print_proof(item: dict[str, Any]) -> None:
    say(
        f"{item['class']}: {item['rule']} {item['offence']}",
        f"  offender feed {item['offender']}",
    )
    if item["peer"]:
        say(f"  peer {item['peer']}, account {item['account']}")
    for part in item["shown_by"]:
        place = (
            ""
            if part["seq"] is None
            else f"entry {part['seq']} of {instant_words(part['ts_ms'])}: "
        )
        say(f"  shown by {place}{part['what']}")
    say(f"  proof {item['id']}, {item['bytes']} bytes")
