"""What an auction's record shows, as a document; needs neither a node nor its libraries."""

from typing import Final

from msgspec import UNSET

from p2pnode.api.auction_documents import (
    AuctionDocument,
    AuctionVerifyDocument,
    BidDocument,
    DeviationDocument,
)
from p2pnode.known_network import NAME_NETWORK, KnownNetwork
from protocol.auction import Refusal
from protocol.codec import decode
from protocol.errors import LocalFault, PeerFault
from protocol.limits import AUCTION_BYTES_MAX
from protocol.scoring import AuctionRecord, ScoredBid, deviation, scored_bids
from protocol.units import NetId
from protocol.wire import unpack

_NO_RECORD: Final = "p2pnode job bids JOB --save FILE writes one"


def verify_auction(raw: bytes, known: KnownNetwork | None) -> AuctionVerifyDocument:
    """What anybody recomputes from the record. Raises LocalFault if it is none."""
    if known is None:
        raise LocalFault("A record does not name its network.", NAME_NETWORK)
    return AuctionVerifyDocument(network=known.document(), auction=auction_document(raw, known.net))


def auction_document(raw: bytes, net: NetId) -> AuctionDocument:
    """The bids by the rule, and what deviates from it. Raises LocalFault if it is no record."""
    try:
        record = decode(raw, AuctionRecord, size_max=AUCTION_BYTES_MAX)
    except PeerFault as fault:
        raise LocalFault(f"This is no record of an auction: {fault}.", _NO_RECORD) from fault
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


def _words(fault: PeerFault) -> str:
    """What it means, for who does not know the rules by name."""
    kinds = {
        "seal": "a message in it is not as its sender signed it, or of another network",
        "codec": "a message in it is damaged",
        "bid": "a bid in it does not answer its question",
        "auction": "its messages are not those of one auction",
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
