"""The network that a paper is checked against: named by hand, or the home's."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from p2pnode.api.ledger_documents import KnownNetworkDocument
from p2pnode.home import Home, read_if_there
from p2pnode.invite import PREFIX, read_invite
from p2pnode.membership import genesis_of
from protocol.errors import LocalFault, PeerFault
from protocol.genesis import Genesis, net_of, read_genesis
from protocol.limits import GENESIS_BYTES_MAX
from protocol.units import NetId

NETWORK_FILE_BYTES_MAX: Final = 2 * GENESIS_BYTES_MAX + 8_192
"""A genesis, or the line of an invitation."""
_ID: Final = re.compile(r"[0-9a-fA-F]{64}")
NAME_NETWORK: Final = "--network ID, a genesis.cbor, or an invitation"
"""What our user may do where a network is wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownNetwork:
    """A network that something is checked against."""

    net: NetId
    genesis: Genesis | None
    """None where only the id is known."""
    by: Literal["option", "home", "receipt"]

    def document(self) -> KnownNetworkDocument:
        """As it is told."""
        return KnownNetworkDocument(
            id=self.net.hex(),
            name=None if self.genesis is None else self.genesis.name,
            kind=None if self.genesis is None else self.genesis.kind,
            known_by=self.by,
        )


def known_network(wanted: str | None, home: Home) -> KnownNetwork | None:
    """The network that `wanted` names, else that of the home; None if the home has none.

    `wanted` is an id, an invitation, or a file that holds a genesis or an invitation. Raises
    LocalFault.
    """
    if wanted is None:
        if read_if_there(home.genesis, size_max=GENESIS_BYTES_MAX) is None:
            return None
        genesis = genesis_of(home)
        return KnownNetwork(net=net_of(genesis), genesis=genesis, by="home")
    if _ID.fullmatch(wanted):
        return KnownNetwork(net=NetId(bytes.fromhex(wanted)), genesis=None, by="option")
    genesis = read_invite(wanted)[0] if wanted.startswith(PREFIX) else _genesis_in(Path(wanted))
    return KnownNetwork(net=net_of(genesis), genesis=genesis, by="option")


def _genesis_in(file: Path) -> Genesis:
    raw = read_if_there(file, size_max=NETWORK_FILE_BYTES_MAX)
    if raw is None:
        raise LocalFault(f"{str(file)!r} is no network's id and no file.", NAME_NETWORK)
    if raw.startswith(PREFIX.encode()):
        return read_invite(raw.decode("ascii", "replace"))[0]
    try:
        return read_genesis(raw)
    except PeerFault as fault:
        raise LocalFault(f"{file} founds no network ({fault.rule}).", NAME_NETWORK) from fault
