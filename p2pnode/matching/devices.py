"""Which owners say that they have the very same GPU. Follows a book; nobody is refused for it.

A mark is a word of who signs it, and anybody can repeat what another has signed. So two owners of
one device are a contradiction between two claims, of which one is false, and no proof against
either. Who was seen with the device first stays the first, also through an absence of a day.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from p2pnode.clock import WallClock
from p2pnode.matching.book import Offer
from protocol.advert import marks_in
from protocol.units import Millis, PublicKey

MARKS_PER_OWNER_MAX: Final = 128
"""More than any host has, with each GPU split; the oldest of an owner are forgotten first."""
MARKS_MAX: Final = 131_072
"""Of all owners, about 30 MB; the owners not heard of for the longest time are forgotten first."""
REMEMBERED_MS: Final = 24 * 3_600_000
"""So long an owner is remembered after its last advert, and nobody takes its place meanwhile."""


@dataclass(slots=True, kw_only=True)
class _Claim:
    """One owner has said that it has one device."""

    number: int
    """Of all claims in the order in which this node saw them."""
    until_ms: int
    """It offers the device until then; the past where it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed:
    """What the newest advert of a group says."""

    owner: PublicKey
    marks: tuple[bytes, ...]
    until_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """Another owner that offers some of the same devices now."""

    owner: PublicKey
    devices: int
    is_first: bool
    """Whether this node saw it with any of them before the owner that was asked about."""


class Devices:
    """The claims that this node has seen."""

    def __init__(self, clock: WallClock) -> None:
        self._clock = clock
        self._claims: OrderedDict[PublicKey, OrderedDict[bytes, _Claim]] = OrderedDict()
        """By owner, the one that was heard of last at the end."""
        self._heard_ms: dict[PublicKey, Millis] = {}
        self._owners: dict[bytes, dict[PublicKey, None]] = {}
        self._listed: dict[bytes, _Listed] = {}
        self._groups_of: dict[PublicKey, set[bytes]] = {}
        self._count = 0
        self._number = 0

    def put(self, offer: Offer) -> None:
        """See Follower: what the newest advert of a group says, and no more what one before did."""
        owner, marks = offer.signer, marks_in(offer.advert)
        if not marks and owner not in self._claims:
            return
        self._claims.setdefault(owner, OrderedDict())
        self._claims.move_to_end(owner)
        self._heard_ms[owner] = self._clock.now()
        key, until_ms = offer.head[0], offer.advert.not_after_ms
        self.drop(key)
        if offer.is_open and marks:
            self._listed[key] = _Listed(owner=owner, marks=marks, until_ms=until_ms)
            self._groups_of.setdefault(owner, set()).add(key)
            for mark in marks:
                claim = self._claim(owner, mark)
                claim.until_ms = max(claim.until_ms, until_ms)
        self._tidy()

    def drop(self, key: bytes) -> None:
        """See Follower: a claim ends with its advert, unless another group of the owner has it."""
        ended = self._listed.pop(key, None)
        if ended is None:
            return
        groups = self._groups_of[ended.owner]
        groups.remove(key)
        others = [self._listed[group] for group in groups]
        claims = self._claims.get(ended.owner, OrderedDict[bytes, _Claim]())
        for mark in ended.marks:
            if mark in claims:
                left = (other.until_ms for other in others if mark in other.marks)
                claims[mark].until_ms = max(left, default=0)
        if not groups:
            del self._groups_of[ended.owner]

    def rivals(self, owner: PublicKey, marks: tuple[bytes, ...] | None = None) -> list[Rival]:
        """Who else offers these devices of the owner now, or any of its; in order of their keys."""
        own, now = self._claims.get(owner, OrderedDict[bytes, _Claim]()), self._clock.now()
        found: dict[PublicKey, list[bool]] = {}
        for mark in own if marks is None else marks:
            mine = own.get(mark)
            if mine is None or mine.until_ms < now:
                continue
            for other in self._owners[mark]:
                claim = self._claims[other][mark]
                if other != owner and claim.until_ms >= now:
                    found.setdefault(other, []).append(claim.number < mine.number)
        return [
            Rival(owner=other, devices=len(firsts), is_first=any(firsts))
            for other, firsts in sorted(found.items())
        ]

    def __len__(self) -> int:
        return self._count

    def _claim(self, owner: PublicKey, mark: bytes) -> _Claim:
        claims = self._claims[owner]
        if mark not in claims:
            while len(claims) >= MARKS_PER_OWNER_MAX:
                self._forget(owner, next(iter(claims)))
            self._number += 1
            self._count += 1
            claims[mark] = _Claim(number=self._number, until_ms=0)
            self._owners.setdefault(mark, {})[owner] = None
        return claims[mark]

    def _tidy(self) -> None:
        """Forget who was not heard of for a day, or for the longest time if there are too many."""
        before_ms = self._clock.now() - REMEMBERED_MS
        while True:
            oldest = next(iter(self._claims))
            is_over = self._heard_ms[oldest] < before_ms or not self._claims[oldest]
            if not is_over and self._count <= MARKS_MAX:
                return
            for mark in list(self._claims[oldest]):
                self._forget(oldest, mark)
            del self._claims[oldest], self._heard_ms[oldest]
            if not self._claims:
                return

    def _forget(self, owner: PublicKey, mark: bytes) -> None:
        del self._claims[owner][mark]
        self._count -= 1
        others = self._owners[mark]
        del others[owner]
        if not others:
            del self._owners[mark]
