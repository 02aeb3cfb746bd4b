"""The port Directory by libp2p's Kademlia protocol, beside the other ports of one host.

The library's KadDHT answers (`kad_server`); the asking is ours, since its look-ups walk the whole
network, answer from a cache, and cannot be cancelled without losing streams.
"""

import logging
from collections.abc import Iterable
from typing import Final, Literal

import trio
from libp2p.kad_dht.kad_dht import DHTMode
from libp2p.kad_dht.pb.kademlia_pb2 import Message
from libp2p.peer.id import ID
from libp2p.peer.peerinfo import PeerInfo
from libp2p.peer.peerstore import PeerStoreError
from multiaddr import Multiaddr

from p2pnode.network.budget import Budget
from p2pnode.network.libp2p_adapter.host import CONNECTIONS_MAX, Host
from p2pnode.network.libp2p_adapter.kad_frames import (
    ADD_PROVIDER,
    ADDRESSES_MAX,
    CLOSER_MAX,
    FIND_NODE,
    GET_PROVIDERS,
    PROVIDERS_MAX,
    Contacts,
    add_peers,
    contacts_of,
    frame_of,
    read_message,
    without_peer,
)
from p2pnode.network.libp2p_adapter.kad_lookup import Lookup
from p2pnode.network.libp2p_adapter.kad_server import KAD, KadServer
from p2pnode.network.libp2p_adapter.lifecycle import close_connection, open_connections
from p2pnode.network.libp2p_adapter.peer_ids import is_peer_id
from p2pnode.network.transport import Streams
from protocol.errors import LocalFault, Unavailable
from protocol.units import PeerId

log = logging.getLogger(__name__)

DirectoryMode = Literal["server", "client"]
"""Servers keep and answer, and must be reachable; clients only ask and announce."""

DIAL_S: Final = 5.0
ASK_S: Final = 5.0
NEAREST: Final = 6
"""How many keep an announcement, and how many are asked: Kademlia's k, which is 20 elsewhere.

Owners announce hourly, so fewer will do, and each costs a connection.
"""
DIALS_AT_ONCE: Final = 2
AGAIN_S: Final = 60
"""A peer that could not be dialled is left alone this long, whoever names it."""
TAKES_PER_S: Final = 0.5
TAKES_BURST: Final = 5
"""Each peer takes 10 announcements of ours in 10 s and refuses the rest; these make 10 together."""
LOOK_S: Final = 1.0
REFRESH_S: Final = 600
REFRESH_SOON_S: Final = 30
REFRESH_SPREAD_S: Final = 256
"""Nodes that start together look for their places one after the other, by their ids."""
REFRESH_DEADLINE_S: Final = 60
IDLE_S: Final = 30
"""A connection that a look-up opened is closed after this, unless the node has come to use it."""
CLOSE_ABOVE: Final = 32
"""With fewer connections there is no need to close any."""
DIAL_BELOW: Final = CONNECTIONS_MAX // 2
"""With more connections than this, look-ups make do with them."""

_OURS: Final = "/p2pnode/"
_MULTIHASH: Final = b"\x12\x20"


