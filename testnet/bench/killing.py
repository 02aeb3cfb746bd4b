"""Two real nodes, one of which stays while the other catches up with it and may be killed."""

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from p2pnode.cli.client import get
from protocol.errors import LocalFault, Unavailable
from testnet.plan import NodePlan
from testnet.processes import fork_node, run_plan, wait_ready
from testnet.real_time import now_s, sleep

POLL_S: Final = 0.05
STOP_S: Final = 10
SETTLE_S: Final = 3.0
"""What moves this long after both are equal still counts: the end of a session, for example."""

Heads = dict[str, int]
"""Feed -> entries shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """What one catch-up took, from the start of who was behind."""

    moved: int
    """Bytes, both ways."""
    received_s: float
    """Until as many bytes had moved as all entries have."""
    cpu_s: float
    """Processor seconds of who was behind, since its last start."""
    judged_s: float
    """Until both ledgers had the same root."""
    kills: int
    """While entries were coming."""
    lost: int
    """Entries that were shown before a kill and were not there after it."""


class Pair:
    """The node that stays, and whoever is with it. Leaves no process behind."""

    def __init__(self, stays: NodePlan, say: Callable[[str], None]) -> None:
        self._stays = stays
        self._say = say
        self._pids: dict[str, int] = {}
        """By the names of the nodes."""
        self._sockets: dict[str, Path] = {}

    def __enter__(self) -> Self:
        self._start(self._stays)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name in list(self._pids):
            self._end(name, signal.SIGTERM)

    def catch_up(
        self, behind: NodePlan, size: int, kill_at: tuple[int, ...], *, give_up_s: float
    ) -> Timed:
        """Start the node `behind`, which gets `size` bytes of entries, and wait until both agree.

        It is killed, and started again, whenever one of `kill_at` bytes have moved.
        Raises LocalFault if they do not agree in time.
        """
        began, before = now_s(), self._moved()
        self._start(behind)
        received_s, kills, lost = 0.0, 0, 0
        shown: Heads = {}
        left = list(kill_at)
        while True:
            took_s, moved = now_s() - began, self._moved() - before
            if moved >= size and not received_s:
                received_s = took_s
            if left and moved >= left[0]:
                left.pop(0)
                shown = self._heads(behind)
                self._end(behind.name, signal.SIGKILL)
                self._start(behind)
                kills += not received_s
                now = self._heads(behind)
                lost += sum(max(0, count - now.get(feed, 0)) for feed, count in shown.items())
                self._say(f"killed after {moved} bytes with {sum(shown.values())} entries judged")
            elif self._is_agreed(behind):
                break
            if took_s > give_up_s:
                raise LocalFault(f"not equal after {give_up_s} s", f"cat {behind.home}/node.log")
            sleep(POLL_S)
        sleep(SETTLE_S)
        return Timed(
            moved=self._moved() - before,
            received_s=received_s,
            cpu_s=_cpu_s(self._pids[behind.name]),
            judged_s=took_s,
            kills=kills,
            lost=lost,
        )

    def idle(self, seconds: float) -> float:
        """Bytes that the pair moves in a second when neither has anything to tell."""
        before = self._moved()
        sleep(seconds)
        return (self._moved() - before) / seconds

    def stop(self, node: NodePlan) -> None:
        """End it in order."""
        self._end(node.name, signal.SIGTERM)

    def _start(self, plan: NodePlan) -> None:
        pid, pipe = fork_node(plan, run_plan)
        self._pids[plan.name] = pid
        self._sockets[plan.name] = Path(wait_ready(plan, pid, pipe).socket)

    def _end(self, name: str, how: signal.Signals) -> None:
        """Send the signal, and the last one if that did not help in time."""
        pid = self._pids.pop(name)
        os.kill(pid, how)
        deadline = now_s() + STOP_S
        while not os.waitpid(pid, os.WNOHANG)[0]:
            if now_s() > deadline:
                os.kill(pid, signal.SIGKILL)
            sleep(POLL_S)

    def _moved(self) -> int:
        return int(get(self._sockets[self._stays.name], "/v1/status")["bytes_moved"])

    def _heads(self, plan: NodePlan) -> Heads:
        return {head["feed"]: head["seq"] + 1 for head in self._ledger(plan)["heads"]}

    def _is_agreed(self, behind: NodePlan) -> bool:
        with suppress(Unavailable):
            here, there = self._ledger(behind), self._ledger(self._stays)
            return bool(here["root"] == there["root"])
        return False

    def _ledger(self, plan: NodePlan) -> dict[str, Any]:
        document: dict[str, Any] = get(self._sockets[plan.name], "/v1/ledger")
        return document


def _cpu_s(pid: int) -> float:
    """Of a process that runs."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
