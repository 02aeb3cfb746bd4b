"""Answers the directory's questions with the library's KadDHT, which sees no stream of a peer.

The library reads up to 4 MiB from each of 12 streams without a deadline, so twelve silent peers
make it deaf to all others. Here each question is read, cut down and counted first.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Final

import trio
from libp2p.abc import IHost
from libp2p.kad_dht.common import PROTOCOL_ID
from libp2p.kad_dht.kad_dht import DHTMode, KadDHT
from libp2p.kad_dht.pb.kademlia_pb2 import Message
from libp2p.network.stream.net_stream import NetStream
from libp2p.peer.id import ID

from p2pnode.network.budget import Budget
from p2pnode.network.libp2p_adapter.kad_frames import (
    Contacts,
    add_peers,
    frame_of,
    parse,
    question_of,
    read_message,
)
from p2pnode.network.libp2p_adapter.provider_records import ProviderRecords
from protocol.errors import Unavailable
from protocol.units import PeerId

KAD: Final = str(PROTOCOL_ID)

STREAM_S: Final = 10
"""Peers open a stream for each question; one that stays longer is cut."""
STREAMS_MAX: Final = 128
STREAMS_PER_PEER_MAX: Final = 16
QUESTIONS_PER_S: Final = 20
QUESTIONS_BURST: Final = 200
"""For each peer; beyond it the answers come late. One answer costs us about a millisecond."""
PEERS_MAX: Final = 4_096


class KadServer(KadDHT):
    """The library's routing table, and its answers; its own tasks are not run.

    They would dial whomever they hear of, and announce all keys at once.
    """

    def __init__(self, host: IHost, mode: DHTMode) -> None:
        super().__init__(host, mode, strict_validation=True)
        self.provider_store = ProviderRecords(host.get_id())
        self._answering: dict[PeerId, int] = {}
        self._budget: Budget[PeerId] = Budget(
            per_s=QUESTIONS_PER_S, burst=QUESTIONS_BURST, keys_max=PEERS_MAX
        )

    async def answer(self, peer: PeerId, stream: trio.abc.Stream) -> None:
        """See StreamHandler. Raises what ends a stream: Unavailable, trio.TooSlowError, …."""
        there = self._answering.get(peer, 0)
        if there >= STREAMS_PER_PEER_MAX or sum(self._answering.values()) >= STREAMS_MAX:
            raise Unavailable("too many questions at once")
        self._answering[peer] = there + 1
        try:
            with trio.fail_after(STREAM_S):
                while (message := await read_message(stream)) is not None:
                    await trio.sleep(self._budget.draw(peer, trio.current_time()))
                    await stream.send_all(frame_of(await self._reply(peer, message)))
        finally:
            self._answering[peer] -= 1
            if not self._answering[peer]:
                del self._answering[peer]

    async def handle_stream(self, stream: NetStream) -> None:
        """Refuse what comes before `answer` is in place."""
        await stream.reset()

    async def add_peer(self, _peer: ID, **_options: object) -> bool:
        """Let nobody into the table for asking, since light clients ask and do not answer."""
        await trio.lowlevel.checkpoint()
        return False

    def contacts(self, peers: Sequence[ID]) -> Contacts:
        """The peers of the table among these, and where they are."""
        infos = [self.routing_table.get_peer_info(peer) for peer in peers]
        return {
            PeerId(info.peer_id.to_bytes()): tuple(str(address) for address in info.addrs)
            for info in infos
            if info is not None
        }

    async def _reply(self, peer: PeerId, message: Message) -> Message:
        exchange = _Exchange(peer, frame_of(question_of(message)))
        await self._do_handle_stream(exchange)
        # The library resets a stream whose question it refuses.
        if exchange.is_refused:
            raise Unavailable("refused by the directory")
        reply = parse(exchange.answer)
        # Signed records of others may be of any size, and nobody here reads them.
        reply.ClearField("senderRecord")
        for other in reply.providerPeers:
            other.ClearField("signedRecord")
        return reply

    def _add_closer_peers_to_response(
        self, response: Message, closest_peers: Sequence[ID], exclude_peer_id: ID | None = None
    ) -> None:
        # The library takes the addresses from the peer store, where they expire and anybody's
        # identify message puts as many as it likes.
        others = [peer for peer in closest_peers if peer != exclude_peer_id]
        add_peers(response.closerPeers, self.contacts(others))


class _Exchange:
    """Looks like a stream on which a peer asks one question and then ends."""

    metric_send_channel = None

    def __init__(self, peer: PeerId, question: bytes) -> None:
        self.muxed_conn = SimpleNamespace(peer_id=ID(peer))
        self._question = question
        self._written: list[bytes] = []
        self.is_refused = False

    @property
    def answer(self) -> bytes:
        # The library writes the length first, by itself.
        return b"".join(self._written[1:])

    async def read(self, size: int) -> bytes:
        await trio.lowlevel.checkpoint()
        part, self._question = self._question[:size], self._question[size:]
        return part

    async def write(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self._written.append(data)

    async def reset(self) -> None:
        await trio.lowlevel.checkpoint()
        self.is_refused = True

    async def close(self) -> None:
        await trio.lowlevel.checkpoint()
