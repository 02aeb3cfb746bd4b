"""What made-up authors have in common: their first entry, and a store that waits for no disk.

Their keys are no secrets.
"""

from collections.abc import Iterator
from typing import Final

from ledger.bodies import Genesis
from ledger.store import Batch, Store
from protocol.certificate import Certificate, sign_certificate
from protocol.signing import Signer, digest, peer_id_of
from protocol.units import Millis, NetId, PublicKey

SKEW_MS: Final = 1_000
YEAR_MS: Final = 365 * 86_400_000


def genesis_of(feed: Signer, net: NetId, begin: Millis, *, incarnation: int = 1) -> Genesis:
    """Entry 0 of this signer's feed, which holds for a year; its other keys follow from its own."""
    root, peer = (Signer(digest(f"made-up {which}", feed.public)) for which in ("root", "peer"))
    certificate = Certificate(
        net=net,
        root=root.public,
        feed=feed.public,
        peer_id=peer_id_of(peer.public),
        x25519=PublicKey(bytes(32)),
        not_before_ms=Millis(begin - SKEW_MS),
        not_after_ms=Millis(begin + YEAR_MS),
        n=1,
    )
    return Genesis(
        certificate=sign_certificate(certificate, root=root, feed=feed, peer=peer),
        incarnation=incarnation,
        next_key=digest("made-up next key", feed.public),
    )


class UnsyncedStore:
    """See Store. Never waits for the disk: a loss of power takes what was written."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, key: bytes) -> bytes | None:
        return self._store.get(key)

    def range(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._store.range(start, stop)

    def write(self, batch: Batch, *, sync: bool) -> None:  # noqa: ARG002  that is its point
        self._store.write(batch, sync=False)

    def close(self) -> None:
        self._store.close()
