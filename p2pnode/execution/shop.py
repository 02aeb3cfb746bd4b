"""What all workers share."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ledger.fold import Lease
from p2pnode.cabinet import Cabinet
from p2pnode.clock import WallClock
from p2pnode.execution.engine import Engine
from p2pnode.execution.materials import Materials
from protocol.signing import Signer
from protocol.tick import Tick
from protocol.units import Digest, Micros, Millis, NetId, PublicKey, Signature
from protocol.wire import Sealed


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """What a worker needs of the node."""

    engine: Engine
    materials: Materials
    cabinet: Cabinet
    signer: Signer
    net: NetId
    clock: WallClock
    is_simulated: Callable[[], bool]
    """Whether our GPUs are."""
    device_of: Callable[[bytes], str]
    """How CUDA names a unit; empty for one that does not exist."""
    ask_renter: Callable[[PublicKey, str, bytes], Awaitable[bytes]]
    """ask(feed of the renter, kind, body). Raises Unavailable."""
    height: Callable[[], int]
    state_of: Callable[[Digest], Lease | None]
    """The lease as the ledger has it now."""
    bill: Callable[[Lease, Sealed[Tick]], None]
    """State a lease that goes on, up to a tick that both have signed; if it is time to."""
    close: Callable[[Lease, Sealed[Tick]], None]
    """State a lease up to this tick; once for each, however often it is called."""
    lapse: Callable[[Lease], None]
    """Let the units of a lease go whose renter does not come. Raises LocalFault."""
    renewal_of: Callable[[Digest], Lease | None]
    """The accepted lease in which the job of this one goes on; None if there is none."""
    preempt: Callable[[Lease, Millis, Millis | None], Millis | None]
    """Take a bronze lease's units back, not before then; when, or None if it ends before."""
    paid: Callable[[Lease], Micros]
    """What we have signed as paid in the account of the lease."""
    let_off: Callable[[Lease, Micros], None]
    """Sign at most so much more of it as paid, as far as it is owed. Raises LocalFault."""
    is_enough: Callable[[Lease], bool]
    """Whether the renter owes us all that it may."""
    release_by_consent: Callable[[Lease, Millis, Signature], None]
    """Let the units go at the time to which the renter has consented. Raises LocalFault."""
