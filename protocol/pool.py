"""Which places a job on several nodes takes, so that a third peer can recompute it.

SPEC.md section 12.3. Places are scored by the rule of `protocol.scoring`: by their adverts until
their owners have bid, by the bids from then on.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, UnsetType

from protocol.advert import Advert, Tier, ask_for, price_for
from protocol.answers import check_answer, check_refusal
from protocol.auction import Bid, Refusal, Rfq
from protocol.certificate import check_in_force, read_certificate
from protocol.codec import CurrencyCode, Hash, Span, UInt, Wire
from protocol.errors import PeerFault
from protocol.limits import (
    LEASE_UNITS_MAX,
    POOL_NODES_MAX,
    POOL_OFFERS_MAX,
    POOL_TRIES_MAX,
)
from protocol.offers import SealedAdvert, group_key
from protocol.scoring import (
    BAND_PPM,
    PPM,
    Deal,
    Judged,
    SealedQuote,
    SealedRefusal,
    Weights,
    deal_of,
    expected_cost,
)
from protocol.units import Digest, Micros, MillisSpan, NetId, PublicKey
from protocol.wire import Sealed, unpack

ONE_ACCOUNT_PPM: Final = 100_000
"""One account may cost a tenth more than several would: it answers for the whole."""


class SeenOffer(Wire, frozen=True, kw_only=True):
    """An offer that fitted, and what the renter thought of it."""

    advert: SealedAdvert
    tier: Tier
    """In which it would be asked."""
    places: Annotated[int, Meta(ge=1, le=POOL_NODES_MAX)]
    """For how many nodes it has room; the renter may know of less than the advert says."""
    judged: Judged


class Asked(Wire, frozen=True, kw_only=True):
    """A question for an exclusive bid; without an answer nothing came that could be taken."""

    rfq: SealedQuote
    bid: SealedQuote | UnsetType = UNSET
    refusal: SealedRefusal | UnsetType = UNSET


Try = Annotated[tuple[Asked, ...], Meta(min_length=1, max_length=POOL_NODES_MAX)]
"""Owners that were asked one after the other, until all nodes were held or one was not."""


class PoolRecord(Wire, frozen=True, kw_only=True):
    """What a renter saw and chose for a job on several nodes; kept with the job."""

    v: Literal[1] = 1
    rule: Literal[2] = 2
    """Of scoring."""
    pool_rule: Literal[1] = 1
    """Of the choice among places."""
    nodes: Annotated[int, Meta(ge=2, le=POOL_NODES_MAX)]
    gpus: Annotated[int, Meta(ge=1, le=LEASE_UNITS_MAX)]
    """Of each node."""
    span_ms: Span
    money: CurrencyCode
    weights: Weights
    offers_seen: UInt
    offers: Annotated[tuple[SeenOffer, ...], Meta(max_length=POOL_OFFERS_MAX)]
    tries: Annotated[tuple[Try, ...], Meta(max_length=POOL_TRIES_MAX)]
    chosen: Annotated[tuple[Hash, ...], Meta(max_length=POOL_NODES_MAX)]
    """Digests of the bids that were taken, by rank; none, or one for each node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOffer:
    """An offer with room for nodes of the job."""

    key: bytes
    """Its group key."""
    owner: PublicKey
    account: PublicKey
    places: int
    score: Micros
    """Of each place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """The offers of a pool as they are after some tries."""

    nodes: int
    offers: dict[bytes, PoolOffer]
    """By group key; those that gave no hold are gone."""
    tries: int = 0

    def plan(self) -> list[PoolOffer]:
        """The offer of each place, in the order in which their owners are asked; see `plan`."""
        return plan(self.offers.values(), self.nodes)

    def without(self, key: bytes) -> "Candidates":
        """After a try in which this offer gave no hold."""
        left = {each: offer for each, offer in self.offers.items() if each != key}
        return replace(self, offers=left, tries=self.tries + 1)

    def held(self, bids: list[tuple[bytes, Micros]]) -> "Candidates":
        """After a try in which all nodes are held, by bids of these offers with these scores."""
        scores: dict[bytes, Micros] = {}
        for key, score in bids:
            scores[key] = max(score, scores.get(key, score))
        told = {
            key: replace(offer, score=scores.get(key, offer.score))
            for key, offer in self.offers.items()
        }
        return replace(self, offers=told, tries=self.tries + 1)

    def is_settled(self, bids: list[tuple[bytes, Micros]]) -> bool:
        """Whether these bids, which are `held`, are the ones to take.

        They are not where they are so much above the adverts that other places are better.
        """
        cost = sum(score for _, score in bids)
        best = sum(offer.score for offer in self.plan())
        return self.tries == POOL_TRIES_MAX or cost * PPM <= best * (PPM + BAND_PPM)


def plan(offers: Iterable[PoolOffer], nodes: int) -> list[PoolOffer]:
    """The places to ask for: of one account if that costs little more, else the cheapest.

    An offer comes once for each place; empty if there are too few. In ascending order of the
    owners' feeds: of two pools that want the same places one gets all of them. SPEC.md 12.3.
    """
    ordered = sorted(offers, key=lambda offer: (offer.score, offer.key))
    places = [offer for offer in ordered for _ in range(min(offer.places, nodes))]
    if len(places) < nodes:
        return []
    by_account: dict[PublicKey, list[PoolOffer]] = {}
    for place in places:
        by_account.setdefault(place.account, []).append(place)
    chosen = places[:nodes]
    whole = [found[:nodes] for found in by_account.values() if len(found) >= nodes]
    best = min(whole, key=lambda found: (_cost(found), found[0].account), default=None)
    if best is not None and _cost(best) * PPM <= _cost(chosen) * (PPM + ONE_ACCOUNT_PPM):
        chosen = best
    return sorted(chosen, key=lambda place: (place.owner, place.key))


def _cost(places: list[PoolOffer]) -> int:
    return sum(place.score for place in places)


def advert_score(
    advert: Advert, seen: Judged, *, tier: Tier, gpus: int, span_ms: MillisSpan, weights: Weights
) -> Micros:
    """What a place of this offer is expected to cost, by its advert. SPEC.md 12.1."""
    asked = price_for(advert, tier, gpus) or 0
    rate = dict(weights.rates).get(advert.money, PPM)
    deal = Deal(
        micro_per_gpu_hour=Micros(-(-asked * rate // PPM)),
        gpus=gpus,
        span_ms=span_ms,
        wait_ms=MillisSpan(0),
        tier=tier,
    )
    return expected_cost(deal, seen, weights).score


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One question of a record, as anybody can recompute it."""

    turn: int
    """Which try, from 1 on."""
    offer: PoolOffer
    bid: Sealed[Bid] | None
    refusal: Sealed[Refusal] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """Where a record leaves the rule."""

    place: int
    """Which question of all, from 1 on; behind the last one: the choice."""
    tried: bytes | None
    """Group key of the offer that was asked, or digest of the bid that was chosen."""
    should: bytes | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recomputed:
    """What a third peer finds in a record."""

    offers: tuple[PoolOffer, ...]
    """By their adverts, cheapest first."""
    steps: tuple[Step, ...]
    deviation: Deviation | None


