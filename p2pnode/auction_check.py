"""What an auction's record shows, as a document; needs neither a node nor its libraries."""

from typing import Final

from msgspec import UNSET

from p2pnode.api.auction_documents import (
    AuctionDocument,
    AuctionVerifyDocument,
    BidDocument,
    DeviationDocument,
    PoolAskedDocument,
    PoolAuctionDocument,
    PoolOfferDocument,
)
from p2pnode.known_network import NAME_NETWORK, KnownNetwork
from protocol.auction import Refusal
from protocol.codec import decode
from protocol.errors import LocalFault, PeerFault
from protocol.limits import AUCTION_BYTES_MAX
from protocol.pool import Deviation, PoolRecord, Step, recompute
from protocol.scoring import AuctionRecord, ScoredBid, deviation, scored_bids
from protocol.units import NetId
from protocol.wire import unpack

_NO_RECORD: Final = "p2pnode job bids JOB --save FILE writes one, and pool bids"


def verify_auction(raw: bytes, known: KnownNetwork | None) -> AuctionVerifyDocument:
    """What anybody recomputes from the record. Raises LocalFault if it is none."""
    if known is None:
        raise LocalFault("A record does not name its network.", NAME_NETWORK)
    record = read_record(raw)
    if isinstance(record, PoolRecord):
        return AuctionVerifyDocument(
            network=known.document(), auction=None, pool=pool_document(record, known.net)
        )
    return AuctionVerifyDocument(
        network=known.document(), auction=single_document(record, known.net), pool=None
    )


def read_record(raw: bytes) -> AuctionRecord | PoolRecord:
    """The record, of whichever kind. Raises LocalFault if it is none."""
    try:
        return decode(raw, AuctionRecord, size_max=AUCTION_BYTES_MAX)
    except PeerFault as fault:
        try:
            return decode(raw, PoolRecord, size_max=AUCTION_BYTES_MAX)
        except PeerFault:
            raise LocalFault(f"This is no record of an auction: {fault}.", _NO_RECORD) from fault


def auction_document(raw: bytes, net: NetId) -> AuctionDocument:
    """A single job's, from its bytes. Raises LocalFault if it is no record of one."""
    record = read_record(raw)
    if isinstance(record, PoolRecord):
        raise LocalFault("This is the record of a job on several nodes.", "p2pnode auction verify")
    return single_document(record, net)


def single_document(record: AuctionRecord, net: NetId) -> AuctionDocument:
    """The bids by the rule, and what deviates from it."""
    try:
        bids = scored_bids(record, net)
        refusals = [unpack(refusal, net, Refusal) for refusal in record.refusals]
        wrong = _choice(record, bids)
    except PeerFault as fault:
        bids, refusals = [], []
        wrong = DeviationDocument(
            rule=fault.rule, text=_words(fault), place=None, tried=None, should=None
        )
    return AuctionDocument(
        rule=record.rule,
        offers_seen=record.offers_seen,
        bids=tuple(map(_bid_document, bids)),
        refusals=tuple(
            {
                "owner": refusal.signer.hex(),
                "reason": refusal.body.reason,
                "detail": "" if refusal.body.detail is UNSET else refusal.body.detail,
            }
            for refusal in refusals
        ),
        chosen=tuple(digest.hex() for digest in record.chosen),
        is_by_the_rule=wrong is None,
        deviation=wrong,
    )


def _choice(record: AuctionRecord, bids: list[ScoredBid]) -> DeviationDocument | None:
    """The first try that was not the one that the rule wants."""
    order = [bid.digest for bid in bids]
    place = deviation(record.chosen, order)
    if place is None:
        return None
    tried = record.chosen[place].hex()
    should = order[place].hex() if place < len(order) else None
    text = f"try {place + 1} was bid {tried[:12]}, and was to be " + (
        "none: no bid was left" if should is None else f"bid {should[:12]}"
    )
    return DeviationDocument(
        rule="auction.choice", text=text, place=place + 1, tried=tried, should=should
    )


def pool_document(record: PoolRecord, net: NetId) -> PoolAuctionDocument:
    """Whom a job on several nodes asked, and what deviates from the rule."""
    wrong: DeviationDocument | None
    try:
        found = recompute(record, net)
        offers, steps, wrong = found.offers, found.steps, _pool_deviation(found.deviation)
    except PeerFault as fault:
        offers, steps = (), ()
        wrong = DeviationDocument(
            rule=fault.rule, text=_words(fault), place=None, tried=None, should=None
        )
    return PoolAuctionDocument(
        rule=record.rule,
        pool_rule=record.pool_rule,
        nodes=record.nodes,
        gpus=record.gpus,
        money=record.money,
        offers_seen=record.offers_seen,
        offers=tuple(
            PoolOfferDocument(
                key=offer.key.hex(),
                owner=offer.owner.hex(),
                account=offer.account.hex(),
                places=offer.places,
                score_micro=offer.score,
            )
            for offer in offers
        ),
        asked=tuple(map(_asked_document, steps)),
        chosen=tuple(digest.hex() for digest in record.chosen),
        is_by_the_rule=wrong is None,
        deviation=wrong,
    )


def _pool_deviation(found: Deviation | None) -> DeviationDocument | None:
    if found is None:
        return None
    return DeviationDocument(
        rule="pool.choice",
        text=found.text,
        place=found.place,
        tried=None if found.tried is None else found.tried.hex(),
        should=None if found.should is None else found.should.hex(),
    )


def _asked_document(step: Step) -> PoolAskedDocument:
    bid, refusal = step.bid, step.refusal
    return PoolAskedDocument(
        turn=step.turn,
        key=step.offer.key.hex(),
        owner=step.offer.owner.hex(),
        answer="held" if bid is not None else "none" if refusal is None else "refused",
        bid=None if bid is None else bid.digest.hex(),
        micro_per_gpu_hour=None if bid is None else bid.body.micro_per_gpu_hour,
        money=None if bid is None else bid.body.money,
        reason="" if refusal is None else refusal.body.reason,
    )


def _words(fault: PeerFault) -> str:
    """What it means, for who does not know the rules by name."""
    kinds = {
        "seal": "a message in it is not as its sender signed it, or of another network",
        "codec": "a message in it is damaged",
        "bid": "a bid in it does not answer its question",
        "auction": "its messages are not those of one auction",
        "pool": "its messages are not those of one job on several nodes",
        "refusal": "a refusal in it does not answer its question",
        "advert": "an advert in it is not its signer's",
        "certificate": "the certificate of an advert in it does not hold",
    }
    return kinds[fault.rule.partition(".")[0]] + (f": {fault.detail}" if fault.detail else "")


def _bid_document(scored: ScoredBid) -> BidDocument:
    judged, cost = scored.judged, scored.cost
    return BidDocument(
        bid=scored.digest.hex(),
        owner=scored.owner.hex(),
        round=scored.round,
        micro_per_gpu_hour=scored.bid.micro_per_gpu_hour,
        reliability_ppm=judged.reliability_ppm,
        stage_ms=judged.stage_ms,
        rtt_ms=judged.rtt_ms,
        hazard_ppm_per_hour=judged.hazard_ppm_per_hour,
        unmet_ppm=judged.unmet_ppm,
        price_micro=cost.price,
        staging_micro=cost.staging,
        queue_micro=cost.queue,
        failure_micro=cost.failure,
        interruption_micro=cost.interruption,
        latency_micro=cost.latency,
        unmet_micro=cost.unmet,
        score_micro=cost.score,
    )
