"""What carries a renter's jobs: the node as a driver sees it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ledger.fold import Lease
from ledger.witness_bodies import Cosigned
from p2pnode.cabinet import Cabinet
from p2pnode.clock import WallClock
from p2pnode.jobs.baggage import Baggage
from p2pnode.jobs.lease_client import OpenStream
from p2pnode.matching.renter import Renter
from p2pnode.matching.search import Wish
from protocol.errors import Unavailable
from protocol.units import Digest, Micros, MillisSpan, NetId, PeerId, PublicKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What a driver needs of the node."""

    renter: Renter
    cabinet: Cabinet
    baggage: Baggage
    net: NetId
    skew_ms: MillisSpan
    """How far the clocks of others may be ahead of ours."""
    clock: WallClock
    random_bytes: Callable[[int], bytes]
    open_stream: OpenStream
    confirm: Callable[[PeerId, bytes, Cosigned | None], Awaitable[Lease]]
    """confirm(owner, GRANT, cosignatures): judge it, with the owner's feed, and ACCEPT it.

    Raises LeaseOver, Unavailable or PeerFault.
    """
    settle: Callable[[PeerId, Lease, bytes], Awaitable[bytes]]
    """Close the accounts of an ended lease; the receipt. Raises Unavailable or PeerFault."""
    lease: Callable[[Digest], Lease | None]
    owed: Callable[[Digest], Micros]
    """What we have co-signed for this lease."""
    note_kept: Callable[[PeerId, Digest, Digest], Awaitable[None]]
    """note_kept(owner, lease, saved): we have this checkpoint. Raises Unavailable or PeerFault."""
    let_go: Callable[[PeerId, Lease], Awaitable[None]]
    """Consent to the end of a lease that has not begun. Raises Unavailable or PeerFault."""
    stop: Callable[[PeerId, Digest], Awaitable[None]]
    look_around: Callable[[Wish], Awaitable[None]]
    """Bring what may fit this wish into the book, as far as that takes asking."""
    call_witnesses: Callable[[Lease], Awaitable[None]]
    """Have those of the lease look after it; takes a few seconds, raises nothing."""
    failed: Callable[[PublicKey], None]
    """An owner did not finish: remember it when the next bids are scored."""
    lost_after_s: float
    """An owner that cannot be reached for this long is given up."""


class LostOwner(Unavailable):
    """The owner of the lease has been out of reach for too long."""


class LeaseOver(Unavailable):
    """What the owner granted has ended before we accepted it."""
