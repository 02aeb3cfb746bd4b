"""Builds what an owner runs the jobs of its leases with."""

from collections.abc import Callable

from p2pnode.bookkeeping import Bookkeeping
from p2pnode.execution.shop import Shop
from p2pnode.identity import Identity
from p2pnode.links import Links
from p2pnode.matching.provider import Provider
from p2pnode.ports import Ports
from protocol.units import NetId


def build_shop(
    *,
    identity: Identity,
    net: NetId,
    ports: Ports,
    links: Links,
    provider: Provider,
    keeping: Bookkeeping,
    device_of: Callable[[bytes], str],
) -> Shop:
    """`device_of` is how CUDA names a unit; empty for one that does not exist."""
    books = keeping.books
    return Shop(
        engine=ports.engine,
        materials=ports.materials,
        cabinet=ports.cabinet,
        signer=identity.feed,
        net=net,
        clock=ports.clock,
        is_simulated=provider.is_simulated,
        device_of=device_of,
        ask_renter=links.ask_feed,
        height=books.height,
        state_of=ports.ledger.lease,
        bill=books.bill,
        close=books.close,
        lapse=books.lapse,
        renewal_of=books.renewal_of,
        preempt=books.preempt,
        paid=keeping.settling.paid,
        let_off=keeping.settling.let_off,
        is_enough=keeping.credit_line.is_enough,
        release_by_consent=books.release_by_consent,
    )
