"""Which images our adverts say that we have: what the engine told a moment ago, as a filter."""

import logging
from collections.abc import Callable
from typing import Final

import trio

from p2pnode.execution.engine import Engine
from protocol.digest_filter import DIGESTS_MAX, filter_of
from protocol.errors import LocalFault, Unavailable

log = logging.getLogger(__name__)

LOOK_S: Final = 60.0
"""An image that somebody has just loaded is told of within a minute."""


class ImageStock:
    """Owns the filter."""

    def __init__(self, engine: Engine, *, changed: Callable[[], None]) -> None:
        self._engine = engine
        self._changed = changed
        self.filter: bytes | None = None
        """None where runs name no image, or before the engine was asked."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Ask the engine now and then, until cancelled; over at once if it has no images."""
        if not await self._look():
            task_status.started()
            return
        task_status.started()
        while True:
            await trio.sleep(LOOK_S)
            await self._look()

    async def _look(self) -> bool:
        """Whether the engine has images at all."""
        try:
            images = await self._engine.images()
        except (LocalFault, Unavailable) as error:
            log.warning("images not known", extra={"why": str(error)})
            return True
        # Who has more than can be told tells nothing, so that nothing is taken to be missing.
        is_told = images is not None and len(images) <= DIGESTS_MAX
        told = filter_of(images) if images is not None and is_told else None
        if told != self.filter:
            self.filter = told
            self._changed()
        return images is not None
