"""The latest instant that we have signed: our clock must not run back over it (evidence A16)."""

from ledger.ledger import Ledger
from p2pnode.cabinet import Cabinet
from p2pnode.execution.meter import last_tick
from protocol.units import Millis


def latest_signed(ledger: Ledger, cabinet: Cabinet) -> Millis:
    """Of our feed's head, and of the ticks of leases that it has not closed; 0 if there is nothing.

    A statement that closes a lease is written after its last tick, and is no earlier.
    """
    feed = ledger.feed
    closed = [
        half.statement.lease
        for _, peer, money, answers in ledger.state.accounts_of(feed)
        for half in ledger.state.halves(feed, peer, money=money, is_answer=answers)
    ]
    is_closed = dict.fromkeys(closed)
    head = ledger.head(feed)
    latest = Millis(0) if head is None else head.ts_ms
    for lease in ledger.state.leases():
        if lease.owner != feed or lease.id in is_closed:
            continue
        tick = last_tick(cabinet, ledger.net, lease.id)
        if tick is not None:
            latest = max(latest, tick.at_ms)
    return latest
