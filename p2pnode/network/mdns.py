"""Finds peers of our network on the local one, by multicast DNS; done by zeroconf, in its threads.

What is heard so is hearsay of anybody on the same wire: it names a peer and addresses to try, and
the handshake at such an address proves or disproves that the peer is there.
Follows the mDNS discovery of the libp2p specifications, with one service type for each network.
"""

import ipaddress
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

import trio
from zeroconf import Error, ServiceBrowser, ServiceInfo, ServiceStateChange, Zeroconf

from p2pnode.network.peer_text import address_text, peer_of
from p2pnode.network.transport import Found
from protocol.errors import LocalFault
from protocol.limits import ADDRESSES_MAX
from protocol.units import NetId, PeerId

log = logging.getLogger(__name__)

LOOK_S: Final = 10
"""From one look at our own addresses to the next: cables, Wi-Fi and DHCP change them."""
AGAIN_S: Final = 60
"""After the host has refused us multicast."""
GOODBYE_S: Final = 2
SIGHTINGS_MAX: Final = 64
"""Peers remembered at a time; of more than so many on one wire the newest do."""
STRING_BYTES_MAX: Final = 255
"""Of one string in a TXT record. RFC 6763 6.1."""

_KEY: Final = b"dnsaddr="
_ADDRESS: Final = re.compile(r"/ip[46]/([0-9A-Fa-f.:]{2,45})/tcp/[0-9]{1,5}")


class Mdns:
    """See LocalDiscovery. `name` is random and fresh, so that it tells nobody who we are."""

    def __init__(self, *, net: NetId, peer: PeerId, name: str) -> None:
        self._peer = peer
        self._type = service_type(net)
        self._name = name
        self._sightings: dict[str, tuple[PeerId, tuple[str, ...]]] = {}

    async def run(self, addresses: Callable[[], tuple[str, ...]], found: Found) -> None:
        """See LocalDiscovery. Without an IPv4 address beyond this host nothing is sent."""
        while True:
            ours = tuple(on_the_wire(addresses()))
            wait_s = LOOK_S
            if any(address.startswith("/ip4/") for address in ours):
                try:
                    await self._take_part(ours, addresses, found)
                except (Error, OSError) as error:
                    log.warning("no multicast DNS", extra={"why": repr(error)})
                    wait_s = AGAIN_S
            await trio.sleep(wait_s)

    async def _take_part(
        self, ours: tuple[str, ...], addresses: Callable[[], tuple[str, ...]], found: Found
    ) -> None:
        """Be found, and find, until our addresses change."""
        token = trio.lowlevel.current_trio_token()

        def heard(
            zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange
        ) -> None:
            """In a thread of zeroconf."""
            info = ServiceInfo(service_type, name)
            if state_change is not ServiceStateChange.Removed:
                info.load_from_cache(zeroconf)
            try:
                token.run_sync_soon(self._note, name, info.text, found)
            except trio.RunFinishedError:
                log.debug("heard after the end")

        hosts = [ipaddress.ip_address(host) for host in _hosts(ours)]
        multicast = await trio.to_thread.run_sync(
            partial(Zeroconf, interfaces=[str(host) for host in hosts if host.version == 4])
        )
        try:
            info = ServiceInfo(
                self._type,
                f"{self._name}.{self._type}",
                port=int(ours[0].rpartition("/")[2]),
                server=f"{self._name}.local.",
                addresses=[host.packed for host in hosts],
                properties=txt_of(self._peer, ours),
            )
            # Not probed for: the name is random, and any neighbour could object to it for ever.
            register = partial(multicast.register_service, info, cooperating_responders=True)
            await trio.to_thread.run_sync(register)
            ServiceBrowser(multicast, self._type, handlers=[heard])
            await _until_moved(ours, addresses)
        finally:
            with trio.move_on_after(GOODBYE_S, shield=True):
                await trio.to_thread.run_sync(multicast.close, abandon_on_cancel=True)
            # After its threads, which may have heard something until then.
            self._sightings.clear()
            found({})

    def _note(self, name: str, text: bytes, found: Found) -> None:
        before = dict(self._sightings)
        self._sightings.pop(name, None)
        sighting = peer_in(text)
        if sighting is not None:
            self._sightings[name] = sighting
            while len(self._sightings) > SIGHTINGS_MAX:
                del self._sightings[next(iter(self._sightings))]
        if self._sightings != before:
            found(dict(self._sightings.values()))


async def _until_moved(ours: tuple[str, ...], addresses: Callable[[], tuple[str, ...]]) -> None:
    while True:
        await trio.sleep(LOOK_S)
        if tuple(on_the_wire(addresses())) != ours:
            return


def service_type(net: NetId) -> str:
    """What nodes of this network look for; other networks on the wire never see each other.

    RFC 6763 7.2 gives the name 15 characters.
    """
    return f"_p2p-{net.hex()[:11]}._udp.local."


def on_the_wire(addresses: Iterable[str]) -> Iterator[str]:
    """Those addresses at which a neighbour on the local network can reach us."""
    for address in addresses:
        match = _ADDRESS.fullmatch(address)
        if match is not None and _is_reachable(match[1]):
            yield address


def _is_reachable(host: str) -> bool:
    try:
        at = ipaddress.ip_address(host)
    except ValueError:
        return False
    return not (at.is_loopback or at.is_unspecified or at.is_multicast)


def _hosts(addresses: Iterable[str]) -> tuple[str, ...]:
    """The IP addresses, each once."""
    return tuple(dict.fromkeys(address.split("/")[2] for address in addresses))


def txt_of(peer: PeerId, addresses: Iterable[str]) -> bytes:
    """The TXT record that says where a peer is: one string for each address."""
    strings = [
        _KEY + address_text(peer, address).encode("ascii")
        for address in tuple(addresses)[:ADDRESSES_MAX]
    ]
    assert all(len(string) <= STRING_BYTES_MAX for string in strings), strings
    return b"".join(bytes([len(string)]) + string for string in strings)


def peer_in(txt: bytes) -> tuple[PeerId, tuple[str, ...]] | None:
    """Whom a TXT record names and where; None if that is nobody, or more than one peer.

    Only IP addresses are taken: a stranger's word makes us look up no name.
    """
    found: dict[str, None] = {}
    peers = set()
    for string in _strings(txt):
        if not string.startswith(_KEY):
            continue
        text = string[len(_KEY) :].decode("ascii", errors="replace")
        address, _, peer = text.rpartition("/p2p/")
        peers.add(peer)
        found.update(dict.fromkeys(on_the_wire([address])))
    if len(peers) != 1 or not found:
        return None
    try:
        return peer_of(peers.pop()), tuple(found)[:ADDRESSES_MAX]
    except LocalFault:
        return None


def _strings(txt: bytes) -> Iterator[bytes]:
    """The strings of a TXT record, each behind its length; the last may be cut short."""
    while txt:
        size = txt[0]
        yield txt[1 : size + 1]
        txt = txt[size + 1 :]
