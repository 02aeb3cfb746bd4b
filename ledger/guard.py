"""The last entry that we meant to sign, kept apart from the store. SPEC.md section 6.

A store that lost its tail would let us sign another entry at a place that we have signed before.
The guard remembers the entry, whole, before it is signed.
"""

from typing import Final, Protocol

from ledger.entry import Draft, Entry, Link, check_link
from protocol.errors import LocalFault, PeerFault
from protocol.units import PublicKey

RECOVERY_CURE: Final = "run the node, which will recover our feed from its peers"
ENDED_CURE: Final = "use the home that has its keys, or go on in a third: p2pnode key rotate"
HELD_CURE: Final = "wait; p2pnode status says for what"
FORK_CURE: Final = "stop the node, then go on in a new feed: p2pnode key rotate"


class Guard(Protocol):
    """Where the newest reservation is kept. It must not share its fate with the store."""

    def reserved(self) -> Draft | None:
        """The newest reservation; None if there has been none. Raises LocalFault if damaged."""

    def reserve(self, draft: Draft) -> None:
        """Keeps the draft; it is on the disk on return.

        Raises LocalFault, also for another entry at a place that has been reserved.
        """


class MemoryGuard:
    """See Guard. Keeps nothing beyond its own life."""

    def __init__(self) -> None:
        self._draft: Draft | None = None

    def reserved(self) -> Draft | None:
        return self._draft

    def reserve(self, draft: Draft) -> None:
        check_reservation(self._draft, draft)
        self._draft = draft


def check_reservation(held: Draft | None, wanted: Draft) -> None:
    """Raises LocalFault unless `wanted` comes later in the same feed, or is `held` again."""
    if held is None or held.id == wanted.id:
        return
    if held.header.feed != wanted.header.feed:
        raise LocalFault("The guard belongs to another feed.", "give each feed a guard of its own")
    if held.header.seq >= wanted.header.seq:
        raise LocalFault(
            f"Entry {wanted.header.seq} has been promised otherwise; signing it would fork us.",
            RECOVERY_CURE,
        )


def recovery_fault(
    held: Draft | None, *, feed: PublicKey, head: Link | None, stored: Entry | None
) -> LocalFault | None:
    """Why we must not sign the entry after `head`, or None.

    `stored` is our entry at the place that `held` reserves, if there is one.
    """
    next_seq = 0 if head is None else head.seq + 1
    if held is None:
        if head is None:
            return None
        return _recover("the guard is gone")
    if held.header.feed != feed:
        return LocalFault("The guard belongs to another feed.", "give each feed its own guard")
    if held.header.seq > next_seq:
        return _recover(f"entry {held.header.seq} was signed, and the store ends at {next_seq - 1}")
    if held.header.seq < next_seq:
        same = stored is not None and stored.id == held.id
        return None if same else _recover("the store holds an entry that was not reserved")
    try:
        check_link(held.header, head)
    except PeerFault:
        return _recover("the reserved entry does not follow the store's last one")
    return None


def _recover(why: str) -> LocalFault:
    return LocalFault(f"Our feed must not be continued: {why}.", RECOVERY_CURE)
