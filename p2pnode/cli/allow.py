"""`p2pnode allow`: whom and what this node lets in."""

from pathlib import Path
from typing import Any

import click

from p2pnode.cli.client import get, post
from p2pnode.cli.output import home_option, json_option, note, print_document, print_table, say
from p2pnode.home import find_home
from p2pnode.screening import KINDS, Rule, check_rule
from protocol.errors import LocalFault

EXIT_REFUSED = 1


@click.group()
def allow() -> None:
    """See or change which images, renters, regions and networks are let in."""


@allow.command()
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("pattern")
@click.option("--deny", is_flag=True, help="Keep it out; goes before what is allowed.")
@home_option
@json_option
def add(kind: Any, pattern: str, deny: bool, home: Path | None, as_json: bool) -> None:
    """Allow what is like PATTERN, and of that KIND nothing else that is not allowed too.

    An image by its repository ('ghcr.io/me/*') or digest (no tag is allowed, since it may mean
    another image tomorrow), a renter by feed or account, a region by its country of two letters
    (DE; no sets such as EU), a network as 203.0.113.0/24.
    """
    rule = check_rule(Rule("deny" if deny else "allow", kind, pattern))
    order = {"verdict": rule.verdict, "kind": rule.kind, "pattern": rule.pattern}
    document = post(find_home(home).socket, "/v1/rules", order)
    if as_json:
        print_document(document)
    else:
        added = document["rule"]
        what = f"{added['verdict']} {added['kind']} {added['pattern']}"
        say(f"{added['name']}  {what}, applies {document['applies']}")


@allow.command("list")
@home_option
@json_option
def list_rules(home: Path | None, as_json: bool) -> None:
    """List the rules."""
    document = get(find_home(home).socket, "/v1/rules")
    if as_json:
        print_document(document)
    elif document["items"]:
        keys = ("name", "verdict", "kind", "pattern", "origin")
        print_table(
            ("NAME", "VERDICT", "KIND", "PATTERN", "FROM"),
            [tuple(item[key] for key in keys) for item in document["items"]],
        )
    else:
        note("no rules: all images, renters, regions and networks are let in")


@allow.command()
@click.argument("name")
@home_option
@json_option
def remove(name: str, home: Path | None, as_json: bool) -> None:
    """Remove the rule NAME. Leases that run are not touched."""
    document = post(find_home(home).socket, "/v1/rules/remove", {"name": name})
    if as_json:
        print_document(document)
    else:
        say(f"{name} removed, applies {document['applies']}")


@allow.command()
@click.argument("image", required=False)
@click.option("--renter", help="Its feed or account.")
@click.option("--region", help="ISO 3166 country.")
@click.option("--network", "address", help="The IP address from which it connects.")
@home_option
@json_option
def test(
    image: str | None,
    renter: str | None,
    region: str | None,
    address: str | None,
    home: Path | None,
    as_json: bool,
) -> None:
    """Say whether IMAGE, or a renter, would be let in; exit code 1 if not."""
    order = {"image": image, "renter": renter, "region": region, "address": address}
    if set(order.values()) == {None}:
        raise LocalFault("Nothing is to be tried.", "p2pnode allow test ghcr.io/me/app@sha256:…")
    document = post(find_home(home).socket, "/v1/rules/test", order)
    if as_json:
        print_document(document)
    else:
        say("let in" if document["let_in"] else f"refused: {document['why']}")
    if not document["let_in"]:
        click.get_current_context().exit(EXIT_REFUSED)
