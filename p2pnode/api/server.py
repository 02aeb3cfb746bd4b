"""Serves the API on a unix socket, which only its owner may open."""

from pathlib import Path

import trio
from hypercorn.config import Config as ServerConfig
from hypercorn.trio import serve
from litestar import Litestar

GRACE_S = 1


async def serve_api(
    app: Litestar, socket: Path, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Answer on `socket` until cancelled; the caller holds the node's lock.

    Hypercorn would take a socket from a running node without a word, hence the lock.
    """
    config = ServerConfig()
    config.bind = [f"unix:{socket}"]
    config.umask = 0o077
    config.graceful_timeout = GRACE_S
    config.accesslog = None
    config.errorlog = None
    _remove(socket)
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(_serve, app, config)
            task_status.started()
    finally:
        _remove(socket)


def _remove(socket: Path) -> None:
    """One system call, fit for a scope that is being cancelled."""
    socket.unlink(missing_ok=True)


async def _serve(
    app: Litestar,
    config: ServerConfig,
    *,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    # Without a trigger Hypercorn would install signal handlers of its own.
    await serve(
        app,  # type: ignore[arg-type]
        config,
        shutdown_trigger=trio.sleep_forever,
        task_status=task_status,
    )
