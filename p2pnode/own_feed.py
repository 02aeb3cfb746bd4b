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
"""The record of an end in order: the id of our head then, and the instant in eight bytes."""
_ID_BYTES: Final = 32


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
        note_closed(ledger, cabinet, now)
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


def note_closed(ledger: Ledger, cabinet: Cabinet, now: Millis) -> None:
    """From now until `closed_at` nothing is signed: the end is in order. Raises LocalFault."""
    head = ledger.head(ledger.feed)
    if head is not None and ledger.fault() is None:
        cabinet.put(_CLOSED, head.id + now.to_bytes(8, "big"))


def closed_at(ledger: Ledger, cabinet: Cabinet) -> Millis | None:
    """When the last life ended in order, with the head that is here; asked once in each life.

    None if it did not. Raises LocalFault.
    """
    head = ledger.head(ledger.feed)
    record = cabinet.get(_CLOSED) or b""
    cabinet.remove(_CLOSED)
    if head is None or record[:_ID_BYTES] != head.id or len(record) != _ID_BYTES + 8:
        return None
    return Millis(int.from_bytes(record[_ID_BYTES:], "big"))
