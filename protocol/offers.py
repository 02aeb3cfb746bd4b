"""Anti-entropy of adverts between two peers: compare heads, fetch what is newer. SPEC.md 8.4.

Gossip loses adverts silently; this finds them. Everything fetched passes the same judge as what
was gossiped, so these messages need no seal of their own.
"""

from hashlib import sha256
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from protocol.codec import Hash, Id16, UInt, Wire
from protocol.limits import ADVERT_BYTES_MAX, OFFER_HEADS_MAX, OFFERS_ASKED_MAX, SEAL_BYTES
from protocol.signing import digest
from protocol.units import Digest, PublicKey

GroupKey = Id16
"""Names one unit group of one feed: the first half of a digest over both."""

OfferHead = tuple[GroupKey, UInt, UInt, Id16]
"""(group key, incarnation, seq, first half of the advert's digest)."""


class HeadsAsk(Wire, frozen=True, kw_only=True):
    """Which adverts do you hold, unless your root is `root`; keys above `after` only."""

    root: Hash
    after: GroupKey | UnsetType = UNSET


class Heads(Wire, frozen=True, kw_only=True):
    """The holder's root and, where the roots differ, its next heads in order of their keys."""

    root: Hash
    heads: Annotated[tuple[OfferHead, ...], Meta(max_length=OFFER_HEADS_MAX)]


class OffersAsk(Wire, frozen=True, kw_only=True):
    """Send me the adverts of these groups."""

    groups: Annotated[tuple[GroupKey, ...], Meta(min_length=1, max_length=OFFERS_ASKED_MAX)]


SealedAdvert = Annotated[bytes, Meta(max_length=ADVERT_BYTES_MAX + SEAL_BYTES)]


class Offers(Wire, frozen=True, kw_only=True):
    """The sealed adverts that are still held of those asked for, in any order."""

    adverts: Annotated[tuple[SealedAdvert, ...], Meta(max_length=OFFERS_ASKED_MAX)]


class OwnOffersAsk(Wire, frozen=True, kw_only=True):
    """Send me your own open adverts; keys above `after` only. SPEC.md 8.5."""

    after: GroupKey | UnsetType = UNSET


class OwnOffers(Wire, frozen=True, kw_only=True):
    """The answerer's own open adverts in order of their keys; more follow above `more_after`."""

    adverts: Annotated[tuple[SealedAdvert, ...], Meta(max_length=OFFERS_ASKED_MAX)]
    more_after: GroupKey | UnsetType = UNSET


def group_key(feed: PublicKey, group: bytes) -> bytes:
    """The 16 bytes that name a unit group of a feed on every peer."""
    return digest("offer", feed + group)[:16]


def supersedes(one: OfferHead, other: OfferHead) -> bool:
    """Whether the first of two heads of one group is the newer one. SPEC.md 8.3.

    Ordered by (incarnation, seq); for an owner who says two things under one number by the
    digest, so that all peers keep the same one.
    """
    return one[1:] > other[1:]


def root_of(heads: list[OfferHead]) -> Digest:
    """One digest over all heads, which must be in order of their keys."""
    whole = sha256()
    for key, incarnation, seq, advert in heads:
        whole.update(key + incarnation.to_bytes(8, "big") + seq.to_bytes(8, "big") + advert)
    return Digest(whole.digest())