def recompute(record: PoolRecord, net: NetId) -> Recomputed:
    """The offers, the questions, and the first that was not the one that the rule wants.

    Raises PeerFault as `check_pool` does, but for `pool.choice`.
    """
    offers = _offers(record, net)
    steps, questions = _steps(record, offers, net)
    return Recomputed(
        offers=tuple(sorted(offers.values(), key=lambda offer: (offer.score, offer.key))),
        steps=tuple(steps),
        deviation=_deviation(
            record, Candidates(nodes=record.nodes, offers=offers), steps, questions
        ),
    )


def check_pool(record: PoolRecord, net: NetId) -> tuple[Digest, ...]:
    """The bids that were taken, by the rule; none if none were.

    Whether they were granted, only GRANTs show. Raises PeerFault `pool.twice` (an offer or a
    question twice), `pool.order` (messages that do not belong to one pool), `pool.choice`
    (another place should have been asked for, or other bids chosen), `bid.*`, `refusal.answer`,
    `advert.signer`, `certificate.*`, `codec.*` or `seal.*`.
    """
    if (wrong := recompute(record, net).deviation) is not None:
        raise PeerFault("pool.choice", wrong.text)
    return tuple(Digest(each) for each in record.chosen)


def _offers(record: PoolRecord, net: NetId) -> dict[bytes, PoolOffer]:
    found: dict[bytes, PoolOffer] = {}
    for seen in record.offers:
        sealed = unpack(seen.advert, net, Advert)
        advert = sealed.body
        certificate = read_certificate(advert.certificate, net)
        if certificate.feed != sealed.signer:
            raise PeerFault("advert.signer")
        check_in_force(certificate, advert.issued_ms)
        if seen.tier not in [ask.tier for ask in advert.tiers]:
            raise PeerFault("pool.order", f"an offer without {seen.tier}")
        if ask_for(advert, seen.tier) is None:
            raise PeerFault("pool.order", f"an offer in {seen.tier}, which has no price")
        if advert.state != "open" or seen.places > advert.free // record.gpus:
            raise PeerFault("pool.order", "an offer without so much room")
        if advert.money not in (record.money, *dict(record.weights.rates)):
            raise PeerFault("pool.order", "an offer in other money")
        key = group_key(sealed.signer, advert.group)
        if key in found:
            raise PeerFault("pool.twice", "an offer")
        found[key] = PoolOffer(
            key=key,
            owner=sealed.signer,
            account=certificate.root,
            places=seen.places,
            score=advert_score(
                advert,
                seen.judged,
                tier=seen.tier,
                gpus=record.gpus,
                span_ms=MillisSpan(record.span_ms),
                weights=record.weights,
            ),
        )
    return found


