"""Which bid wins: one integer rule, by which a third peer recomputes a renter's choice.

SPEC.md section 12. Version 2 scores in expected money for the whole job. Adverts are scored by the
same function, so that what a renter asks for first is what it would choose.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from protocol.advert import Tier
from protocol.answers import check_answer
from protocol.auction import Bid, Refusal, Rfq
from protocol.codec import CurrencyCode, Hash, Id16, Money, Span, UInt, Wire
from protocol.errors import PeerFault
from protocol.lease import MS_PER_HOUR, charge
from protocol.limits import BIDS_MAX, QUOTE_BYTES_MAX, RATES_MAX, REFUSAL_BYTES_MAX, SEAL_BYTES
from protocol.units import Digest, Micros, MillisSpan, NetId, PublicKey
from protocol.wire import unpack

PPM: Final = 1_000_000
BAND_PPM: Final = 20_000
"""Bids within 2 % of the best are as good: a random one of them wins, so that renters with the
same view do not all run to one owner."""

SealedQuote = Annotated[bytes, Meta(max_length=QUOTE_BYTES_MAX + SEAL_BYTES)]
SealedRefusal = Annotated[bytes, Meta(max_length=REFUSAL_BYTES_MAX + SEAL_BYTES)]
Share = Annotated[int, Meta(ge=0, le=PPM)]


class Judged(Wire, frozen=True, kw_only=True):
    """What a renter thinks of one offer, beside its price."""

    reliability_ppm: Share
    """How likely the owner serves to the end."""
    stage_ms: Span = MillisSpan(0)
    """How long the GPUs wait for the data, and are paid."""
    rtt_ms: UInt = 0
    hazard_ppm_per_hour: UInt = 0
    """Interruptions to be expected in an hour, in millionths; counts for bronze alone."""
    unmet_ppm: Share = 0
    """Of the preferences, weighed, the share that is not met."""


class Weights(Wire, frozen=True, kw_only=True):
    """What things beside the price are worth to the renter, in this auction."""

    delay_micro_per_hour: Money = Micros(0)
    """An hour in which the job does not run yet."""
    latency_micro_per_ms: Money = Micros(0)
    """Each millisecond of round-trip time, over the whole job."""
    redo_ms: Span = MillisSpan(0)
    """Work of each GPU that an interruption costs."""
    rates: Annotated[tuple[tuple[CurrencyCode, Money], ...], Meta(max_length=RATES_MAX)] = ()
    """Other money that was asked in, with what one unit is worth in micro-units of the renter's."""


UNWEIGHED: Final = Weights()
"""Price, staging, reliability and preferences decide."""


class Heard(Wire, frozen=True, kw_only=True):
    """One bid, the question that it answers, and what the renter thought of it."""

    rfq: SealedQuote
    bid: SealedQuote
    judged: Judged
    round: Annotated[int, Meta(ge=1, le=BIDS_MAX)] = 1
    """In which round of questions it came; a next one begins when all bids were tried in vain."""


class AuctionRecord(Wire, frozen=True, kw_only=True):
    """What a renter saw and chose; kept with the job."""

    v: Literal[1] = 1
    rule: Literal[2] = 2
    seed: Id16
    """Decides among bids that are as good."""
    weights: Weights
    offers_seen: UInt
    bids: Annotated[tuple[Heard, ...], Meta(max_length=BIDS_MAX)]
    refusals: Annotated[tuple[SealedRefusal, ...], Meta(max_length=BIDS_MAX)]
    chosen: Annotated[tuple[Hash, ...], Meta(max_length=BIDS_MAX)]
    """Digests of the bids that were taken, in order; all but the last gave nothing, and the last
    too if no lease names it."""


class Deal(Struct, frozen=True, kw_only=True):
    """What is scored, of a bid or of an advert."""

    micro_per_gpu_hour: Micros
    gpus: int
    span_ms: MillisSpan
    wait_ms: MillisSpan
    """From the start that was asked for to the one that is given."""
    tier: Tier


class Cost(Struct, frozen=True, kw_only=True):
    """The expected cost of a deal by its terms, none below zero, in micro-units."""

    price: Micros
    staging: Micros
    queue: Micros
    failure: Micros
    interruption: Micros
    latency: Micros
    unmet: Micros

    @property
    def score(self) -> Micros:
        """What it is expected to cost in all, least is best; never below the price."""
        return Micros(
            self.price
            + self.staging
            + self.queue
            + self.failure
            + self.interruption
            + self.latency
            + self.unmet
        )


def expected_cost(deal: Deal, judged: Judged, weights: Weights) -> Cost:
    """SPEC.md 12.1. Each term is rounded up by itself."""
    rate = deal.micro_per_gpu_hour
    price = charge(MillisSpan(deal.span_ms * deal.gpus), rate)
    staging = charge(MillisSpan(judged.stage_ms * deal.gpus), rate)
    late = deal.wait_ms + judged.stage_ms
    lost = 0
    if deal.tier == "bronze":
        lost = judged.hazard_ppm_per_hour * deal.span_ms * weights.redo_ms * deal.gpus * rate
    return Cost(
        price=price,
        staging=staging,
        queue=_share(late * weights.delay_micro_per_hour, MS_PER_HOUR),
        failure=_share((price + staging) * (PPM - judged.reliability_ppm), PPM),
        interruption=_share(lost, PPM * MS_PER_HOUR * MS_PER_HOUR),
        latency=Micros(judged.rtt_ms * weights.latency_micro_per_ms),
        unmet=_share(price * judged.unmet_ppm, PPM),
    )


