"""How commands print: data to stdout, everything else to stderr, JSON where it was asked for.

Peers choose much of what is printed, so all of it passes through here: one argument is one line,
and what could move a cursor or turn a line round is escaped.
"""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from msgspec import Struct, to_builtins

from p2pnode.words import printable

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
    """One JSON document on stdout, in ASCII, so that no terminal acts on what is in it."""
    click.echo(json.dumps(document, indent=2))


def print_struct(document: Struct) -> None:
    """One document that was made here and not by a node."""
    print_document(to_builtins(document))


def say(*lines: str) -> None:
    """Lines for people, on stdout."""
    for line in lines:
        click.echo(printable(line))


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as their widest cell."""
    lines = [[printable(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[i]) for row in lines) for i in range(len(header))]
    for row in lines:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo(line.rstrip())


def note(*lines: str) -> None:
    """Lines for people that are not data, on stderr."""
    for line in lines:
        click.echo(printable(line), err=True)


def report(what: str, cure: str) -> None:
    """What went wrong and what to do, on stderr."""
    if "--json" in sys.argv:
        click.echo(json.dumps({"error": what, "try": cure}), err=True)
        return
    note(*f"error: {what}".split("\n"))
    if cure:
        note(*f"  try: {cure}".split("\n"))


def short(peer: str) -> str:
    """A peer id short enough for a table: its head and its tail."""
    return f"{peer[:4]}…{peer[-5:]}" if len(peer) > 12 else peer
