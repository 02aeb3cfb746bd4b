"""Opens the ledger with our own feed in it, begun if it is new."""

from collections.abc import Callable

from ledger.bodies import Genesis as FeedGenesis
from ledger.guard import Guard
from ledger.ledger import Ledger, open_ledger
from ledger.store import Store
from p2pnode.identity import Identity
from protocol.signing import digest
from protocol.units import Millis, NetId


def open_own_feed(
    identity: Identity,
    *,
    net: NetId,
    store: Store,
    guard: Guard,
    incarnation: int,
    now: Millis,
    random_bytes: Callable[[int], bytes],
) -> Ledger:
    """The ledger, whose first entry of ours carries our certificate.

    A ledger that must be recovered first opens too, and refuses to write. Raises LocalFault.
    """
    ledger = open_ledger(
        store=store, guard=guard, signer=identity.feed, net=net, uuid=random_bytes(16)
    )
    if ledger.head(identity.feed.public) is None and ledger.fault() is None:
        ledger.append(
            FeedGenesis(
                certificate=identity.certificate_raw,
                incarnation=incarnation,
                next_key=digest("next-feed", identity.next_feed),
            ),
            now,
        )
    return ledger
