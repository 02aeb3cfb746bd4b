"""The newest advert of every unit group that this node has seen. Plain data, one owner."""

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from typing import Final, Protocol

from protocol.advert import Advert, ask_for, check_advert, is_expired
from protocol.certificate import Certificate, ReadCertificate
from protocol.errors import PeerFault
from protocol.genesis import Genesis, net_of
from protocol.limits import (
    ADVERTS_KEPT_MAX,
    GROUPS_PER_FEED_MAX,
    OFFER_HEADS_MAX,
)
from protocol.offers import OfferHead, group_key, root_of, supersedes
from protocol.units import Digest, Millis, PeerId, PublicKey
from protocol.wire import unpack

ARRIVALS_KEPT_MAX: Final = 1_024
"""What a book remembers of when it heard what: some minutes of twenty busy owners."""


class Outcome(Enum):
    """What became of an advert that broke no rule."""

    NEW = "new"
    KNOWN = "known"  # the very same bytes are in the book
    STALE = "stale"  # a newer one is, or was until it expired
    FULL = "full"  # the book, or the feed's share of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An advert in the book; `raw` is what its owner sealed, fit to be handed on."""

    raw: bytes
    head: OfferHead
    signer: PublicKey
    advert: Advert
    certificate: Certificate
    taken_ms: Millis

    @property
    def is_open(self) -> bool:
        """Whether its owner still offers it."""
        return self.advert.state == "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """When an advert was put into the book, for those who measure how news travels."""

    head: OfferHead
    is_open: bool
    """Not a withdrawal."""
    ask_micro: int | None
    """The silver one."""
    taken_ms: Millis


class Follower(Protocol):
    """Keeps in step with a book."""

    def put(self, offer: Offer) -> None:
        """The newest advert of its group, withdrawn or not."""

    def drop(self, key: bytes) -> None:
        """The advert of this group has expired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tombstone:
    """What is left of an expired advert until nothing older can be alive any more."""

    head: OfferHead
    signer: PublicKey
    until_ms: Millis


