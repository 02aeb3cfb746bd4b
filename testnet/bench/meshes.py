"""Watches the gossip meshes of running nodes; changes nothing."""

from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

from p2pnode.cli.client import get
from testnet.state import Running, RunningNode

LOOK_EVERY_S: Final = 2.0
"""Each look costs every node a few milliseconds, which the gossip then waits for."""


class MeshWatch:
    """What the nodes said of their meshes, and for how long one had none."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._empty_since: dict[int, float] = {}
        self.longest_s = 0.0
        """The longest time for which a node was seen without a mesh."""
        self.smallest = 0
        """The smallest mesh at the last look."""
        self.without_mesh = 0
        """Nodes without a mesh at the last look."""
        self.found_by_sync = 0
        """Adverts that gossip had not brought, over all nodes."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look now and then, until cancelled."""
        task_status.started()
        while True:
            await self.look()
            await trio.sleep(LOOK_EVERY_S)

    async def look(self) -> None:
        """Ask every node once."""
        sizes = []
        found = 0
        for node in self._running.nodes:
            status = await _status(node)
            size = min(status["gossip"]["mesh"].values())
            self._note(node.index, is_empty=size == 0)
            sizes.append(size)
            found += status["offers_found_by_sync"]
        self.smallest = min(sizes)
        self.without_mesh = sizes.count(0)
        self.found_by_sync = found

    def _note(self, index: int, *, is_empty: bool) -> None:
        now_s = trio.current_time()
        if not is_empty:
            since_s = self._empty_since.pop(index, None)
        else:
            since_s = self._empty_since.setdefault(index, now_s)
        if since_s is not None:
            self.longest_s = max(self.longest_s, now_s - since_s)


async def _status(node: RunningNode) -> dict[str, Any]:
    document: dict[str, Any] = await trio.to_thread.run_sync(
        partial(get, Path(node.socket), "/v1/status")
    )
    return document
