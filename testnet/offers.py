"""Waits until a testnet has told everybody what is offered."""

import time
from pathlib import Path
from typing import Final

from p2pnode.cli.client import get
from protocol.errors import LocalFault
from testnet.state import Running

CONVERGE_S: Final = 60
POLL_S: Final = 0.1


def wait_for_offers(running: Running) -> None:
    """Return when every node holds the offer of every owner.

    Raises LocalFault that names the node that does not, and what it has.
    """
    owners = sum("owner" in node.roles for node in running.nodes)
    deadline = time.monotonic() + CONVERGE_S
    for node in running.nodes:
        while (has := get(Path(node.socket), "/v1/status")["offers"]) != owners:
            if time.monotonic() > deadline:
                raise LocalFault(
                    f"node {node.name} has {has} of {owners} offers after {CONVERGE_S} s",
                    f"cat {node.home}/node.log",
                )
            time.sleep(POLL_S)