class Book:
    """Adverts by unit group; a superseded, withdrawn or expired one never comes back."""

    def __init__(self, genesis: Genesis, *, read: ReadCertificate) -> None:
        self._genesis = genesis
        self._net = net_of(genesis)
        self._read = read
        self._offers: dict[bytes, Offer] = {}
        self._expired: dict[bytes, _Tombstone] = {}
        self._raw_known: set[bytes] = set()
        self._groups_of: dict[PublicKey, int] = {}
        # Anybody may ask for the heads at any time, so that asking must not cost what the book
        # is large.
        self._ordered: tuple[OfferHead, ...] | None = None
        self._root: Digest | None = None
        self._next_over_ms = 0
        self._arrivals: deque[Arrival] = deque(maxlen=ARRIVALS_KEPT_MAX)
        self._followers: list[Follower] = []

    def follow(self, follower: Follower) -> None:
        """Tell it of each change from now on."""
        self._followers.append(follower)

    def take(
        self, raw: bytes, *, now: Millis, publisher: PeerId | None = None
    ) -> tuple[Outcome, Offer | None]:
        """Judge a sealed advert and keep it if it is the newest of its group; the offer if NEW.

        `publisher` is the peer that signed the transport's message, where there is one.
        Raises PeerFault `codec.*`, `seal.*`, `advert.*`, `certificate.*`; the book is then as
        before.
        """
        fingerprint = sha256(raw).digest()
        if fingerprint in self._raw_known:
            return Outcome.KNOWN, None
        sealed = unpack(raw, self._net, Advert)
        advert = sealed.body
        key = group_key(sealed.signer, advert.group)
        head: OfferHead = (key, advert.incarnation, advert.seq, sealed.digest[:16])
        if not self._is_news(head):
            return Outcome.STALE, None
        certificate = check_advert(
            advert,
            signer=sealed.signer,
            genesis=self._genesis,
            net=self._net,
            now=now,
            read=self._read,
        )
        if publisher is not None and publisher != certificate.peer_id:
            raise PeerFault("advert.publisher")
        if not self._has_room(key, sealed.signer):
            return Outcome.FULL, None
        offer = Offer(
            raw=raw,
            head=head,
            signer=sealed.signer,
            advert=advert,
            certificate=certificate,
            taken_ms=now,
        )
        self._put(offer)
        return Outcome.NEW, offer

    def expire(self, now: Millis) -> int:
        """Drop what is over at `now`; the number of adverts dropped."""
        if now <= self._next_over_ms:
            return 0
        over = [key for key, offer in self._offers.items() if is_expired(offer.advert, now)]
        bounds = self._genesis.bounds
        for key in over:
            offer = self._offers.pop(key)
            for follower in self._followers:
                follower.drop(key)
            self._raw_known.discard(sha256(offer.raw).digest())
            # An older advert of the group was issued no later, so it is dead by then too.
            until = offer.advert.issued_ms + bounds.advert_life_ms + bounds.skew_ms
            self._expired[key] = _Tombstone(
                head=offer.head, signer=offer.signer, until_ms=Millis(until)
            )
        for key in [key for key, stone in self._expired.items() if now > stone.until_ms]:
            self._forget(key, self._expired.pop(key).signer)
        if over:
            self._ordered = self._root = None
        ends = [offer.advert.not_after_ms for offer in self._offers.values()]
        self._next_over_ms = min(
            [*ends, *(stone.until_ms for stone in self._expired.values())], default=0
        )
        return len(over)

    def open_offers(self, now: Millis) -> list[Offer]:
        """What can be rented at `now`, in order of the group keys."""
        return [
            self._offers[key]
            for key in sorted(self._offers)
            if self._offers[key].is_open and not is_expired(self._offers[key].advert, now)
        ]

    def get(self, key: bytes) -> Offer | None:
        """The newest advert of this group, withdrawn or not."""
        return self._offers.get(key)

    def arrivals(self) -> tuple[Arrival, ...]:
        """The newest ARRIVALS_KEPT_MAX adverts that were put in, in that order."""
        return tuple(self._arrivals)

    def root(self) -> Digest:
        """One digest over all heads: equal roots mean equal books."""
        if self._root is None:
            self._root = root_of(list(self._heads()))
        return self._root

    def heads(self, after: bytes | None = None) -> tuple[OfferHead, ...]:
        """The next heads, at most OFFER_HEADS_MAX, in order of their keys, above `after`."""
        heads = self._heads()
        start = 0 if after is None else bisect_right(heads, after, key=lambda head: head[0])
        return heads[start : start + OFFER_HEADS_MAX]

    def find(self, prefix: str) -> list[Offer]:
        """The offers whose group keys begin so in hexadecimal, withdrawn or not."""
        return [offer for key, offer in self._offers.items() if key.hex().startswith(prefix)]

    def wants(self, head: OfferHead) -> bool:
        """Whether a peer that has this head knows something newer than we do."""
        return self._is_news(head)

    def __len__(self) -> int:
        return len(self._offers)

    def _heads(self) -> tuple[OfferHead, ...]:
        """All of them, in order of their keys."""
        if self._ordered is None:
            self._ordered = tuple(self._offers[key].head for key in sorted(self._offers))
        return self._ordered

    def _is_news(self, head: OfferHead) -> bool:
        known = self._offers.get(head[0]) or self._expired.get(head[0])
        return known is None or supersedes(head, known.head)

    def _has_room(self, key: bytes, signer: PublicKey) -> bool:
        if key in self._offers or key in self._expired:
            return True
        return (
            len(self._offers) + len(self._expired) < ADVERTS_KEPT_MAX
            and self._groups_of.get(signer, 0) < GROUPS_PER_FEED_MAX
        )

    def _put(self, offer: Offer) -> None:
        key = offer.head[0]
        if key not in self._offers and self._expired.pop(key, None) is None:
            self._groups_of[offer.signer] = self._groups_of.get(offer.signer, 0) + 1
        if (old := self._offers.get(key)) is not None:
            self._raw_known.discard(sha256(old.raw).digest())
        self._offers[key] = offer
        self._ordered = self._root = None
        self._next_over_ms = min(self._next_over_ms, offer.advert.not_after_ms)
        self._arrivals.append(
            Arrival(
                head=offer.head,
                is_open=offer.is_open,
                ask_micro=ask_for(offer.advert, "silver"),
                taken_ms=offer.taken_ms,
            )
        )
        self._raw_known.add(sha256(offer.raw).digest())
        for follower in self._followers:
            follower.put(offer)

    def _forget(self, key: bytes, signer: PublicKey) -> None:
        assert key not in self._offers
        left = self._groups_of[signer] - 1
        if left:
            self._groups_of[signer] = left
        else:
            del self._groups_of[signer]
