"""Whether we quote for a request, and what. Pure; the owner's policy and books are arguments."""

from dataclasses import dataclass
from typing import Final

from msgspec import UNSET

from p2pnode.matching.free_units import TurnOf, free_units
from p2pnode.matching.pricing import price
from p2pnode.matching.provider import Posting, Shelf
from p2pnode.matching.shape import shortfall
from p2pnode.quantities import format_span
from protocol.auction import Bid, Reason, Rfq
from protocol.lease import Terms
from protocol.units import Digest, Millis, MillisSpan, PublicKey

LEAD_MS: Final = MillisSpan(500)
"""A lease starts at least this long after its bid, so that it can be granted before."""
BID_LIFE_MS: Final = MillisSpan(10_000)
HOLD_MS: Final = MillisSpan(5_000)
"""An exclusive bid is kept this long: enough to ask some owners one after the other."""
LAPSE_MS: Final = MillisSpan(60_000)
"""A grant without a job holds the units this long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A request for quote as it reached us."""

    rfq: Rfq
    digest: Digest
    renter: PublicKey


@dataclass(frozen=True, slots=True)
class No:
    """Why there is no bid."""

    reason: Reason
    detail: str = ""


def quote(
    question: Question,
    *,
    shelf: Shelf | None,
    posting: Posting,
    turn_of: TurnOf,
    now: Millis,
    held: frozenset[bytes] = frozenset(),
) -> Bid | No:
    """Our firm bid, or the first reason against one.

    `held` are units that an exclusive bid keeps for another renter. The bid's `head_seq` is left
    to who signs it.
    """
    rfq = question.rfq
    if shelf is None or posting.ask is None:
        return No("CLOSED", "nothing is offered under that name")
    if why := _policy(rfq, posting):
        return No("POLICY", why)
    asked = price(rfq, posting)
    if asked is None:
        return No("POLICY", f"tier {rfq.tier} is not offered")
    if why := shortfall(rfq.need, shelf, posting):
        return No("SHAPE", why)
    start = Millis(max(rfq.start_ms, now + LEAD_MS))
    end = Millis(start + (rfq.end_ms - rfq.start_ms))
    units = free_units(shelf, turn_of, start=start, end=end, held=held)
    if len(units) < rfq.need.gpus:
        return No("TAKEN", f"{len(units)} of {len(shelf.units)} GPUs are free then")
    return Bid(
        rfq=question.digest,
        renter=question.renter,
        group=rfq.group,
        units=units[: rfq.need.gpus],
        tier=rfq.tier,
        start_ms=start,
        end_ms=end,
        micro_per_gpu_hour=asked,
        money=posting.money,
        period_ms=posting.period_ms,
        notice_ms=rfq.notice_ms,
        lapse_ms=LAPSE_MS,
        terms=Terms(isolation=posting.isolation),
        gpu=shelf.source,
        head_seq=0,
        issued_ms=now,
        valid_until_ms=Millis(now + (BID_LIFE_MS if rfq.hold is UNSET else HOLD_MS)),
        exclusive=rfq.hold,
    )


def _policy(rfq: Rfq, posting: Posting) -> str | None:
    span = rfq.end_ms - rfq.start_ms
    if rfq.money != posting.money:
        return f"asks in {posting.money}"
    if not posting.lease_ms_min <= span <= posting.lease_ms_max:
        least, most = map(format_span, (posting.lease_ms_min, posting.lease_ms_max))
        return f"leases of {least} to {most} only"
    return None
