"""Founding a network, inviting to it, joining one: what is in a home before a node first runs."""

import secrets
from typing import Final

from p2pnode.clock import SystemClock
from p2pnode.home import Home, make_folders, read_if_there, write_durably
from p2pnode.identity import create_identity
from p2pnode.invite import BOOTSTRAP_MAX, invite_link, read_invite
from protocol.codec import encode
from protocol.errors import LocalFault, PeerFault
from protocol.genesis import Bounds, Genesis, net_of, read_genesis
from protocol.gpu_class import CLASSES, REGION_GROUPS
from protocol.limits import GENESIS_BYTES_MAX
from protocol.rules import RULES_DIGEST

BOOTSTRAP_BYTES_MAX: Final = 65_536
SHARDS_OF_MAIN: Final = 16
"""Provider look-ups of one key are complete to about a hundred providers; 16 shards hold 1,600."""

Document = dict[str, object]


def create_network(home: Home, *, name: str, kind: str, money: str | None) -> Document:
    """Found a network in a home that has none. Raises LocalFault."""
    unit = money or ("USD" if kind == "main" else "TEST")
    bounds = Bounds()
    if kind == "main":
        bounds = Bounds(advert_topics=len(CLASSES) * len(REGION_GROUPS), dht_shards=SHARDS_OF_MAIN)
    raw = encode(
        Genesis(
            name=name,
            kind="main" if kind == "main" else "test",
            nonce=secrets.token_bytes(16),
            bounds=bounds,
            money=unit,
        )
    )
    try:
        genesis = read_genesis(raw)
    except PeerFault as fault:
        raise LocalFault(
            f"no network can be founded like that: {fault.detail}",
            "a name of 1 to 64 ASCII characters, money of 3 or 4 capitals",
        ) from fault
    if read_if_there(home.genesis, size_max=GENESIS_BYTES_MAX) is not None:
        raise LocalFault("this home belongs to a network already", "--home DIR for another one")
    return _enter(home, genesis, raw, ())


def join_network(home: Home, link: str) -> Document:
    """Belong to the network of the link; joining it again renews what we know of its peers.

    Raises LocalFault.
    """
    genesis, raw, bootstrap = read_invite(link)
    if genesis.rules != RULES_DIGEST:
        raise LocalFault(
            "that network follows other rules than this version of p2pnode knows",
            "the version that its founder runs",
        )
    there = read_if_there(home.genesis, size_max=GENESIS_BYTES_MAX)
    if there is not None and there != raw:
        raise LocalFault(
            "this home belongs to another network", "--home DIR to join with another one"
        )
    return _enter(home, genesis, raw, bootstrap)


def show_network(home: Home) -> Document:
    """The network that the home belongs to. Raises LocalFault if there is none."""
    return _document(genesis_of(home), bootstrap_in(home))


def invite_to(home: Home, addresses: tuple[str, ...]) -> str:
    """The link that invites to the home's network, with our addresses first. Raises LocalFault."""
    known = (*addresses, *(text for text in bootstrap_in(home) if text not in addresses))
    return invite_link(encode(genesis_of(home)), known[:BOOTSTRAP_MAX])


def genesis_of(home: Home) -> Genesis:
    """The genesis in the home. Raises LocalFault if there is none, or none that can be read."""
    raw = read_if_there(home.genesis, size_max=GENESIS_BYTES_MAX)
    if raw is None:
        raise LocalFault(
            "this home belongs to no network yet",
            "p2pnode network join LINK, or p2pnode network create NAME --test",
        )
    try:
        return read_genesis(raw)
    except PeerFault as fault:
        raise LocalFault(
            f"{home.genesis} is damaged ({fault.rule})", "p2pnode network join LINK again"
        ) from fault


def bootstrap_in(home: Home) -> tuple[str, ...]:
    """The peers that an invitation named. Raises LocalFault if the file cannot be read."""
    raw = read_if_there(home.bootstrap, size_max=BOOTSTRAP_BYTES_MAX) or b""
    return tuple(raw.decode("ascii", errors="replace").split())


def _enter(home: Home, genesis: Genesis, raw: bytes, bootstrap: tuple[str, ...]) -> Document:
    make_folders(home)
    create_identity(home, net_of(genesis), SystemClock().now(), secrets.token_bytes)
    write_durably(home.bootstrap, "\n".join(bootstrap).encode("ascii"))
    # Last, so that a home with a genesis is whole.
    write_durably(home.genesis, raw)
    return _document(genesis, bootstrap)


def _document(genesis: Genesis, bootstrap: tuple[str, ...]) -> Document:
    return {
        "schema": "p2pnode.network.show/1",
        "id": net_of(genesis).hex(),
        "name": genesis.name,
        "kind": genesis.kind,
        "money": genesis.money,
        "bootstrap": bootstrap,
    }
