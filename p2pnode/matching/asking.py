"""What a renter sends to owners: its question about an offer, and its request for a bid. Pure."""

from typing import Final

from msgspec import UNSET

from p2pnode.matching.book import Offer
from p2pnode.matching.order import START_MS, Order
from p2pnode.matching.search import converted, tier_of
from protocol.advert import Region, remedy_for
from protocol.auction import Bid, Rfq
from protocol.lease import LeaseRequest, charge, digest_of_terms
from protocol.limits import REQUEST_LIFE_MS_MAX
from protocol.units import Micros, Millis, MillisSpan
from protocol.wire import Sealed

RFQ_LIFE_MS: Final = 5_000


def rfq_for(
    order: Order,
    offer: Offer,
    *,
    now: Millis,
    nonce: bytes,
    hold: bool = False,
    region: Region | None = None,
) -> Rfq:
    """The question to this offer's owner; with `hold`, for an exclusive bid.

    `region`: ours, told to the owner; None where it is not known.
    """
    start = Millis(max(now + START_MS, order.start_ms or 0))
    return Rfq(
        owner=offer.signer,
        group=offer.advert.group,
        incarnation=offer.advert.incarnation,
        seq=offer.advert.seq,
        need=order.need,
        tier=tier_of(offer, order.wish(now)) or order.tier,
        start_ms=start,
        end_ms=Millis(start + order.span_ms),
        start_by_ms=UNSET if order.late_ms is None else Millis(start + order.late_ms),
        notice_ms=order.notice_ms,
        renews=UNSET if order.renews is None else order.renews.lease,
        money=offer.advert.money,
        region=UNSET if region is None else region,
        hold="yes" if hold else UNSET,
        nonce=nonce,
        issued_ms=now,
        not_after_ms=Millis(now + RFQ_LIFE_MS),
    )


def request_for(order: Order, sealed: Sealed[Bid], *, now: Millis, nonce: bytes) -> LeaseRequest:
    """What takes this bid as it was made."""
    bid = sealed.body
    return LeaseRequest(
        owner=sealed.signer,
        bid=sealed.digest,
        units=bid.units,
        start_ms=bid.start_ms,
        end_ms=bid.end_ms,
        tier=bid.tier,
        micro_per_gpu_hour=bid.micro_per_gpu_hour,
        money=bid.money,
        period_ms=bid.period_ms,
        notice_ms=bid.notice_ms,
        lapse_ms=bid.lapse_ms,
        remedy_ppm=bid.remedy_ppm,
        renews=bid.renews,
        terms=digest_of_terms(bid.terms),
        job=UNSET if order.job is None else order.job,
        witnesses=order.witnesses or UNSET,
        quorum=order.quorum or UNSET,
        nonce=nonce,
        issued_ms=now,
        not_after_ms=Millis(now + REQUEST_LIFE_MS_MAX),
    )


def beyond(bid: Bid, order: Order) -> str | None:
    """Which limit of the order the bid breaks, in a word; None if it keeps all of them."""
    wish = order.wish()
    price = converted(bid.micro_per_gpu_hour, bid.money, wish)
    if price is None:
        return "money"
    if order.ask_max is not None and price > order.ask_max:
        return "price"
    if order.total_max is not None and total_of(price, order) > order.total_max:
        return "total"
    is_late = wish.end_by_ms is not None and bid.end_ms > wish.end_by_ms
    return "deadline" if is_late else None


def withholds(bid: Bid, offer: Offer) -> bool:
    """Whether a gold bid names less of a remedy than the advert on which it was asked for."""
    named = 0 if bid.remedy_ppm is UNSET else bid.remedy_ppm
    return bid.tier == "gold" and named < remedy_for(offer.advert)


def total_of(micro_per_gpu_hour: Micros, order: Order) -> Micros:
    """What a lease at this price costs if all of the time is used."""
    return charge(MillisSpan(order.span_ms * order.need.gpus), micro_per_gpu_hour)
