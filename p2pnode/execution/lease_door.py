"""The owner's end of a stream about one lease: takes the input, hands out log and output.

SPEC.md section 14.
"""

from collections.abc import Callable
from typing import Final

import trio
from msgspec import UNSET

from p2pnode.execution.course import parcels_of
from p2pnode.execution.shop import Shop
from p2pnode.execution.worker import Worker
from p2pnode.execution.workspace import Parcel
from p2pnode.network.frames import FrameReader, write_frame
from protocol.codec import decode, encode
from protocol.errors import PeerFault
from protocol.lease_stream import Open, Part
from protocol.limits import FRAME_BYTES_MAX, PART_BYTES_MAX
from protocol.tick import Outcome, Saved
from protocol.units import Digest
from protocol.wire import unpack

PROTOCOL: Final = "/p2pnode/lease/1"
OPEN_S: Final = 5
OPEN_BYTES_MAX: Final = 256
LOG_POLL_S: Final = 0.1
"""How late a line of a running job may be on its way."""


async def serve_renter(
    stream: trio.abc.Stream, *, shop: Shop, worker_for: Callable[[Digest], Worker]
) -> None:
    """One stream from its first frame to its end.

    `worker_for` raises PeerFault if the lease is not the renter's. What is refused is answered
    with its rule.
    """
    reader = FrameReader(stream)
    with trio.fail_after(OPEN_S):
        frame = await reader.next(OPEN_BYTES_MAX)
    if frame is None:
        return
    refused: PeerFault | None = None
    try:
        asked = decode(frame, Open, size_max=OPEN_BYTES_MAX)
        worker = worker_for(asked.lease)
        match asked.want:
            case "input" | "resume" as what:
                await _take_parcel((stream, reader), shop, worker, what)
            case "checkpoint":
                await _send_checkpoint(stream, shop, worker, asked.offset)
            case "log":
                await _send_log(stream, shop, worker, asked.offset)
            case "output":
                await _send_output(stream, shop, worker, asked.offset)
    except PeerFault as fault:
        refused = fault
    if refused is not None:
        await _send(stream, Part(offset=0, rule=refused.rule))
        raise refused


async def _send(stream: trio.abc.Stream, part: Part) -> None:
    await write_frame(stream, encode(part))


async def _take_parcel(
    link: tuple[trio.abc.Stream, FrameReader], shop: Shop, worker: Worker, what: Parcel
) -> None:
    """Say what we have, take the rest, say that it is whole; or that the job has ended."""
    stream, reader = link
    named = None if worker.job is None else parcels_of(worker.job)[what]
    if named is None:
        raise PeerFault("input.none", f"the job names no {what}")
    size = named.bytes
    have = await shop.materials.have(worker.run_id, what)
    if worker.ended.is_set():
        await _send_outcome(stream, worker, 0)
        return
    await _send(stream, Part(offset=have))
    while have < size and not worker.ended.is_set():
        frame = await reader.next()
        if frame is None:
            return
        part = decode(frame, Part, size_max=FRAME_BYTES_MAX)
        if part.b is UNSET or part.offset + len(part.b) > size:
            raise PeerFault("input.size", "more than the job names")
        have = await shop.materials.take(worker.run_id, offset=part.offset, piece=part.b, what=what)
    worker.parcel_came()
    await _send(stream, Part(offset=have))


async def _send_checkpoint(
    stream: trio.abc.Stream, shop: Shop, worker: Worker, offset: int
) -> None:
    """What the job saved last, or from the middle on what was sent last; a count if nothing."""
    saved = worker.saves.last if offset else await worker.saves.look()
    if saved is None:
        await _send(stream, Part(offset=0))
        return
    await _send(stream, Part(offset=offset, saved=saved))
    archive = unpack(saved, shop.net, Saved).body.archive
    while offset < archive.bytes:
        piece = await shop.materials.saved(
            worker.run_id,
            archive.digest,
            offset=offset,
            size_max=min(PART_BYTES_MAX, archive.bytes - offset),
        )
        if not piece:
            raise PeerFault("checkpoint.gone")
        await _send(stream, Part(offset=offset, b=piece))
        offset += len(piece)


async def _send_log(stream: trio.abc.Stream, shop: Shop, worker: Worker, offset: int) -> None:
    """The log from `offset` on, live, then the outcome."""
    while True:
        is_over = worker.ended.is_set()
        if worker.was_started:
            part = await shop.engine.read_log(worker.run_id, offset=offset, size_max=PART_BYTES_MAX)
            if part.data:
                await _send(stream, Part(offset=part.offset, b=part.data))
                offset = part.offset + len(part.data)
                continue
        if is_over:
            break
        with trio.move_on_after(LOG_POLL_S):
            await worker.ended.wait()
    await _send_outcome(stream, worker, offset)


async def _send_output(stream: trio.abc.Stream, shop: Shop, worker: Worker, offset: int) -> None:
    """The packed output from `offset` on, once there is one, then the outcome."""
    await worker.ended.wait()
    outcome = unpack(worker.outcome or b"", shop.net, Outcome).body
    size = 0 if outcome.output is UNSET else outcome.output.bytes
    while offset < size:
        piece = await shop.materials.output(
            worker.run_id, offset=offset, size_max=min(PART_BYTES_MAX, size - offset)
        )
        if not piece:
            raise PeerFault("output.gone")
        await _send(stream, Part(offset=offset, b=piece))
        offset += len(piece)
    await _send_outcome(stream, worker, offset)


async def _send_outcome(stream: trio.abc.Stream, worker: Worker, offset: int) -> None:
    raw = worker.outcome
    await _send(stream, Part(offset=offset, outcome=UNSET if raw is None else raw))
