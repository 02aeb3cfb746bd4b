"""The last tick of a lease of ours, as it is kept: durable before anybody sees it."""

from typing import Final

from p2pnode.cabinet import Cabinet
from protocol.codec import Wire, decode
from protocol.tick import Tick
from protocol.units import Digest, NetId
from protocol.wire import unpack

METERED_BYTES_MAX: Final = 4_096


class Metered(Wire, frozen=True, kw_only=True):
    """The tick, and the renter's signature if it has come."""

    tick: bytes
    cosign: bytes = b""


def is_over(cabinet: Cabinet, lease: Digest) -> bool:
    """Whether the lease's job has ended, so that nothing more will be metered."""
    return cabinet.get(f"leases/{lease.hex()}/outcome") is not None


def last_tick(cabinet: Cabinet, net: NetId, lease: Digest) -> Tick | None:
    """What was metered last of this lease; None if nothing was."""
    raw = cabinet.get(f"leases/{lease.hex()}/metered")
    if raw is None:
        return None
    return unpack(decode(raw, Metered, size_max=METERED_BYTES_MAX).tick, net, Tick).body