def _steps(
    record: PoolRecord, offers: dict[bytes, PoolOffer], net: NetId
) -> tuple[list[Step], list[Sealed[Rfq]]]:
    steps, questions = list[Step](), list[Sealed[Rfq]]()
    seen = dict(zip(offers, record.offers, strict=True))
    for turn, tried in enumerate(record.tries, 1):
        for asked in tried:
            rfq = unpack(asked.rfq, net, Rfq)
            offer = offers.get(group_key(rfq.body.owner, rfq.body.group))
            if offer is None or rfq.body.tier != seen[offer.key].tier:
                raise PeerFault("pool.order", "a question about no offer of it")
            _check_question(rfq, record, questions)
            questions.append(rfq)
            bid, refusal = _answers(asked, rfq, net)
            if bid is not None:
                _check_price(bid.body, seen[offer.key], record, net)
            steps.append(Step(turn=turn, offer=offer, bid=bid, refusal=refusal))
    return steps, questions


def _check_question(rfq: Sealed[Rfq], record: PoolRecord, before: list[Sealed[Rfq]]) -> None:
    body = rfq.body
    if rfq.digest in [each.digest for each in before]:
        raise PeerFault("pool.twice", "a question")
    if body.hold is UNSET or body.need.gpus != record.gpus:
        raise PeerFault("pool.order", "a question for something else")
    if body.end_ms - body.start_ms != record.span_ms:
        raise PeerFault("pool.order", "a question for another time")
    for other in before[:1]:
        first = (other.signer, other.body.need, other.body.notice_ms)
        if (rfq.signer, body.need, body.notice_ms) != first:
            raise PeerFault("pool.order", "questions of several renters or orders")


