"""How commands print: data to stdout, everything else to stderr, JSON where it was asked for."""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def json_option(command: F) -> F:
    """`--json`: one document on stdout instead of text for people."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(command)


def home_option(command: F) -> F:
    """`--home`: which node's files."""
    return click.option(
        "--home",
        type=click.Path(path_type=Path, file_okay=False),
        help="Directory of the node's files (default: P2PNODE_HOME, else the user's directories).",
    )(command)


def print_document(document: object) -> None:
    """One JSON document on stdout."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as their widest cell."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    for row in (header, *rows):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo(line.rstrip())


def note(text: str) -> None:
    """A line for people, on stderr."""
    click.echo(text, err=True)


def report(what: str, cure: str) -> None:
    """What went wrong and what to do, on stderr."""
    if "--json" in sys.argv:
        click.echo(json.dumps({"error": what, "try": cure}), err=True)
        return
    note(f"error: {what}")
    if cure:
        note(f"  try: {cure}")


def short(peer: str) -> str:
    """A peer id short enough for a table: its head and its tail."""
    return f"{peer[:4]}…{peer[-5:]}" if len(peer) > 12 else peer
