"""Whether the other end of a connection answers; closes it if not. Pings by frames of yamux."""

import logging
from typing import Any, Final

import trio
from libp2p.network.connection.swarm_connection import SwarmConn

log = logging.getLogger(__name__)

SILENCES_MAX: Final = 2
"""Pings in a row that a peer may leave unanswered; one is a busy machine."""

_CLOSE_S: Final = 1.0
_PING: Final = bytes((0, 2, 0, 1)) + bytes(8)
"""Version, type, flags (SYN), stream 0, any number."""


async def check_health(connection: SwarmConn, *, answer_s: float) -> None:
    """Ping once; close the connection if the peer has been silent too often. Raises nothing."""
    facts = vars(connection)
    if await _is_answering(connection.muxed_conn, answer_s):
        facts["p2pnode_silences"] = 0
        return
    facts["p2pnode_silences"] = facts.get("p2pnode_silences", 0) + 1
    if facts["p2pnode_silences"] >= SILENCES_MAX:
        log.info("peer is silent", extra={"peer": str(connection.muxed_conn.peer_id)})
        with trio.move_on_after(_CLOSE_S, shield=True):
            await _close(connection)


async def _is_answering(muxer: Any, answer_s: float) -> bool:  # noqa: ANN401 - the library's
    # The muxer's own measurement of the round trip uses these two, and bears being disturbed.
    answered = muxer._ping_event = trio.Event()  # noqa: SLF001
    muxer._ping_sent_time = trio.current_time()  # noqa: SLF001
    with trio.move_on_after(answer_s):
        try:
            await muxer._write_frame(_PING)  # noqa: SLF001
        except Exception as error:  # noqa: BLE001 - whatever it raises, it cannot be written to
            log.debug("ping failed", extra={"error": repr(error)})
            return False
        await answered.wait()
    return answered.is_set()


async def _close(connection: SwarmConn) -> None:
    await trio.lowlevel.checkpoint()
    try:
        await connection.close()
    except Exception as error:  # noqa: BLE001 - it is being given up already
        log.debug("closing failed", extra={"error": repr(error)})
