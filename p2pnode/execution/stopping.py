"""Ends runs, with an engine that may be away."""

import logging
from contextlib import suppress
from typing import Final

import trio

from p2pnode.execution.engine import Engine, RunId
from protocol.errors import LocalFault, Unavailable
from protocol.units import MillisSpan

log = logging.getLogger(__name__)

STOP_GRACE_MS: Final = MillisSpan(10_000)
RETRY_ENGINE_S: Final = 1.0


async def give_up(engine: Engine, run: RunId) -> None:
    """End a run that can no longer be watched, if the engine still can; it is not metered."""
    with trio.move_on_after(2 * STOP_GRACE_MS / 1_000), suppress(LocalFault, Unavailable):
        await engine.stop(run, grace_ms=STOP_GRACE_MS)


async def stop_run(engine: Engine, run: RunId, grace_ms: MillisSpan) -> None:
    """End the run, however often the engine must be asked."""
    while True:
        try:
            await engine.stop(run, grace_ms=grace_ms)
        except (LocalFault, Unavailable) as error:
            log.warning("run not stopped", extra={"run": run, "why": str(error)})
            await trio.sleep(RETRY_ENGINE_S)
        else:
            return
