"""What a renter knows of the offers of others, and which of their owners it asks. SPEC.md 12.1.

Follows a book: its columns, how old its news is, and the own leases that adverts do not show yet.
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol

from msgspec.structs import replace as with_fields

from ledger.fold import Lease
from p2pnode.clock import WallClock
from p2pnode.matching.book import Follower, Offer
from p2pnode.matching.columns import Columns, Query, Ranked, best_of, weights_in
from p2pnode.matching.order import Order
from p2pnode.matching.preferences import unmet_ppm
from p2pnode.matching.rows import Opinion
from p2pnode.matching.search import Known, Wish, misfit_of, parts_of, search, tier_of
from p2pnode.matching.spread import (
    LEAST,
    NEWCOMER,
    NEWCOMER_BELOW_PPM,
    NEWCOMERS_MAX,
    PER_ACCOUNT_MAX,
    TRIED_KEPT,
    Tempo,
    asked_of,
    band_for,
    count_for,
    tries_newcomer,
)
from protocol.advert import keeps_out
from protocol.auction import Need
from protocol.gpu_class import GpuClass, gpu_class
from protocol.units import Digest, Mebibytes, Millis, MillisSpan, PublicKey

RTTS_KEPT_MAX: Final = 4_096
SILENT_MS: Final = MillisSpan(15_000)
"""An owner that could not be reached is held gone this long, whatever its advert says."""
MEASURED_MAX: Final = 32
"""Owners that are measured at once, where a renter wants none that is far."""
LOOKS_MAX: Final = 256
"""Offers of whose owners it is asked whether they are newcomers, best first: many may have failed.

Of one account no more than may be among the best, so that none uses up the looks at others."""
UNPLACED_US: Final = 2**63
REFLECTED_MS: Final = MillisSpan(90_000)
"""An advert that does not show a lease by then has not heard of it, or its owner is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leased:
    """A lease of ours, from when it was granted."""

    at_ms: Millis
    lease: Digest
    gpus: int


class Followed(Protocol):
    """See Book."""

    def follow(self, follower: Follower) -> None: ...

    def open_offers(self, now: Millis) -> list[Offer]: ...


class Thinks(Protocol):
    """See Standing."""

    def reliability_ppm(self, owner: PublicKey) -> int: ...

    def hazard_ppm_per_hour(self, owner: PublicKey) -> int: ...

    def is_clean(self, owner: PublicKey) -> bool: ...

    def is_newcomer(self, owner: PublicKey) -> bool: ...

    def bars(self, peer: PublicKey) -> str | None: ...


def _unknown(_offer: Offer) -> None:
    """How far an owner seems, to who has no place."""


