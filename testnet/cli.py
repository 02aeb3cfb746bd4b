"""`p2pnode testnet …` and `p2pnode demo`."""

import importlib
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from p2pnode.cli.client import get
from p2pnode.cli.output import json_option, note, print_document, print_table, short
from p2pnode.quantities import format_money
from protocol.errors import LocalFault, Unavailable
from protocol.units import Micros
from testnet.bench.cli import bench
from testnet.double_lease_cli import double_lease
from testnet.ledger_crash_cli import ledger_crash
from testnet.offers import wait_for_offers
from testnet.plan import plan_network
from testnet.replicas_cli import replicas
from testnet.state import Running, load, must_load, remove, save, state_folder, stop
from testnet.world_cli import crash, world

EXIT_FAILED: Final = 1


def _place(command: Any) -> Any:
    """Options that say which testnet is meant."""
    command = click.option("--name", default="tn", show_default=True, help="Name of the testnet.")(
        command
    )
    return click.option(
        "--state",
        type=click.Path(path_type=Path, file_okay=False),
        help="Folder of the testnet (default: by name, in the user's state directory).",
    )(command)


@click.group()
def testnet() -> None:
    """A network of real nodes on this machine, to play with."""


@click.command()
@click.option(
    "--engine",
    type=click.Choice(["process", "docker"]),
    default="process",
    show_default=True,
    help="What runs the jobs.",
)
@click.option(
    "--docker-socket",
    default="/var/run/docker.sock",
    show_default=True,
    help="Socket of the container engine.",
)
@json_option
def demo(engine: str, docker_socket: str, as_json: bool) -> None:
    """Run a whole network on this machine, once: offline, in a directory deleted after."""
    run_demo = importlib.import_module("testnet.demo").run_demo
    document = run_demo(note if as_json else click.echo, engine=engine, docker_socket=docker_socket)
    if as_json:
        print_document(document)
    else:
        click.echo(f"engine: {document['enforced']}")
        click.echo(f"simulated: every GPU ({document['gpu']}); network: {document['network']}")
        click.echo("next:  p2pnode testnet up      nodes to play with")
    click.get_current_context().exit(0 if document["ok"] else EXIT_FAILED)


@testnet.command()
@click.option("--nodes", default=6, show_default=True, help="How many processes, at most 24.")
@click.option("--renters", default=1, show_default=True, help="How many of them only rent.")
@click.option("--heartbeat", default="30s", show_default=True, help="Between adverts of an owner.")
@_place
@json_option
def up(
    nodes: int,
    renters: int,
    heartbeat: str,
    name: str,
    state: Path | None,
    as_json: bool,
) -> None:
    """Start real nodes; ready when every one of them holds every offer."""
    folder = state_folder(name, state)
    if load(folder) is not None:
        raise LocalFault(f"the testnet {name} is up already", f"p2pnode testnet down --name {name}")
    plans = plan_network(folder, nodes=nodes, renters=renters)
    remove(folder)
    folder.mkdir(mode=0o700, parents=True)
    began = time.monotonic()
    running = importlib.import_module("testnet.processes").start(
        plans, folder, name=name, heartbeat=heartbeat
    )
    try:
        wait_for_offers(running)
    except BaseException:
        stop(running)
        raise
    save(folder, running)
    if as_json:
        print_document(_document(running))
        return
    took_s = time.monotonic() - began
    click.echo(f"net {name}  {nodes} nodes in {nodes} processes  {took_s:.1f} s  state {folder}")
    click.echo("simulated: every GPU; the money is TEST and worth nothing")
    _print_nodes(_document(running))
    click.echo(f"join: p2pnode network join {running.invite}")
    click.echo(f"down: p2pnode testnet down --name {name}")


@testnet.command()
@_place
@json_option
def status(name: str, state: Path | None, as_json: bool) -> None:
    """Show the nodes and what each of them sees."""
    document = _document(must_load(state_folder(name, state)))
    if as_json:
        print_document(document)
    else:
        _print_nodes(document)


@testnet.command()
@_place
@json_option
def down(name: str, state: Path | None, as_json: bool) -> None:
    """Stop every node and delete the state folder."""
    folder = state_folder(name, state)
    running = must_load(folder)
    stop(running)
    remove(folder)
    if as_json:
        print_document({"schema": "p2pnode.testnet.down/1", "stopped": len(running.nodes)})
    else:
        click.echo(f"stopped {len(running.nodes)} nodes, deleted {folder}")


testnet.add_command(bench)
testnet.add_command(world)
testnet.add_command(crash)
testnet.add_command(ledger_crash)
testnet.add_command(replicas)
testnet.add_command(double_lease)


def _document(running: Running) -> dict[str, Any]:
    return {
        **asdict(running),
        "nodes": [{**asdict(node), "status": _status_of(node.socket)} for node in running.nodes],
    }


def _status_of(socket: str) -> dict[str, Any] | None:
    try:
        document: dict[str, Any] = get(Path(socket), "/v1/status")
    except Unavailable:
        return None
    return document


def _print_nodes(document: dict[str, Any]) -> None:
    print_table(
        ("#", "NAME", "PEER", "ROLE", "OFFERS", "ASK/GPU-H", "SEES", "MESH", "SOCKET"),
        [_row(node) for node in document["nodes"]],
    )


def _row(node: dict[str, Any]) -> tuple[str, ...]:
    told = node["status"]
    role = "owner" if "owner" in node["roles"] else "renter"
    if told is None:
        return (
            str(node["index"]), node["name"], short(node["peer"]), role, "not reachable", "", "",
            "", node["socket"],
        )  # fmt: skip
    ask = told["ask_micro_per_gpu_hour"]
    meshes = told["gossip"]["mesh"].values()
    return (
        str(node["index"]),
        node["name"],
        short(node["peer"]),
        role,
        "; ".join(text.partition(" at ")[0] for text in told["offered"]) or "-",
        "-" if ask is None else format_money(Micros(ask), told["network"]["money"]),
        str(told["offers"]),
        str(min(meshes)) if meshes else "-",
        node["socket"],
    )
