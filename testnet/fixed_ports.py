"""A fixed port for each node of a plan, so that who comes back is found where it was."""

import socket
from typing import Final

from p2pnode.clock import SystemClock
from p2pnode.home import find_home
from p2pnode.identity import load_identity
from p2pnode.membership import genesis_of
from p2pnode.network.peer_text import address_text
from protocol.genesis import net_of
from testnet.plan import NodePlan

HEARTBEAT: Final = "30s"


def configure(plans: tuple[NodePlan, ...], *, bootstrap: tuple[int, ...]) -> None:
    """Writes the config of every home; each begins at the nodes with the indices `bootstrap`."""
    ports = _free_ports(len(plans))
    addresses = [_address(plan, port) for plan, port in zip(plans, ports, strict=True)]
    for plan, port in zip(plans, ports, strict=True):
        others = tuple(addresses[index] for index in bootstrap if index != plan.index)
        text = plan.config_text(bootstrap=others, heartbeat=HEARTBEAT)
        find_home(plan.home).config.write_text(text.replace(_listen(0), _listen(port)))


def _address(plan: NodePlan, port: int) -> str:
    home = find_home(plan.home)
    identity = load_identity(home, net_of(genesis_of(home)), SystemClock().now())
    return address_text(identity.certificate.peer_id, _listen(port))


def _listen(port: int) -> str:
    return f"/ip4/127.0.0.1/tcp/{port}"


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