def _share(product: int, by: int) -> Micros:
    return Micros(-(-product // by))


def deal_of(rfq: Rfq, bid: Bid, weights: Weights) -> Deal:
    """What a bid gives to who asked this question; it must be an answer to it."""
    rate = dict(weights.rates).get(bid.money, PPM)
    return Deal(
        micro_per_gpu_hour=_share(bid.micro_per_gpu_hour * rate, PPM),
        gpus=len(bid.units),
        span_ms=MillisSpan(bid.end_ms - bid.start_ms),
        wait_ms=MillisSpan(bid.start_ms - rfq.start_ms),
        tier=bid.tier,
    )


def ranking(bids: list[tuple[Digest, Micros]], seed: bytes) -> list[Digest]:
    """The digests of scored bids, in the order in which they are tried.

    The best and all within BAND_PPM of it come first, in an order drawn by the seed; then the
    others by score. Ties go by digest. In whatever order the bids come, the result is the same.
    """
    if not bids:
        return []
    ordered = sorted((score, digest) for digest, score in bids)
    best = ordered[0][0]
    band = [digest for score, digest in ordered if (score - best) * PPM <= best * BAND_PPM]
    band.sort(key=lambda digest: sha256(seed + digest).digest())
    return band + [digest for _, digest in ordered[len(band) :]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredBid:
    """A bid of a record, as anybody can recompute it."""

    digest: Digest
    owner: PublicKey
    bid: Bid
    judged: Judged
    cost: Cost
    round: int


def scored_bids(record: AuctionRecord, net: NetId) -> list[ScoredBid]:
    """The record's bids in the order in which they are to be tried: round by round.

    Raises as `check_auction` does, but for `auction.choice`.
    """
    found: dict[Digest, ScoredBid] = {}
    asked: dict[Digest, Rfq] = {}
    renters = [unpack(refusal, net, Refusal).body.renter for refusal in record.refusals]
    for heard in record.bids:
        rfq = unpack(heard.rfq, net, Rfq)
        bid = unpack(heard.bid, net, Bid)
        check_answer(rfq, bid)
        if rfq.digest in asked:
            raise PeerFault("auction.twice")
        asked[rfq.digest] = rfq.body
        renters.append(rfq.signer)
        found[bid.digest] = ScoredBid(
            digest=bid.digest,
            owner=bid.signer,
            bid=bid.body,
            judged=heard.judged,
            cost=expected_cost(
                deal_of(rfq.body, bid.body, record.weights), heard.judged, record.weights
            ),
            round=heard.round,
        )
    if not all(map(_is_uniform, (renters, *_wanted(asked.values(), record.weights)))):
        raise PeerFault("auction.order", "of several renters or orders")
    rounds: dict[int, list[tuple[Digest, Micros]]] = {}
    for each in found.values():
        rounds.setdefault(each.round, []).append((each.digest, each.cost.score))
    order = [digest for number in sorted(rounds) for digest in ranking(rounds[number], record.seed)]
    return [found[digest] for digest in order]


def order_of(record: AuctionRecord, net: NetId) -> list[Digest]:
    """The digests of `scored_bids`."""
    return [scored.digest for scored in scored_bids(record, net)]


def _wanted(asked: Iterable[Rfq], weights: Weights) -> tuple[Sequence[object], ...]:
    """What all questions of one auction have in common; of tiers, any of several may do."""
    questions, others = list(asked), dict(weights.rates)
    return (
        [(rfq.need, rfq.notice_ms, rfq.end_ms - rfq.start_ms) for rfq in questions],
        [rfq.money for rfq in questions if rfq.money not in others],
    )


def _is_uniform(values: Sequence[object]) -> bool:
    return all(value == values[0] for value in values)


def deviation(chosen: tuple[Digest, ...], order: list[Digest]) -> int | None:
    """Which try, from 0 on, was not the one that the order wants; None if all were."""
    for place, digest in enumerate(chosen):
        if place >= len(order) or digest != order[place]:
            return place
    return None


def check_auction(record: AuctionRecord, net: NetId) -> Digest | None:
    """The bid that was tried last, by the rule; None if none was.

    Whether it was granted, only a GRANT shows. Raises PeerFault `bid.*` (a bid that is no answer),
    `auction.twice` (two bids to one question), `auction.order` (questions or refusals that belong
    to several auctions), `auction.choice` (another bid should have been tried), or `codec.*` and
    `seal.*`.
    """
    if (place := deviation(record.chosen, order_of(record, net))) is not None:
        raise PeerFault("auction.choice", f"another bid was to be try {place + 1}")
    return record.chosen[-1] if record.chosen else None
