"""Auctions as API documents: their bids, and whether their outcome was right."""

from typing import Literal

from msgspec import Struct

from p2pnode.api.ledger_documents import KnownNetworkDocument


class BidDocument(Struct, frozen=True, kw_only=True):
    """A bid, what the renter thought of it, and what it is expected to cost, term by term."""

    bid: str
    owner: str
    round: int
    micro_per_gpu_hour: int
    reliability_ppm: int
    stage_ms: int
    rtt_ms: int
    hazard_ppm_per_hour: int
    unmet_ppm: int
    price_micro: int
    staging_micro: int
    queue_micro: int
    failure_micro: int
    interruption_micro: int
    latency_micro: int
    unmet_micro: int
    score_micro: int


class DeviationDocument(Struct, frozen=True, kw_only=True):
    """Where an auction breaks a rule of the specification."""

    rule: str
    text: str
    place: int | None
    """Which try it was, from 1 on; none if the record as a whole does not hold. Of a job on several
    nodes, which question, and behind the last one the choice."""
    tried: str | None
    should: str | None
    """The bid that was to be tried there; none if none was left. Of a job on several nodes, the key
    of the offer that was to be asked for."""


class AuctionDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode job bids`: what was bid, and whether the choice follows the rule.

    The bids come in the order in which they are to be tried; there are none if the record does
    not hold.
    """

    schema: str = "p2pnode.job.bids/2"
    rule: int
    offers_seen: int
    bids: tuple[BidDocument, ...]
    refusals: tuple[dict[str, str], ...]
    chosen: tuple[str, ...]
    is_by_the_rule: bool
    deviation: DeviationDocument | None


class PoolOfferDocument(Struct, frozen=True, kw_only=True):
    """An offer that a job on several nodes chose among, by its advert."""

    key: str
    owner: str
    account: str
    places: int
    """For how many of the nodes it has room."""
    score_micro: int
    """What each of them is expected to cost."""


class PoolAskedDocument(Struct, frozen=True, kw_only=True):
    """A question for units to be held, and what came of it."""

    turn: int
    """All owners that were asked in one go, from 1 on."""
    key: str
    owner: str
    answer: Literal["held", "refused", "none"]
    """`none`: none came in time, or none that could be taken."""
    bid: str | None
    micro_per_gpu_hour: int | None
    money: str | None
    reason: str
    """Of a refusal, else empty."""


class PoolAuctionDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode pool bids`: whom a job on several nodes asked, and whether by the rule.

    Offers come cheapest first and questions as they were asked; there are none if the record does
    not hold.
    """

    schema: str = "p2pnode.pool.bids/1"
    rule: int
    """Of scoring."""
    pool_rule: int
    nodes: int
    gpus: int
    money: str
    offers_seen: int
    offers: tuple[PoolOfferDocument, ...]
    asked: tuple[PoolAskedDocument, ...]
    chosen: tuple[str, ...]
    """Bids, by rank; empty if none were taken."""
    is_by_the_rule: bool
    deviation: DeviationDocument | None


class AuctionVerifyDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode auction verify`: what anybody recomputes from a record, without a node."""

    schema: str = "p2pnode.auction.verify/2"
    network: KnownNetworkDocument
    auction: AuctionDocument | None
    """Null where it is of a job on several nodes."""
    pool: PoolAuctionDocument | None
