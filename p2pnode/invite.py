"""The one line by which a friend joins: the network's genesis and where to find first peers.

It is no secret and proves nothing; who holds it may enter the network, as anybody may.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Annotated, Final, Literal

from msgspec import Meta

from p2pnode.config_keys import BOOTSTRAP_PATTERN
from protocol.codec import Wire, decode, encode
from protocol.errors import LocalFault, PeerFault
from protocol.genesis import Genesis, read_genesis
from protocol.limits import GENESIS_BYTES_MAX

PREFIX: Final = "p2pnode:join/"
BOOTSTRAP_MAX: Final = 8
"""Some of them will be offline; with eight that are up half the time one in 256 fails."""
_INVITE_BYTES_MAX: Final = GENESIS_BYTES_MAX + BOOTSTRAP_MAX * 264 + 32
"""Genesis, eight of the longest addresses with their headers, and the frame."""
_DAMAGED: Final = "this invite is cut short or damaged, or of a newer version of p2pnode."
_COPY_AGAIN: Final = "copy the whole line again"

_Bootstrap = Annotated[str, Meta(max_length=256, pattern=BOOTSTRAP_PATTERN)]


class _Invite(Wire, frozen=True, kw_only=True):
    v: Literal[1] = 1
    g: Annotated[bytes, Meta(max_length=GENESIS_BYTES_MAX)]
    b: Annotated[tuple[_Bootstrap, ...], Meta(max_length=BOOTSTRAP_MAX)]


def invite_link(genesis_raw: bytes, bootstrap: tuple[str, ...]) -> str:
    """The line that `read_invite` reads.

    Raises LocalFault if there are too many addresses or one does not name its peer.
    """
    if len(bootstrap) > BOOTSTRAP_MAX:
        raise LocalFault(
            f"an invite holds at most {BOOTSTRAP_MAX} addresses, and these are {len(bootstrap)}.",
            "choose those that are online most",
        )
    for address in bootstrap:
        if not re.search(BOOTSTRAP_PATTERN, address):
            raise LocalFault(
                f"{address!a} is not a multiaddr that ends in /p2p/ and a peer id.",
                "write for example /dns4/boot.example/tcp/4001/p2p/12D3KooW...",
            )
    raw = encode(_Invite(g=genesis_raw, b=bootstrap))
    return PREFIX + urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


def read_invite(link: str) -> tuple[Genesis, bytes, tuple[str, ...]]:
    """The network, its genesis as encoded, and the multiaddrs of first peers.

    White space is passed over, since mail and chat break long lines.
    Raises LocalFault if this is no invite or not the whole of one.
    """
    line = "".join(link.split())
    if not line.startswith(PREFIX):
        raise LocalFault(f"an invite begins with {PREFIX}, and this does not.", _COPY_AGAIN)
    try:
        invite = decode(_bytes_of(line.removeprefix(PREFIX)), _Invite, size_max=_INVITE_BYTES_MAX)
        genesis = read_genesis(invite.g)
    except PeerFault as fault:
        raise LocalFault(_DAMAGED, _COPY_AGAIN) from fault
    return genesis, invite.g, invite.b


def _bytes_of(text: str) -> bytes:
    """Base64url without padding; one text for each bytes."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+", text) or len(text) % 4 == 1:
        raise LocalFault(_DAMAGED, _COPY_AGAIN)
    raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if urlsafe_b64encode(raw).rstrip(b"=").decode("ascii") != text:
        raise LocalFault(_DAMAGED, _COPY_AGAIN)
    return raw