class Market:
    """Owned by the renter; the book tells it of each change."""

    def __init__(
        self,
        book: Followed,
        *,
        own: PublicKey,
        account: PublicKey | None = None,
        region: str | None = None,
        thinks: Thinks,
        lease: Callable[[Digest], Lease | None],
        clock: WallClock,
        estimate_us: Callable[[Offer], int | None] = _unknown,
    ) -> None:
        """`lease` is what the ledger has of a lease, `estimate_us` how far an owner seems.

        `account` and `region` are ours; what runs for its own account no owner keeps out.
        """
        self._account = account
        self._region = region
        self._estimate_us = estimate_us
        self._book = book
        self._own = own
        self._thinks = thinks
        self._lease = lease
        self._clock = clock
        self._columns = Columns(
            lambda offer: Opinion(
                reliability_ppm=thinks.reliability_ppm(offer.signer),
                rtt_ms=self._seems_ms(offer),
                hazard_ppm_per_hour=thinks.hazard_ppm_per_hour(offer.signer),
            )
        )
        self._rtt_ms: dict[PublicKey, int] = {}
        self._leased: dict[bytes, list[_Leased]] = {}
        self._silent: dict[PublicKey, Millis] = {}
        self._tried: deque[PublicKey] = deque(maxlen=TRIED_KEPT)
        self.tempo: Final = Tempo()
        book.follow(self)

    def put(self, offer: Offer) -> None:
        """The newest advert of its group."""
        if offer.signer == self._own:
            return
        self._columns.put(offer)
        if offer.advert.issued_ms >= self._silent.get(offer.signer, 0):
            self._silent.pop(offer.signer, None)
        self.tempo.note_advert(offer)
        leased = self._leased.pop(offer.head[0], [])
        if left := [each for each in leased if offer.advert.issued_ms < each.at_ms]:
            self._leased[offer.head[0]] = left

    def drop(self, key: bytes) -> None:
        """The group's advert has expired."""
        self._columns.drop(key)
        self._leased.pop(key, None)

    def note_request(self, need: Need) -> None:
        """Somebody asks the market for this: we do, or a renter asks us."""
        self.tempo.note_request(_class_of(need), self._clock.now())

    def note_lease(self, offer: Offer, lease: Digest, gpus: int) -> None:
        """GPUs of this offer are ours, whatever its advert says until a newer one comes."""
        leased = _Leased(at_ms=self._clock.now(), lease=lease, gpus=gpus)
        self._leased.setdefault(offer.head[0], []).append(leased)

    def note_tried(self, owner: PublicKey) -> None:
        """A newcomer has won by being judged as others are."""
        self._tried.append(owner)

    def note_silent(self, owner: PublicKey) -> None:
        """An owner could not be reached: it is left alone until it is heard of, or for a while."""
        self._silent[owner] = self._clock.now()
        while len(self._silent) > RTTS_KEPT_MAX:
            del self._silent[next(iter(self._silent))]

    def note_rtt(self, owner: PublicKey, rtt_ms: int) -> None:
        """How long an owner took to answer."""
        if owner in self._rtt_ms or len(self._rtt_ms) < RTTS_KEPT_MAX:
            self._rtt_ms[owner] = rtt_ms

    def __len__(self) -> int:
        return len(self._columns)

    def shortlist(self, order: Order, *, seed: bytes, but: set[bytes]) -> list[Offer]:
        """Whom to ask next: a random part of the best offers, none of the groups in `but`.

        The older the news and the more requests there are, the more offers count as the best.
        """
        found = self._best(order, self._query(order), lambda offer: offer.head[0] not in but)
        return asked_of(found, seed=seed)

    def newcomer(self, order: Order, *, seed: bytes) -> Offer | None:
        """Of owners of whom little is known and nothing bad, one of the best, drawn by the seed.

        None in most auctions, and in all where the renter pays for certainty.
        """
        failed = sum(not self._thinks.is_clean(owner) for owner in self._tried)
        is_sure = "gold" in (order.tier, *order.choice.or_tiers) or order.renews is not None
        if is_sure or not tries_newcomer(seed, failed):
            return None
        query = replace(
            self._query(order),
            least=NEWCOMERS_MAX,
            most=NEWCOMERS_MAX,
            reliability_below_ppm=NEWCOMER_BELOW_PPM,
        )
        looks = Counter[PublicKey]()

        def may_be(offer: Offer) -> bool:
            account = offer.certificate.root
            if looks[account] >= PER_ACCOUNT_MAX or looks.total() >= LOOKS_MAX:
                return False
            looks[account] += 1
            return self._thinks.is_newcomer(offer.signer)

        found = self._best(order, query, may_be)
        return next(iter(asked_of(found, seed=seed + NEWCOMER)), None)

    def _query(self, order: Order) -> Query:
        now = self._clock.now()
        stale_ppm = self.tempo.stale_ppm(_class_of(order.need), now)
        return Query(
            wish=order.wish(now),
            span_ms=order.span_ms,
            now=now,
            weights=order.weights,
            bytes_to_move=order.bytes_to_move,
            band_ppm=band_for(stale_ppm),
            least=LEAST,
            most=count_for(stale_ppm),
            per_account=PER_ACCOUNT_MAX,
        )

    def _best(self, order: Order, query: Query, may_be: Callable[[Offer], bool]) -> list[Ranked]:
        """The best offers that fit, of those that may be asked; of others `may_be` is not asked."""
        wish, preferences = query.wish, order.choice.preferences()
        misfit = misfit_of(wish)

        def fits(offer: Offer) -> bool:
            return (
                self.shut_out(offer, order) is None
                and misfit(self.as_leased(offer, query.now), self.known_of(offer)) is None
                and may_be(offer)
            )

        def unmet(offer: Offer) -> int:
            return unmet_ppm(offer, preferences, self.known_of(offer))

        def best(part: Wish, rate: int) -> list[Ranked]:
            # An offer is ranked by the tier in which it will be asked, and by no other.
            asked = replace(query, wish=part, weights=weights_in(order.weights, rate))
            return self._columns.best(
                asked,
                fits=lambda offer: tier_of(offer, wish) == part.tier and fits(offer),
                unmet=unmet,
            )

        found = [(rate, best(part, rate)) for part, rate in parts_of(wish)]
        return best_of(query, found)

    def _seems_ms(self, offer: Offer) -> int:
        """How far its owner is, as far as that is known; it is ranked by it, and asked then."""
        return self.rtt_of(offer) or 0

    def rtt_of(self, offer: Offer) -> int | None:
        """The round trip to its owner, measured or else estimated by its coordinate, in ms."""
        if (measured := self._rtt_ms.get(offer.signer)) is not None:
            return measured
        seems_us = self._estimate_us(offer)
        return None if seems_us is None else -(-seems_us // 1_000)

    def rank_anew(self, offers: list[Offer]) -> None:
        """Rank what these owners offer now by what is known of them now."""
        owners = {offer.signer for offer in offers}
        for offer in self.offers():
            if offer.signer in owners:
                self._columns.put(offer)

    def unmeasured(self, wish: Wish, *, likes_near: bool = False) -> list[Offer]:
        """Some of the offers that fit but for a round trip that is not known, if it matters.

        The nearest by their coordinates first, then the others, cheapest first: coordinates say
        whom to measure and to ask, and nothing else.
        """
        if wish.rtt_ms_max is None and not likes_near:
            return []
        near = replace(wish, rtt_ms_max=None)
        fits = search(self.offers(), near, self.known_of).fits
        unknown = [offer for offer in fits if offer.signer not in self._rtt_ms]
        # Sorting keeps the order of prices where no place is stated.
        far_us = {id(offer): self._estimate_us(offer) for offer in unknown}
        unknown.sort(key=lambda offer: UNPLACED_US if (far := far_us[id(offer)]) is None else far)
        return unknown[:MEASURED_MAX]

    def known_of(self, offer: Offer) -> Known:
        """What we know of an offer's owner by ourselves."""
        return Known(
            reliability_ppm=self._thinks.reliability_ppm(offer.signer),
            rtt_ms=self._rtt_ms.get(offer.signer),
            hazard_ppm_per_hour=self._thinks.hazard_ppm_per_hour(offer.signer),
        )

    def shut_out(self, offer: Offer, order: Order) -> str | None:
        """Why its owner is not asked whatever it offers, in a word; None if it may be."""
        if order.renews is not None and offer.signer != order.renews.owner:
            return "other"
        if self._thinks.bars(offer.signer) is not None:
            return "offender"
        if offer.signer in order.witnesses:
            return "witness"
        if self._clock.now() - self._silent.get(offer.signer, -SILENT_MS) < SILENT_MS:
            return "out of reach"
        if offer.signer in order.avoid:
            return "failed before"
        if offer.certificate.root == self._account:
            return None
        return keeps_out(offer.advert, region=self._region, has_image=order.image is not None)

    def offers(self) -> list[Offer]:
        """Those of others that are open now, one by one."""
        offers = self._book.open_offers(self._clock.now())
        return [offer for offer in offers if offer.signer != self._own]

    def _is_released(self, lease: Digest) -> bool:
        """Whether the owner has let it go, as far as we have its feed."""
        known = self._lease(lease)
        return known is not None and known.reason is not None

    def as_leased(self, offer: Offer, now: Millis) -> Offer:
        """The offer less what we have leased of it since."""
        leased = self._leased.get(offer.head[0])
        if leased is None:
            return offer
        ours = sum(
            each.gpus
            for each in leased
            if now - each.at_ms <= REFLECTED_MS and not self._is_released(each.lease)
        )
        free = max(0, offer.advert.free - ours)
        return replace(offer, advert=with_fields(offer.advert, free=free))


def _class_of(need: Need) -> GpuClass:
    return gpu_class(Mebibytes(need.vram_mib_min))