def _answers(
    asked: Asked, rfq: Sealed[Rfq], net: NetId
) -> tuple[Sealed[Bid] | None, Sealed[Refusal] | None]:
    bid = None if asked.bid is UNSET else unpack(asked.bid, net, Bid)
    refusal = None if asked.refusal is UNSET else unpack(asked.refusal, net, Refusal)
    if bid is not None:
        check_answer(rfq, bid)
        if bid.body.exclusive is UNSET:
            raise PeerFault("pool.order", "a bid that holds nothing")
    if refusal is not None:
        check_refusal(refusal, of=rfq.digest, owner=rfq.body.owner, renter=rfq.signer)
        if bid is not None:
            raise PeerFault("pool.order", "a yes and a no to one question")
    return bid, refusal


def _check_price(bid: Bid, seen: SeenOffer, record: PoolRecord, net: NetId) -> None:
    asks = price_for(unpack(seen.advert, net, Advert).body, seen.tier, record.gpus)
    if asks is None or bid.micro_per_gpu_hour > asks:
        raise PeerFault("pool.order", "a bid above its advert")


def _deviation(
    record: PoolRecord, left: Candidates, steps: list[Step], questions: list[Sealed[Rfq]]
) -> Deviation | None:
    judged = {
        offer_key: seen.judged for offer_key, seen in zip(left.offers, record.offers, strict=True)
    }
    place, last, is_kept = 0, list[Step](), False
    for turn in range(1, len(record.tries) + 1):
        last = [step for step in steps if step.turn == turn]
        wanted = [] if is_kept else left.plan()
        held: list[tuple[bytes, Micros]] = []
        for number, step in enumerate(last):
            should = wanted[number] if number < len(wanted) and len(held) == number else None
            if should is None or should.key != step.offer.key:
                return _wrong_question(place, step.offer, should)
            if step.bid is not None:
                deal = deal_of(questions[place].body, step.bid.body, record.weights)
                cost = expected_cost(deal, judged[step.offer.key], record.weights)
                held.append((step.offer.key, cost.score))
            place += 1
        if len(held) == record.nodes:
            left = left.held(held)
            is_kept = left.is_settled(held)
        elif last[-1].bid is None:
            left = left.without(last[-1].offer.key)
        else:
            # All that were asked hold, and another place was to be asked for.
            return _left_off(place, wanted[len(last)])
    bids = tuple(step.bid.digest for step in last if step.bid is not None) if is_kept else ()
    return _wrong_choice(place, record.chosen, bids)


def _wrong_question(place: int, tried: PoolOffer, should: PoolOffer | None) -> Deviation:
    wanted = "nobody was to be asked" if should is None else f"{_short(should)} was to be asked"
    return Deviation(
        place=place + 1,
        tried=tried.key,
        should=None if should is None else should.key,
        text=f"question {place + 1} went to {_short(tried)}, and {wanted}",
    )


def _left_off(place: int, should: PoolOffer) -> Deviation:
    text = f"question {place + 1} is missing: {_short(should)} was to be asked"
    return Deviation(place=place + 1, tried=None, should=should.key, text=text)


def _wrong_choice(
    place: int, chosen: tuple[bytes, ...], should: tuple[bytes, ...]
) -> Deviation | None:
    """Who held all that was wanted may still take none of it: its limits are its own."""
    if chosen in ((), should):
        return None
    pairs = zip((*chosen, *[None] * len(should)), (*should, *[None] * len(chosen)), strict=True)
    tried, wanted = next((one, other) for one, other in pairs if one != other)
    words = "none was to be taken" if wanted is None else f"it was to be {wanted.hex()[:12]}"
    name = "no bid" if tried is None else f"bid {tried.hex()[:12]}"
    text = f"{name} was taken for a node, and {words}"
    return Deviation(place=place + 1, tried=tried, should=wanted, text=text)


def _short(offer: PoolOffer) -> str:
    return f"offer {offer.key.hex()[:12]} of {offer.owner.hex()[:12]}"
