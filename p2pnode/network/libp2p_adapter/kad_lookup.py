"""The course of one look-up in the directory: whom to ask next, and what came of it. Pure."""

from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from p2pnode.network.libp2p_adapter.kad_frames import ADDRESSES_MAX, Contacts
from protocol.units import PeerId

AT_ONCE: Final = 3
ASKED_MAX: Final = 64
"""Whoever makes up closer peers can keep us busy no longer than that."""
DIALS_MAX: Final = 16
"""New connections for one look-up; a look-up in a large network takes about ten."""
PROVIDERS_MAX: Final = 1_024


class Lookup:
    """Goes nearer to the key from answer to answer, until the nearest `width` have answered."""

    def __init__(self, key: bytes, *, width: int, known: Contacts) -> None:
        self._place = _place(key)
        self._width = width
        self._known = dict(known)
        self._asked: set[PeerId] = set()
        self._answered: dict[PeerId, None] = {}
        self.dials_left = DIALS_MAX
        self.providers: Contacts = {}

    def next_to_ask(self) -> Contacts:
        """The next few to ask together, nearest first; none when the look-up is over."""
        if len(self._asked) >= ASKED_MAX:
            return {}
        nearest = self._nearest(p for p in self._known if p in self._answered or not self._was(p))
        batch = [peer for peer in nearest if peer not in self._answered][:AT_ONCE]
        self._asked.update(batch)
        return {peer: self._known[peer] for peer in batch}

    def take(self, peer: PeerId, closer: Contacts, providers: Contacts) -> None:
        """What a peer has answered."""
        self._answered[peer] = None
        for other, addresses in closer.items():
            if addresses and not self._was(other):
                self._known[other] = _merged(self._known.get(other, ()), addresses)
        for other, addresses in providers.items():
            if len(self.providers) < PROVIDERS_MAX or other in self.providers:
                self.providers[other] = _merged(self.providers.get(other, ()), addresses)

    def answered(self) -> Contacts:
        """The nearest that have answered, nearest first."""
        return {peer: self._known[peer] for peer in self._nearest(self._answered)}

    def _was(self, peer: PeerId) -> bool:
        return peer in self._asked

    def _nearest(self, peers: Iterable[PeerId]) -> list[PeerId]:
        return sorted(peers, key=lambda peer: self._place ^ _place(peer))[: self._width]


def _merged(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    # Both, as anybody may lie about the addresses of others.
    return tuple(dict.fromkeys((*one, *other)))[:ADDRESSES_MAX]


def _place(key: bytes) -> int:
    return int.from_bytes(sha256(key).digest(), "big")