class Libp2pDirectory:
    """See Directory. Dials whom it hears of only within a look-up, and only a few."""

    def __init__(
        self, *, host: Host, streams: Streams, mode: DirectoryMode, announced: tuple[str, ...]
    ) -> None:
        self._host = host
        self._streams = streams
        self._is_server = mode == "server"
        self._announced = announced
        self._own = PeerId(host.host.get_id().to_bytes())
        self._kad = KadServer(host.host, DHTMode.SERVER if self._is_server else DHTMode.CLIENT)
        self._dialled: dict[PeerId, float] = {}
        self._failed: dict[PeerId, float] = {}
        self._dialling = trio.CapacityLimiter(DIALS_AT_ONCE)
        self._pace: Budget[PeerId] = Budget(per_s=TAKES_PER_S, burst=TAKES_BURST, keys_max=1_024)

    async def run(self) -> None:
        """Keep the routing table and the connections of the look-ups in order until cancelled."""
        if self._is_server:
            self._streams.serve(KAD, self._kad.answer)
        phase_s = self._own[-1] * REFRESH_SPREAD_S / 256
        refresh_at = trio.current_time() + REFRESH_SOON_S + phase_s
        while True:
            await self._meet_neighbours()
            await self._close_idle()
            if self._is_server and trio.current_time() >= refresh_at:
                refresh_at = trio.current_time() + REFRESH_S
                with trio.move_on_after(REFRESH_DEADLINE_S):
                    await self._look_up(FIND_NODE, self._own, NEAREST)
            await trio.sleep(LOOK_S)

    async def announce(self, key: bytes) -> None:
        """See Directory. May take long, as no peer is told more than it takes."""
        own = self._own_info()
        name = _MULTIHASH + key
        message = Message(type=ADD_PROVIDER, key=name)
        add_peers(message.providerPeers, {self._own: _texts(own.addrs)})
        takers = (await self._look_up(FIND_NODE, name, NEAREST)).answered()
        told: list[PeerId] = []
        async with trio.open_nursery() as nursery:
            for peer, where in takers.items():
                nursery.start_soon(self._tell, {peer: where}, message, told)
        if self._is_server:
            self._kad.provider_store.add_provider(name, own)
        if not told:
            raise Unavailable("no peer took the announcement")

    async def find(self, key: bytes) -> dict[PeerId, tuple[str, ...]]:
        """See Directory. Nothing is cached; what others told us as a server counts as well."""
        name = _MULTIHASH + key
        lookup = await self._look_up(GET_PROVIDERS, name, NEAREST)
        kept = {
            PeerId(info.peer_id.to_bytes()): tuple(str(address) for address in info.addrs)
            for info in self._kad.provider_store.get_providers(name)
        }
        if not kept and not lookup.answered():
            raise Unavailable("no peer of the directory answers")
        found = {**kept, **lookup.providers}
        return {peer: found[peer] for peer in sorted(found) if peer != self._own}

    def _own_info(self) -> PeerInfo:
        addresses = (self._announced or self._streams.addresses())[:ADDRESSES_MAX]
        if not addresses:
            raise Unavailable("we have no address at which we could be found")
        try:
            return PeerInfo(ID(self._own), [Multiaddr(address) for address in addresses])
        except ValueError as error:
            raise LocalFault(
                f"one of {', '.join(addresses)} is no address", "mend network.announce"
            ) from error

    async def _look_up(self, kind: Message.MessageType, name: bytes, width: int) -> Lookup:
        await self._meet_neighbours()
        table = self._kad.routing_table.find_local_closest_peers(name, CLOSER_MAX)
        # Right after a connection nobody has yet said what he speaks.
        known = self._kad.contacts(table)
        if not known:
            known.update(dict.fromkeys(self._neighbours(), ()))
        lookup = Lookup(name, width=width, known=known)
        question = Message(type=kind, key=name)
        while batch := lookup.next_to_ask():
            async with trio.open_nursery() as nursery:
                for peer, addresses in batch.items():
                    nursery.start_soon(self._visit, lookup, {peer: addresses}, question)
        return lookup

    async def _visit(self, lookup: Lookup, contact: Contacts, question: Message) -> None:
        ((peer, addresses),) = contact.items()
        if not self._is_connected(peer):
            is_hopeless = self._failed.get(peer, 0) > trio.current_time() - AGAIN_S
            if is_hopeless or lookup.dials_left <= 0 or self._has_many_connections():
                return
            lookup.dials_left -= 1
        answer = await self._ask(peer, addresses, question)
        if answer is None:
            self._kad.routing_table.remove_peer(ID(peer))
            return
        closer = contacts_of(answer.closerPeers, CLOSER_MAX)
        closer.pop(self._own, None)
        lookup.take(peer, closer, contacts_of(answer.providerPeers, PROVIDERS_MAX))
        await self._remember(peer, addresses)

    async def _tell(self, contact: Contacts, message: Message, told: list[PeerId]) -> None:
        ((peer, addresses),) = contact.items()
        await trio.sleep(self._pace.draw(peer, trio.current_time()))
        if await self._ask(peer, addresses, message) is not None:
            told.append(peer)

    async def _ask(
        self, peer: PeerId, addresses: tuple[str, ...], question: Message
    ) -> Message | None:
        """The answer of one peer, or None; raises nothing."""
        try:
            await self._reach(peer, addresses)
            with trio.fail_after(ASK_S):
                async with await self._streams.open_stream(peer, KAD) as stream:
                    await stream.send_all(frame_of(question))
                    answer = await read_message(stream)
        except (
            Unavailable,
            trio.TooSlowError,
            trio.BrokenResourceError,
            trio.ClosedResourceError,
        ) as error:
            log.debug("directory peer failed", extra={"peer": peer.hex(), "why": str(error)})
            return None
        return answer if answer is not None and answer.type == question.type else None

    async def _reach(self, peer: PeerId, addresses: tuple[str, ...]) -> None:
        async with self._dialling:
            if self._is_connected(peer):
                return
            # Noted before, so that giving up does not make it forgotten.
            self._failed[peer] = trio.current_time()
            with trio.fail_after(DIAL_S):
                await self._streams.connect(peer, addresses)
            self._failed.pop(peer, None)
            self._dialled[peer] = trio.current_time()

    async def _meet_neighbours(self) -> None:
        """Let the servers among those whom we are connected with into the routing table."""
        store = self._host.host.get_peerstore()
        for peer in self._neighbours():
            if not self._kad.routing_table.peer_in_table(ID(peer)):
                try:
                    if KAD in store.get_protocols(ID(peer)):
                        await self._remember(peer, _texts(store.addrs(ID(peer))))
                except PeerStoreError:
                    continue  # it has not said yet who it is
        await trio.lowlevel.checkpoint()

    async def _remember(self, peer: PeerId, addresses: tuple[str, ...]) -> None:
        await trio.lowlevel.checkpoint()
        if addresses:
            info = PeerInfo(ID(peer), [Multiaddr(address) for address in addresses])
            await self._kad.routing_table.add_peer(info, skip_server_mode_check=True)

    async def _close_idle(self) -> None:
        """Close what look-ups opened a while ago and no other part of the node has used."""
        before_s = trio.current_time() - IDLE_S
        for peer in [peer for peer in self._dialled if not self._is_connected(peer)]:
            del self._dialled[peer]
        since_s = trio.current_time() - AGAIN_S
        self._failed = {peer: at_s for peer, at_s in self._failed.items() if at_s > since_s}
        old = [peer for peer, at_s in self._dialled.items() if at_s < before_s]
        if len(self._host.network.connections) <= CLOSE_ABOVE:
            return
        for connection in open_connections(self._host.network):
            protocols = [str(stream.get_protocol()) for stream in connection.get_streams()]
            is_used = any(protocol.startswith(_OURS) for protocol in protocols)
            peer = PeerId(connection.muxed_conn.peer_id.to_bytes())
            if peer in old and not is_used:
                # Forgotten first: whoever dials it from now on wants it.
                self._dialled.pop(peer, None)
                await close_connection(connection)

    def _neighbours(self) -> list[PeerId]:
        # Of the host, as the ports refuse while it goes down, which would end `run` with a fault.
        raw_ids = [peer.to_bytes() for peer in self._host.network.connections]
        return [PeerId(raw) for raw in raw_ids if is_peer_id(raw)]

    def _has_many_connections(self) -> bool:
        return len(self._host.network.connections) >= DIAL_BELOW

    def _is_connected(self, peer: PeerId) -> bool:
        connections = self._host.network.connections.get(ID(peer), ())
        return any(not connection.is_closed for connection in connections)


def _texts(addresses: Iterable[Multiaddr]) -> tuple[str, ...]:
    some = zip(addresses, range(ADDRESSES_MAX), strict=False)
    return tuple(without_peer(str(address)) for address, _ in some)
