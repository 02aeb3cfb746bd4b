"""Ports around ports: they count steps for a fuse, and do nothing once their node is dead."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Final

import trio

from ledger.entry import Draft
from ledger.guard import Guard
from ledger.store import Batch, Store
from p2pnode.cabinet import Cabinet
from p2pnode.network.transport import Judge, StreamHandler, Transport, Verdict
from protocol.units import PeerId
from testnet.world_fuse import Life


@dataclass(frozen=True, slots=True, kw_only=True)
class Road:
    """What happens to a frame on its way."""

    witness: Callable[[bytes], None]
    """witness(frame): the node has said this; it is about to leave."""
    travel: Callable[[trio.abc.Stream], Awaitable[None]]
    """travel(stream): return when the frame may enter the stream; the stream may break first."""


class FusedStore:
    """See Store."""

    def __init__(self, store: Store, life: Life) -> None:
        self._store = store
        self._life = life

    def get(self, key: bytes) -> bytes | None:
        self._life.look()
        return self._store.get(key)

    def range(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        self._life.look()
        return self._store.range(start, stop)

    def write(self, batch: Batch, *, sync: bool) -> None:
        self._life.begin("write")
        self._store.write(batch, sync=sync)
        self._life.finish("write")

    def close(self) -> None:
        self._store.close()


class FusedGuard:
    """See Guard."""

    def __init__(self, guard: Guard, life: Life) -> None:
        self._guard = guard
        self._life = life

    def reserved(self) -> Draft | None:
        self._life.look()
        return self._guard.reserved()

    def reserve(self, draft: Draft) -> None:
        self._life.begin("write")
        self._guard.reserve(draft)
        self._life.finish("write")


class FusedCabinet:
    """See Cabinet."""

    def __init__(self, cabinet: Cabinet, life: Life) -> None:
        self._cabinet = cabinet
        self._life = life

    def put(self, name: str, record: bytes) -> None:
        self._life.begin("write")
        self._cabinet.put(name, record)
        self._life.finish("write")

    def get(self, name: str) -> bytes | None:
        self._life.look()
        return self._cabinet.get(name)

    def names(self, folder: str) -> list[str]:
        self._life.look()
        return self._cabinet.names(folder)

    def remove(self, name: str) -> None:
        self._life.look()
        self._cabinet.remove(name)


class FusedStream(trio.abc.Stream):
    """See trio.abc.Stream. One `send_all` is one frame, as `write_frame` sends it."""

    def __init__(self, stream: trio.abc.Stream, life: Life, road: Road) -> None:
        self._stream = stream
        self._life = life
        self._road = road

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self._life.look()
        self._road.witness(bytes(data))
        await self._road.travel(self._stream)
        self._life.begin("frame")
        await self._stream.send_all(data)
        self._life.finish("frame")

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        self._life.look()
        data = await self._stream.receive_some(max_bytes)
        self._life.look()
        return data

    async def aclose(self) -> None:
        await self._stream.aclose()


class FusedTransport:
    """See Transport."""

    def __init__(self, transport: Transport, life: Life, road: Road) -> None:
        self._transport: Final = transport
        self._life = life
        self._road = road

    @property
    def peer_id(self) -> PeerId:
        return self._transport.peer_id

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        self._life.look()
        await self._transport.run(task_status=task_status)

    async def subscribe(self, topic: str, judge: Judge) -> None:
        def judge_alive(forwarder: PeerId, publisher: PeerId, payload: bytes) -> Verdict:
            if self._life.is_over:
                return Verdict.IGNORE
            return judge(forwarder, publisher, payload)

        await self._transport.subscribe(topic, judge_alive)

    async def publish(self, topic: str, payload: bytes) -> None:
        self._life.begin("frame")
        await self._transport.publish(topic, payload)
        self._life.finish("frame")

    def mesh(self, topic: str) -> tuple[PeerId, ...]:
        self._life.look()
        return self._transport.mesh(topic)

    async def connect(self, peer: PeerId, addresses: tuple[str, ...]) -> None:
        self._life.look()
        await self._transport.connect(peer, addresses)

    async def open_stream(self, peer: PeerId, protocol: str) -> trio.abc.Stream:
        self._life.look()
        return self._fused(await self._transport.open_stream(peer, protocol))

    def serve(self, protocol: str, handler: StreamHandler) -> None:
        async def handle(peer: PeerId, stream: trio.abc.Stream) -> None:
            self._life.look()
            await handler(peer, self._fused(stream))

        self._transport.serve(protocol, handle)

    def neighbours(self) -> tuple[PeerId, ...]:
        self._life.look()
        return self._transport.neighbours()

    def addresses(self) -> tuple[str, ...]:
        self._life.look()
        return self._transport.addresses()

    def _fused(self, stream: trio.abc.Stream) -> trio.abc.Stream:
        return FusedStream(stream, self._life, self._road)
