"""`p2pnode ledger`: the replicated record."""

import importlib
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from p2pnode.cli.client import get, get_slow, post_slow
from p2pnode.cli.evidence import evidence
from p2pnode.cli.output import (
    home_option,
    json_option,
    note,
    print_document,
    print_table,
    say,
)
from p2pnode.home import find_home
from p2pnode.quantities import parse_span
from p2pnode.words import instant_words

EXIT_FAILED = 1


@click.group()
def ledger() -> None:
    """See, verify and copy the replicated record."""


ledger.add_command(evidence)


@ledger.command()
@click.argument("feed", required=False)
@click.option("--from", "first", type=click.IntRange(min=0), help="First entry to show.")
@click.option("--limit", default=50, show_default=True, help="Entries to show.")
@home_option
@json_option
def show(feed: str | None, first: int | None, limit: int, home: Path | None, as_json: bool) -> None:
    """Show the feeds here and what is proved against whom, or the entries of one FEED.

    FEED is a feed's key or a unique beginning of it. Without --from its last entries are shown.
    """
    node = find_home(home).socket
    if feed is None:
        document = get(node, "/v1/ledger")
    else:
        path = f"/v1/ledger/feeds/{quote(feed, safe='')}"
        document = get(node, path, first=first, limit=limit)
    if as_json:
        print_document(document)
    elif feed is None:
        _print_feeds(document)
    else:
        _print_entries(document)


def _print_feeds(document: dict[str, Any]) -> None:
    say(f"root {document['root']}")
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
        say(f"{offence['class']}: {offence['rule']} by {offence['offender'][:16]}")


def _print_entries(document: dict[str, Any]) -> None:
    say(
        f"feed     {document['feed']}",
        f"peer     {document['peer'] or 'not known'}",
        f"account  {document['account'] or 'not known'}",
        f"entries  {document['length']}",
    )
    if document["fork"] is not None:
        say(f"forked   proved, at entry {document['fork']}")
    print_table(("SEQ", "ID", "TIME (CLAIMED)", "WHAT"), entry_rows(document["items"]))
    if document["left_out"]:
        note(f"{document['left_out']} later entries; see them with --from or --limit")


def entry_rows(entries: list[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    """Entries as rows of a table."""
    return [
        (
            str(entry["seq"]),
            entry["id"][:16],
            instant_words(entry["ts_ms"]),
            entry["what"]
            + ("" if entry["is_main"] else "  (another branch)")
            + ("" if entry["has_body"] else "  (pruned)"),
        )
        for entry in entries
    ]


@ledger.command()
@home_option
@json_option
def forks(home: Path | None, as_json: bool) -> None:
    """List the feeds that are proved to fork, and what is here at the place."""
    document = get(find_home(home).socket, "/v1/ledger/forks")
    if as_json:
        print_document(document)
        return
    for item in document["items"]:
        say(
            f"proved: feed {item['feed']} forks at entry {item['fork']}",
            f"  peer {item['peer'] or 'not known'}, account {item['account'] or 'not known'}",
            f"  proof {item['proof']}",
        )
        for row in entry_rows(item["entries"]):
            say(f"  {'  '.join(row)}")
    if not document["items"]:
        note("no feed is known to fork")


@ledger.command()
@click.option("--offline", is_flag=True, help="Of a home whose node is down.")
@home_option
@json_option
def verify(offline: bool, home: Path | None, as_json: bool) -> None:
    """Judge all that is stored anew, however long it takes; exit code 1 if anything is broken."""
    where = find_home(home)
    if offline:
        audit = importlib.import_module("p2pnode.offline_audit")
        document = importlib.import_module("msgspec").to_builtins(audit.audit_offline(where))
    else:
        document = get_slow(where.socket, "/v1/ledger/verify")
    if as_json:
        print_document(document)
    else:
        say(
            f"{document['entries']} entries of {document['feeds']} feeds, "
            f"{document['evidence']} proofs: {'ok' if document['ok'] else document['broken']}"
        )
    click.get_current_context().exit(0 if document["ok"] else EXIT_FAILED)


@ledger.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--feed", help="One feed only: its key or a unique beginning of it.")
@home_option
@json_option
def export(file: Path, feed: str | None, home: Path | None, as_json: bool) -> None:
    """Write the ledger to a new FILE that any node of the network can import."""
    order = {"file": str(file.absolute()), "feed": feed}
    document = post_slow(find_home(home).socket, "/v1/ledger/export", order)
    if as_json:
        print_document(document)
        return
    say(
        f"{file}  {document['entries']} entries, {document['conflicts']} of other branches, "
        f"{document['proofs']} proofs, {document['bytes']} bytes",
        f"sha256 {document['sha256']}",
    )


@ledger.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@home_option
@json_option
def import_file(file: Path, home: Path | None, as_json: bool) -> None:
    """Take what an exported FILE holds, judged as from a peer; exit code 1 if it is not whole."""
    order = {"file": str(file.absolute())}
    document = post_slow(find_home(home).socket, "/v1/ledger/import", order)
    if as_json:
        print_document(document)
    else:
        say(
            f"entries  {document['new']} new, {document['known']} known, "
            f"{document['conflicts']} of other branches, {document['missing']} without predecessor",
            f"proofs   {document['proofs']}, offences that are new here {document['offences_new']}",
        )
        for rule, count in document["refused"].items():
            say(f"refused  {count} by rule {rule}")
        if document["broken"]:
            say(f"damaged  {document['broken']}; what came before was taken")
    click.get_current_context().exit(0 if document["ok"] else EXIT_FAILED)


@ledger.command()
@click.option(
    "--older-than",
    default="180d",
    show_default=True,
    help="Only what is older; longer than any lease and dispute.",
)
@home_option
@json_option
def prune(older_than: str, home: Path | None, as_json: bool) -> None:
    """Drop what old entries of others said, where they have summed it up themselves.

    Headers and signatures stay, so forks are proved as before, and statements stay, so no number
    changes. A peer that joins later gets the rest from others.
    """
    order = {"older_than_ms": parse_span(older_than)}
    document = post_slow(find_home(home).socket, "/v1/ledger/prune", order)
    if as_json:
        print_document(document)
    else:
        say(
            f"dropped {document['entries']} bodies of {document['feeds']} feeds, "
            f"{document['bytes'] / 1_000_000:.1f} MB, all before "
            f"{instant_words(document['before_ms'])}"
        )
