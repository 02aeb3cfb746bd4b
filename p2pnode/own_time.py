"""The latest instant that we have signed: our clock must not run back over it (evidence A16)."""

from ledger.ledger import Ledger
from p2pnode.cabinet import Cabinet
from p2pnode.execution.meter import last_tick
from protocol.units import Millis


def latest_signed(ledger: Ledger, cabinet: Cabinet) -> Millis:
    """Of our feed's head, and of the last ticks of our leases; 0 if there is nothing.

    A half may state a lease that goes on, so that there is one says nothing of the ticks.
    """
    feed = ledger.feed
    head = ledger.head(feed)
    latest = Millis(0) if head is None else head.ts_ms
    for lease in ledger.state.leases():
        tick = last_tick(cabinet, ledger.net, lease.id) if lease.owner == feed else None
        if tick is not None:
            latest = max(latest, tick.at_ms)
    return latest
