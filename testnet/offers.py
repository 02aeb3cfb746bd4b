"""Waits until a testnet has told everybody what is offered."""

import time
from pathlib import Path
from typing import Final

from p2pnode.cli.client import get
from protocol.errors import LocalFault
from testnet.state import Running, RunningNode

CONVERGE_S: Final = 60
POLL_S: Final = 0.1


def wait_for_offers(running: Running) -> None:
    """Return when every subscriber holds the offer of every owner, and every owner is listed.

    Raises LocalFault that names the node that is not so far, and what it has.
    """
    owners = sum("owner" in node.roles for node in running.nodes)
    deadline = time.monotonic() + CONVERGE_S
    for node in running.nodes:
        while (wants := _missing(node, owners)) is not None:
            if time.monotonic() > deadline:
                raise LocalFault(
                    f"node {node.name} has {wants} after {CONVERGE_S} s",
                    f"cat {node.home}/node.log",
                )
            time.sleep(POLL_S)


def _missing(node: RunningNode, owners: int) -> str | None:
    """What the node still lacks, in words; None if nothing."""
    status = get(Path(node.socket), "/v1/status")
    if not status["is_light"] and status["offers"] != owners:
        return f"{status['offers']} of {owners} offers"
    if "owner" in node.roles and not status["listed"]:
        return "no place in the directory"
    return None
