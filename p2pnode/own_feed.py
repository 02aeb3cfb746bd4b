"""Our own feed in the ledger: opened, begun if it is new, closed in order. ledger/SPEC.md 6."""

from collections.abc import Callable
from typing import Final

from ledger.bodies import Body
from ledger.bodies import Genesis as FeedGenesis
from ledger.guard import Guard
from ledger.ledger import Ledger, open_ledger
from ledger.store import Store
from p2pnode.cabinet import Cabinet
from p2pnode.identity import Identity
from protocol.signing import digest
from protocol.units import Millis, NetId

_CLOSED: Final = "feed/closed"
"""The record of an end in order: the id of our head then."""


def open_own_feed(
    identity: Identity,
    *,
    net: NetId,
    store: Store,
    guard: Guard,
    cabinet: Cabinet,
    incarnation: int,
    is_new: bool,
    now: Millis,
    random_bytes: Callable[[int], bytes],
) -> Ledger:
    """The ledger. Of a feed that is new, of which nothing has left, the begin is written.

    A ledger that must be recovered first opens too, and refuses to write. Raises LocalFault.
    """
    ledger = open_ledger(
        store=store, guard=guard, signer=identity.feed, net=net, uuid=random_bytes(16)
    )
    if is_new and ledger.fault() is None:
        begin_own_feed(ledger, identity, now, incarnation=incarnation)
        note_closed(ledger, cabinet)
    return ledger


def begin_own_feed(ledger: Ledger, identity: Identity, now: Millis, *, incarnation: int) -> None:
    """Write the first entry of ours, which carries our certificate, and which feed it follows.

    Only where none was ever written, or nobody is left who has one: a second one forks the feed.
    After a crash it goes on where it was. Raises as `Ledger.append`.
    """
    first = FeedGenesis(
        certificate=identity.certificate_raw,
        incarnation=incarnation,
        next_key=digest("next-feed", identity.next_feed),
    )
    head = ledger.head(ledger.feed)
    written = 0 if head is None else head.seq + 1
    begin: list[Body] = [first, *identity.succeeds]
    ledger.append_all(begin[written:], now)


def note_closed(ledger: Ledger, cabinet: Cabinet) -> None:
    """From now until `was_closed` nothing is signed: the end is in order. Raises LocalFault."""
    head = ledger.head(ledger.feed)
    if head is not None and ledger.fault() is None:
        cabinet.put(_CLOSED, head.id)


def was_closed(ledger: Ledger, cabinet: Cabinet) -> bool:
    """Whether the last life ended in order, with the head that is here; asked once in each life.

    Raises LocalFault.
    """
    head = ledger.head(ledger.feed)
    closed_at = cabinet.get(_CLOSED)
    cabinet.remove(_CLOSED)
    return head is not None and closed_at == head.id
