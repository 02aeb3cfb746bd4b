"""The latest instant that we have signed: our clock must not run back over it (evidence A16)."""

from ledger.ledger import Ledger
from p2pnode.cabinet import Cabinet
from p2pnode.execution.worker import METERED_BYTES_MAX, Metered
from protocol.codec import decode
from protocol.tick import Tick
from protocol.units import Millis
from protocol.wire import unpack


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
        record = cabinet.get(f"leases/{lease.id.hex()}/metered")
        if record is not None:
            metered = decode(record, Metered, size_max=METERED_BYTES_MAX)
            latest = max(latest, unpack(metered.tick, ledger.net, Tick).body.at_ms)
    return latest
