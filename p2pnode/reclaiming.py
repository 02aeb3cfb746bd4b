"""An owner takes its GPUs back, as far as the tiers of their leases let it."""

from ledger.fold import Lease
from p2pnode.api.job_documents import YieldDocument, YieldedDocument, YieldOrder
from p2pnode.node import Node
from protocol.errors import LocalFault
from protocol.units import Millis

GRACE_MS_MAX = 3_600_000


def reclaim(node: Node, name: str | None, order: YieldOrder) -> YieldDocument:
    """Let this lease of ours, or each that is open, yield its units. Raises LocalFault.

    Bronze gets its notice. Silver and gold are never broken: they run their time.
    """
    if not 0 <= order.grace_ms <= GRACE_MS_MAX:
        raise LocalFault("A grace is at most an hour.", "--grace 30s")
    now = node.ports.clock.now()
    leases = [lease for lease in node.books.leases() if lease.ended_ms > now]
    if name is not None:
        leases = [lease for lease in leases if name and lease.id.hex().startswith(name)]
        if len(leases) != 1:
            what = "no open lease" if not leases else f"{len(leases)} open leases"
            raise LocalFault(f"There is {what} of ours called {name!r}.", "p2pnode lease list")
    return YieldDocument(items=tuple(_yielded(node, lease, order) for lease in leases))


def _yielded(node: Node, lease: Lease, order: YieldOrder) -> YieldedDocument:
    free_ms: Millis | None = None
    if lease.request.tier == "bronze" and lease.reason is None:
        free_ms = node.workplace.preempt(
            lease, Millis(node.ports.clock.now() + order.grace_ms), order.why
        )
    is_taken_back = free_ms is not None or lease.reason == "preempted"
    return YieldedDocument(
        lease=lease.id.hex(),
        tier=lease.request.tier,
        units=tuple(turn.unit.hex() for turn in lease.request.units),
        free_ms=lease.ended_ms if free_ms is None else free_ms,
        is_taken_back=is_taken_back,
    )
