"""A real node as a process that kills itself at one durable write or sent frame."""

import os
import signal
from collections.abc import Callable
from dataclasses import replace

import trio

from p2pnode.home import find_home
from p2pnode.ports import Ports
from p2pnode.real_node import Disk
from p2pnode.up import Ready, run_node
from testnet.plan import NodePlan
from testnet.processes import RunPlan
from testnet.world_fuse import Fuse, Life, Point
from testnet.world_ports import FusedCabinet, FusedGuard, FusedStore, FusedTransport, Road


def run_until(point: Point | None) -> RunPlan:
    """How to run a node that dies there; without a point it lives."""

    def run(plan: NodePlan, on_ready: Callable[[Ready], None]) -> None:
        fuse = Fuse(point)
        life = Life(fuse, on_death=_die)
        road = Road(witness=lambda _frame: None, travel=_travel)

        def wrap(ports: Ports) -> Ports:
            return replace(
                ports,
                transport=FusedTransport(ports.transport, life, road),
                cabinet=FusedCabinet(ports.cabinet, life),
            )

        run_node(
            find_home(plan.home),
            on_ready=on_ready,
            wrap=wrap,
            disk=Disk(
                store=lambda store: FusedStore(store, life),
                guard=lambda guard: FusedGuard(guard, life),
            ),
        )

    return run


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def _travel(_stream: trio.abc.Stream) -> None:
    await trio.lowlevel.checkpoint()
