"""The process of the attackers: does what it is told over a socket, one attack at a time."""

import ctypes
import json
import logging
import os
import random
import signal
import socket
import traceback
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import trio

from testnet.bench.gossip_attacks import ATTACKS as GOSSIP_ATTACKS
from testnet.bench.hostile import Attack, Target
from testnet.bench.stream_attacks import ATTACKS as STREAM_ATTACKS
from testnet.bench.tcp_attacks import ATTACKS as TCP_ATTACKS

ATTACKS: Final[dict[str, Attack]] = {
    attack.__name__: attack for attack in (*TCP_ATTACKS, *STREAM_ATTACKS, *GOSSIP_ATTACKS)
}
NICE: Final = 19
"""An attacker is elsewhere: it takes the victim's time through the network, not by its machine."""
_PR_SET_PDEATHSIG: Final = 1


class Attackers:
    """The other end of the process."""

    def __init__(self, pid: int, line: trio.SocketStream) -> None:
        self.pid = pid
        self._line = line

    async def attack(self, name: str, *, seconds: float, seed: int) -> dict[str, int]:
        """Have it done; how much was sent and refused. The deadline is the caller's.

        Raises trio.BrokenResourceError if the process has died.
        """
        order = {"name": name, "seconds": seconds, "seed": seed}
        await self._line.send_all(json.dumps(order).encode() + b"\n")
        told = b""
        while not told.endswith(b"\n"):
            piece = await self._line.receive_some()
            if not piece:
                raise trio.BrokenResourceError("the attackers have died")
            told += piece
        counts: dict[str, int] = json.loads(told)
        return counts


def fork_attackers(target: Target, log: Path) -> tuple[int, socket.socket]:
    """Their pid, and the socket to give `Attackers`; to be called before trio runs."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid:
        theirs.close()
        return pid, ours
    ours.close()
    try:
        os._exit(_live(target, theirs, log))
    finally:
        # A forked copy of the caller must not unwind into the caller's code.
        traceback.print_exc()
        os._exit(1)


def end_attackers(pid: int) -> None:
    """Kill the process and wait until it is gone."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _live(target: Target, line: socket.socket, log: Path) -> int:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    _step_back()
    logging.getLogger().setLevel(logging.CRITICAL)
    logging.getLogger("libp2p").setLevel(logging.CRITICAL)
    logging.getLogger("p2pnode").setLevel(logging.CRITICAL)
    with line, line.makefile("rw") as orders:
        for order in iter(orders.readline, ""):
            counts = _obey(target, json.loads(order))
            orders.write(json.dumps(counts) + "\n")
            orders.flush()
    return 0


def _step_back() -> None:
    """Leave the machine to the others, also where Linux shares it out among sessions first."""
    os.setsid()
    os.nice(NICE)
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(NICE))


def _obey(target: Target, order: dict[str, object]) -> dict[str, int]:
    fresh = replace(target, sent=0, refused=0)
    seconds, seed = order["seconds"], order["seed"]
    assert isinstance(seconds, float)
    rng = random.Random(f"{order['name']} {seed}")  # noqa: S311 - noise and names, no secret
    attack = ATTACKS[str(order["name"])]
    trio.run(partial(_for_a_while, attack, fresh, rng, seconds=seconds))
    return {"sent": fresh.sent, "refused": fresh.refused}


async def _for_a_while(
    attack: Attack, target: Target, rng: random.Random, *, seconds: float
) -> None:
    with trio.move_on_after(seconds):
        await attack(target, rng)
