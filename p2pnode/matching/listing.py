"""Keeps us listed in the directory under what we offer. SPEC.md 6.3."""

import logging
import random
from collections.abc import Iterable
from typing import Final

import trio

from p2pnode.network.transport import Directory
from protocol.directory import class_keys, shard_of
from protocol.errors import Unavailable
from protocol.gpu_class import GpuClass, group_of
from protocol.units import Digest, NetId, PublicKey

log = logging.getLogger(__name__)

START_S_MAX: Final = 3.0
"""Nodes that start together announce one after the other: each costs the others connections."""
AGAIN_S: Final = (15.0, 45.0)
"""What was announced while the network was young, or lost, is announced again after these."""
RETRY_S_MIN: Final = 1.0
"""What nobody took, say because nobody was there yet, is announced again soon, then later."""
RETRY_S_MAX: Final = 15.0
"""Half a heartbeat of adverts: by then the other half is left to find who takes it."""
STEADY_S: Final = 3_600.0
ANNOUNCE_S: Final = 60
"""For one key, the pace that its takers set included."""


class Listing:
    """Announces one key for each class on our shelves, again and again, as nothing else lasts."""

    def __init__(
        self,
        *,
        directory: Directory,
        net: NetId,
        feed: PublicKey,
        region: str,
        places: int,
        shards: int,
        rng: random.Random,
    ) -> None:
        self._directory = directory
        self._net = net
        self._places = places
        self._shard = shard_of(feed, shards)
        self._group = group_of(region)
        self._rng = rng
        self._keys: tuple[Digest, ...] = ()
        self._is_news = False
        self._changed = trio.Event()
        self._announced_s = 0.0
        self._was_taken = True
        self.announced = 0
        self.failed = 0

    def stock(self, classes: Iterable[GpuClass]) -> None:
        """Be listed for these from now on; what we no longer have is forgotten within hours.

        Given the classes of all shelves, in any order and as often as they come.
        """
        keys = class_keys(
            self._net,
            sorted(set(classes)),
            (self._group,),
            places=self._places,
            shard=self._shard,
        )
        if keys != self._keys:
            self._keys = keys
            self._is_news = True
            self._changed.set()

    def meet(self, lost_s: float | None) -> None:
        """There is a new neighbour, which was lost at that time if it was one before.

        What nobody took until now, or what it did not hear meanwhile, is announced soon.
        """
        has_missed = lost_s is not None and self._announced_s >= lost_s
        if self._keys and (has_missed or not self._was_taken):
            self._changed.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Announce until cancelled."""
        task_status.started()
        waits_s = [self._rng.uniform(0, START_S_MAX), *AGAIN_S]
        retry_s = RETRY_S_MIN
        while True:
            wait_s = waits_s.pop(0) if waits_s else STEADY_S * self._rng.uniform(0.9, 1.1)
            with trio.move_on_after(wait_s):
                await self._changed.wait()
                self._changed = trio.Event()
                if self._is_news:
                    waits_s = list(AGAIN_S)
                else:
                    retry_s = RETRY_S_MIN
                    await trio.sleep(self._rng.uniform(0, START_S_MAX))
            self._is_news = False
            self._announced_s = trio.current_time()
            self._was_taken = await self._announce_all()
            if self._was_taken:
                retry_s = RETRY_S_MIN
            else:
                waits_s.insert(0, retry_s)
                retry_s = min(retry_s * 2, RETRY_S_MAX)

    async def _announce_all(self) -> bool:
        """Whether somebody took each of the keys."""
        failed = self.failed
        for key in self._keys:
            try:
                with trio.fail_after(ANNOUNCE_S):
                    await self._directory.announce(key)
                self.announced += 1
            except (Unavailable, trio.TooSlowError) as error:
                self.failed += 1
                log.info("announcing failed", extra={"why": str(error)})
        return failed == self.failed
