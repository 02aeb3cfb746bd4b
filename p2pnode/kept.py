"""What a renter has of the work of its bronze leases, and so what it may come to owe of them."""

from typing import Final

from ledger.fold import Lease
from p2pnode.cabinet import Cabinet
from protocol.tick import Cause, Saved
from protocol.units import Digest, MillisSpan, NetId
from protocol.wire import unpack

LOST: Final[tuple[Cause, ...]] = ("preempted", "engine")
"""After these the work of a bronze job is gone, but for what the renter has. SPEC.md 13.5."""


def note_saved(cabinet: Cabinet, lease: Digest, sealed: bytes) -> None:
    """The renter has this checkpoint of the lease, whole; durable on return."""
    cabinet.put(f"saved/{lease.hex()}", sealed)


def saved_of(cabinet: Cabinet, lease: Digest) -> bytes | None:
    """The sealed word for the last checkpoint of the lease that the renter has."""
    return cabinet.get(f"saved/{lease.hex()}")


def note_end(cabinet: Cabinet, lease: Digest, cause: Cause) -> None:
    """The renter knows how the job of the lease ended; durable on return."""
    if cabinet.get(f"ended/{lease.hex()}") is None:
        cabinet.put(f"ended/{lease.hex()}", cause.encode())


def saved_ms(cabinet: Cabinet, net: NetId, lease: Lease) -> MillisSpan | None:
    """Up to where the renter has the work, if it owes no more than that now; None: all of it.

    While a bronze job runs, what it has not saved may yet be lost.
    """
    if lease.request.tier != "bronze":
        return None
    ended = cabinet.get(f"ended/{lease.id.hex()}")
    lost = {cause.encode() for cause in LOST}
    if lease.reason == "preempted":
        lost.add(b"stopped")
    if ended is not None and ended not in lost:
        return None
    raw = saved_of(cabinet, lease.id)
    return MillisSpan(0 if raw is None else unpack(raw, net, Saved).body.used_ms)
