"""Who announced itself to us under which key: bounded, and forgotten after some hours."""

from hashlib import sha256
from typing import Final

import trio
from libp2p.peer.id import ID
from libp2p.peer.peerinfo import PeerInfo

from p2pnode.network.libp2p_adapter.kad_frames import PROVIDERS_MAX

RECORD_LIFE_S: Final = 3 * 3_600
"""Owners announce themselves hourly; who missed it twice is gone."""
RECORDS_MAX: Final = 16_384
KEYS_MAX: Final = 2_048
KEYS_PER_PROVIDER_MAX: Final = 32
"""One peer offers a handful of classes in one region."""


class ProviderRecords:
    """Stands in for the library's ProviderStore, which is unbounded and keeps 20 for each key.

    When full, the key that is furthest from us makes room for a nearer one: others are meant to
    keep that one, and an attacker cannot choose keys near to everybody.
    """

    def __init__(self, own: ID) -> None:
        self._own = _place(own.to_bytes())
        self._records: dict[bytes, dict[ID, tuple[PeerInfo, float]]] = {}
        self._keys_of: dict[ID, int] = {}

    def add_provider(self, key: bytes, provider: PeerInfo) -> None:
        """Keep or renew a record, if there is room for it."""
        if provider.peer_id not in self._records.get(key, {}):
            if self._is_full(key, provider.peer_id):
                self._forget_stale()
            if self._is_full(key, provider.peer_id) or not self._make_room(key):
                return
            self._keys_of[provider.peer_id] = self._keys_of.get(provider.peer_id, 0) + 1
        self._records.setdefault(key, {})[provider.peer_id] = (provider, trio.current_time())

    def get_providers(self, key: bytes) -> list[PeerInfo]:
        """The providers that were announced lately enough."""
        since_s = trio.current_time() - RECORD_LIFE_S
        return [
            provider for provider, at_s in self._records.get(key, {}).values() if at_s >= since_s
        ]

    def size(self) -> int:
        """How many records are kept, stale ones among them."""
        return sum(self._keys_of.values())

    def _is_full(self, key: bytes, provider: ID) -> bool:
        """Whether this very key, or this very provider, has all that it may have."""
        return (
            len(self._records.get(key, {})) >= PROVIDERS_MAX
            or self._keys_of.get(provider, 0) >= KEYS_PER_PROVIDER_MAX
        )

    def _make_room(self, key: bytes) -> bool:
        has_room = len(self._records) < KEYS_MAX or key in self._records
        if has_room and self.size() < RECORDS_MAX:
            return True
        self._forget_stale()
        while len(self._records) >= KEYS_MAX or self.size() >= RECORDS_MAX:
            furthest = max(self._records, key=self._distance)
            if self._distance(furthest) <= self._distance(key):
                return False
            for provider in list(self._records[furthest]):
                self._drop(furthest, provider)
        return True

    def _forget_stale(self) -> None:
        since_s = trio.current_time() - RECORD_LIFE_S
        stale = [
            (key, provider)
            for key, records in self._records.items()
            for provider, (_, at_s) in records.items()
            if at_s < since_s
        ]
        for key, provider in stale:
            self._drop(key, provider)

    def _drop(self, key: bytes, provider: ID) -> None:
        del self._records[key][provider]
        if not self._records[key]:
            del self._records[key]
        self._keys_of[provider] -= 1
        if not self._keys_of[provider]:
            del self._keys_of[provider]

    def _distance(self, key: bytes) -> int:
        return self._own ^ _place(key)


def _place(key: bytes) -> int:
    return int.from_bytes(sha256(key).digest(), "big")
