"""Peer ids and peer addresses as people read and type them."""

import base58

from protocol.errors import LocalFault
from protocol.signing import key_of
from protocol.units import PeerId


def peer_text(peer: PeerId) -> str:
    """The peer id in base58 (12D3KooW…), as all of libp2p writes it."""
    return str(base58.b58encode(peer), "ascii")


def peer_of(text: str) -> PeerId:
    """The peer id in a text. Raises LocalFault if it is none."""
    try:
        peer = PeerId(base58.b58decode(text))
    except ValueError:
        peer = PeerId(b"")
    if key_of(peer) is None:
        raise LocalFault(f"{text!r} is no peer id", "a peer id looks like 12D3KooW…")
    return peer


def address_text(peer: PeerId, address: str) -> str:
    """One address with the peer in it: /ip4/…/tcp/…/p2p/12D3KooW…."""
    return f"{address}/p2p/{peer_text(peer)}"


def bootstrap_of(texts: tuple[str, ...]) -> dict[PeerId, tuple[str, ...]]:
    """Peers and their addresses out of full address texts. Raises LocalFault."""
    found: dict[PeerId, tuple[str, ...]] = {}
    for text in texts:
        address, _, peer = text.rpartition("/p2p/")
        if not address.startswith("/"):
            raise LocalFault(
                f"{text!r} is no peer address", "/ip4/192.0.2.7/tcp/4001/p2p/12D3KooW…"
            )
        found[peer_of(peer)] = (*found.get(peer_of(peer), ()), address)
    return found
