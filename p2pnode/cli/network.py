"""`p2pnode network`: found a network, invite to it, join one."""

import importlib
from pathlib import Path
from typing import Any

import click

from p2pnode.cli.client import get
from p2pnode.cli.output import home_option, json_option, note, print_document, say
from p2pnode.home import find_home
from protocol.errors import Unavailable


def _found() -> Any:
    """The module that founds and joins; it loads cryptography, so only when it is needed."""
    return importlib.import_module("p2pnode.membership")


@click.group()
def network() -> None:
    """Found a network, invite to it, join one."""


@network.command()
@click.argument("name")
@click.option("--test", "kind", flag_value="test", help="Allows simulated GPUs; worthless money.")
@click.option("--main", "kind", flag_value="main", default="main", help="Real GPUs only. Default.")
@click.option("--money", help="Unit of money, ISO 4217 (default: USD, in test networks TEST).")
@home_option
@json_option
def create(
    name: str,
    kind: str,
    money: str | None,
    home: Path | None,
    as_json: bool,
) -> None:
    """Found a network called NAME and belong to it."""
    _print(_found().create_network(find_home(home), name=name, kind=kind, money=money), as_json)


@network.command()
@click.argument("link")
@home_option
@json_option
def join(link: str, home: Path | None, as_json: bool) -> None:
    """Join the network that LINK invites to."""
    _print(_found().join_network(find_home(home), link), as_json)


@network.command()
@home_option
@json_option
def show(home: Path | None, as_json: bool) -> None:
    """Show the network that this home belongs to."""
    _print(_found().show_network(find_home(home)), as_json)


@network.command()
@home_option
@json_option
def invite(home: Path | None, as_json: bool) -> None:
    """Print one line with which a fresh home joins; best while the node is up."""
    where = find_home(home)
    try:
        addresses = tuple(get(where.socket, "/v1/status")["addresses"])
    except Unavailable:
        addresses = ()
        note("the node is not up, so the link holds no address of it, only its bootstrap peers")
    link = _found().invite_to(where, addresses)
    if as_json:
        print_document({"schema": "p2pnode.network.invite/1", "link": link})
    else:
        say(link)


def _print(document: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_document(document)
        return
    say(f"network  {document['name']} ({document['kind']}), money {document['money']}")
    say(f"id       {document['id']}")
    for address in document["bootstrap"]:
        say(f"knows    {address}")
