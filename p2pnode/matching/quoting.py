"""Whether we quote for a request, and what. Pure; the owner's policy and books are arguments."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from msgspec import UNSET

from ledger.fold import Lease
from p2pnode.matching.free_units import TurnOf, free_units
from p2pnode.matching.pricing import least, price
from p2pnode.matching.provider import Posting, Shelf
from p2pnode.matching.room import BREAKING_LIFE_MS, LEAD_MS, Room, room_for
from p2pnode.matching.shape import shortfall
from p2pnode.quantities import format_money, format_span
from protocol.auction import Bid, Reason, Rfq, latest_start
from protocol.lease import Terms
from protocol.units import Digest, Micros, Millis, MillisSpan, PublicKey

BID_LIFE_MS: Final = MillisSpan(10_000)
NOTICE_MS_MAX: Final = MillisSpan(600_000)
"""Who wants to be warned for longer wants silver, and would have it for the price of bronze."""
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
    held: frozenset[bytes] = frozenset(),
    bronze: Iterable[Lease] = (),
    told: Micros | None = None,
    now: Millis,
) -> Bid | No:
    """Our firm bid, or the first reason against one.

    `held` are units that an exclusive bid keeps for another renter, `bronze` our open leases of
    that tier. `told` is the ask in the advert on which the question is based: no bid exceeds it.
    The bid's `head_seq` is left to who signs it.
    """
    rfq = question.rfq
    if shelf is None or posting.ask is None:
        return No("CLOSED", "nothing is offered under that name")
    if posting.paused:
        return No("CLOSED", "the owner has paused this node")
    if why := _policy(rfq, posting):
        return No("POLICY", why)
    asked = price(rfq, posting, shelf)
    if asked is None:
        return No("POLICY", f"tier {rfq.tier} is not offered")
    if why := shortfall(rfq.need, shelf, posting):
        return No("SHAPE", why)
    room = _room(rfq, shelf, posting, turn_of, held, bronze, now)
    if isinstance(room, No):
        return room
    start, end = room.start_ms, Millis(room.start_ms + rfq.end_ms - rfq.start_ms)
    if rfq.renews is not UNSET and start != rfq.start_ms:
        return No("STALE", "too late to renew")
    if why := _moved(asked, least(posting, rfq.tier, start=start, end=end), told, posting.money):
        return No("PRICE_MOVED", why)
    return _bid(question, room, asked, shelf=shelf, posting=posting, now=now)


def renewable(
    lease: Lease | None, rfq: Rfq, renter: PublicKey, now: Millis
) -> tuple[bytes, ...] | No:
    """The units of a lease of ours that this question renews, or why it is not renewed."""
    if lease is None or lease.renter != renter or lease.reason is not None:
        return No("CLOSED", "there is no such lease to renew")
    if lease.request.tier == "bronze" or rfq.tier != lease.request.tier:
        return No("POLICY", "a lease is renewed in its own tier, and bronze is not")
    if not now < lease.ended_ms == rfq.start_ms:
        return No("STALE", "the next lease begins where the one before ends")
    if rfq.need.gpus != len(lease.request.units):
        return No("SHAPE", "the next lease has the units of the one before")
    return tuple(each.unit for each in lease.request.units)


def _bid(
    question: Question, room: Room, asked: Micros, *, shelf: Shelf, posting: Posting, now: Millis
) -> Bid:
    rfq = question.rfq
    return Bid(
        rfq=question.digest,
        renter=question.renter,
        group=rfq.group,
        units=room.units,
        tier=rfq.tier,
        start_ms=room.start_ms,
        end_ms=Millis(room.start_ms + rfq.end_ms - rfq.start_ms),
        micro_per_gpu_hour=asked,
        money=posting.money,
        period_ms=posting.period_ms,
        notice_ms=rfq.notice_ms,
        lapse_ms=LAPSE_MS,
        renews=rfq.renews,
        remedy_ppm=posting.remedy_ppm if rfq.tier == "gold" and posting.remedy_ppm else UNSET,
        terms=Terms(isolation=posting.isolation),
        gpu=shelf.source,
        head_seq=0,
        issued_ms=now,
        valid_until_ms=Millis(now + _life(rfq, room)),
        exclusive=rfq.hold,
    )


def _policy(rfq: Rfq, posting: Posting) -> str | None:
    span = rfq.end_ms - rfq.start_ms
    if rfq.money != posting.money:
        return f"asks in {posting.money}"
    if not posting.lease_ms_min <= span <= posting.lease_ms_max:
        least, most = map(format_span, (posting.lease_ms_min, posting.lease_ms_max))
        return f"leases of {least} to {most} only"
    if rfq.tier == "bronze" and rfq.notice_ms > NOTICE_MS_MAX:
        return f"gives at most {format_span(NOTICE_MS_MAX)} of notice"
    return None


def _room(  # noqa: PLR0917 - as `quote` has them
    rfq: Rfq,
    shelf: Shelf,
    posting: Posting,
    turn_of: TurnOf,
    held: frozenset[bytes],
    bronze: Iterable[Lease],
    now: Millis,
) -> Room | No:
    """Units for the whole of the time, within our hours; bronze may have to go for it."""
    start = Millis(max(rfq.start_ms, now + LEAD_MS))
    end = Millis(start + (rfq.end_ms - rfq.start_ms))
    if why := posting.timetable.why_closed(start, end, now=now):
        return No("CLOSED", why)
    held |= posting.in_use
    room = room_for(
        rfq.need.gpus,
        (start, end),
        shelf=shelf,
        turn_of=turn_of,
        held=held,
        bronze=bronze if _goes_before_bronze(rfq) else (),
        now=now,
    )
    if room is None or (room.is_breaking and room.start_ms > latest_start(rfq)):
        free = len(free_units(shelf, turn_of, start=start, end=end, held=held))
        return No("TAKEN", f"{free} of {len(shelf.units)} GPUs are free then")
    moved_end = Millis(room.start_ms + end - start)
    if why := posting.timetable.why_closed(room.start_ms, moved_end, now=now):
        return No("CLOSED", why)
    return room


def _moved(asked: Micros, floor: Micros, told: Micros | None, money: str) -> str | None:
    """Why the price that was asked for is not that of this lease; None if it is."""
    if floor > asked:
        return f"at least {format_money(floor, money)} then, and {format_money(asked, money)} now"
    if told is not None and asked > told:
        return f"it is {format_money(asked, money)} now"
    return None


def _goes_before_bronze(rfq: Rfq) -> bool:
    """Whether bronze is taken back for it, which an exclusive bid would not leave time for."""
    return rfq.tier != "bronze" and rfq.start_by_ms is not UNSET and rfq.hold is UNSET


def _life(rfq: Rfq, room: Room) -> MillisSpan:
    """How long the bid is firm."""
    if room.is_breaking:
        return BREAKING_LIFE_MS
    return BID_LIFE_MS if rfq.hold is UNSET else HOLD_MS
