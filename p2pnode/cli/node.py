"""`p2pnode up`, `status` and `version`."""

import importlib
import sys
from dataclasses import asdict
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any, Final

import click

from p2pnode.cli.client import get
from p2pnode.cli.output import home_option, json_option, note, print_document, say, short
from p2pnode.home import find_home
from p2pnode.quantities import format_span
from protocol.units import MillisSpan

_CURES: Final = {
    "BIDDER_STALLED": "p2pnode why no-work",
    "GPU_UNHEALTHY": "p2pnode doctor",
    "DEVICE_CLAIMED_TWICE": "p2pnode reputation show FEED",
}
"""What to look at for each alert."""


@click.command()
@home_option
@json_option
def up(home: Path | None, as_json: bool) -> None:
    """Run a node here until Ctrl-C, which withdraws its offers first."""
    node = importlib.import_module("p2pnode.up")

    def on_ready(ready: Any) -> None:
        if as_json:
            print_document({"schema": "p2pnode.up/1", **asdict(ready)})
        else:
            say(f"p2pnode up  peer {short(ready.peer)}  net {ready.network}")
            for address in ready.addresses:
                say(f"  listens  {address}")
            say(f"  socket   {ready.socket}", "stop: Ctrl-C")
        sys.stdout.flush()

    node.run_node(find_home(home), on_ready=on_ready)


@click.command()
@home_option
@json_option
def status(home: Path | None, as_json: bool) -> None:
    """Show the running node and how it fares."""
    document = get(find_home(home).socket, "/v1/status")
    if as_json:
        print_document(document)
        return
    net = document["network"]
    meshes = document["gossip"]["mesh"]
    mesh = "none (light client)" if document["is_light"] else f"{min(meshes.values())} peers"
    lines = {
        "node": f"{document['name']}  {document['peer']}",
        "network": f"{net['name']} ({net['kind']})  {net['id'][:16]}…",
        "roles": ", ".join(document["roles"]),
        "up": format_span(MillisSpan(document["up_ms"] // 1_000 * 1_000)),
        "neighbours": f"{len(document['neighbours'])}, {len(document['nearby'])} in sight of mDNS",
        "gossip mesh": mesh,
        "offers seen": str(document["offers"]),
        "offers": "; ".join(document["offered"]) or "nothing",
        "simulated": ", ".join(document["simulated"]) or "nothing",
        "memory": f"{document['rss_bytes'] // 2**20} MiB at most so far",
        "traffic": f"{document['bytes_per_hour'] / 1_000_000:.1f} MB/h sent and received",
    }
    for name, text in lines.items():
        say(f"{name:<12} {text}")
    for alert in document["alerts"]:
        note(f"{alert}   see: {_CURES[alert.partition(':')[0]]}")
    if document["signing_held"] is not None:
        note(f"nothing is leased or rented now: {document['signing_held']}")
    if not document["neighbours"]:
        note("no neighbours: check [network] bootstrap in config.toml, or join by a fresh link")


@click.command()
@json_option
def version(as_json: bool) -> None:
    """Print the version."""
    if as_json:
        print_document({"schema": "p2pnode.version/1", "client": version_of("p2pnode")})
    else:
        say(version_of("p2pnode"))
