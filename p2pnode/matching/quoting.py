"""Whether we quote for a request, and what. Pure; the owner's policy and books are arguments."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from msgspec import UNSET

from ledger.units_chain import Turn, next_place, overlaps
from p2pnode.matching.provider import Posting, Shelf
from p2pnode.matching.search import is_model
from p2pnode.quantities import format_span
from protocol.auction import Bid, Need, Reason, Rfq
from protocol.lease import Terms, UnitTurn
from protocol.limits import OPEN_INTERVALS_SOFT_MAX
from protocol.units import Digest, Millis, MillisSpan, PublicKey

LEAD_MS: Final = MillisSpan(500)
"""A lease starts at least this long after its bid, so that it can be granted before."""
BID_LIFE_MS: Final = MillisSpan(10_000)
LAPSE_MS: Final = MillisSpan(60_000)
"""A grant without a job holds the units this long."""

TurnOf = Callable[[bytes], Turn | None]
"""The newest ledger entry of one of our units."""

ISOLATIONS: Final = ("process", "container", "hardened", "gvisor", "vm", "tee")


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
    question: Question, *, shelf: Shelf | None, posting: Posting, turn_of: TurnOf, now: Millis
) -> Bid | No:
    """Our firm bid, or the first reason against one.

    The bid's `head_seq` is left to who signs it.
    """
    rfq = question.rfq
    if shelf is None or posting.ask is None:
        return No("CLOSED", "nothing is offered under that name")
    if why := _policy(rfq, posting) or _shape(rfq.need, shelf, posting):
        return why
    start = Millis(max(rfq.start_ms, now + LEAD_MS))
    end = Millis(start + (rfq.end_ms - rfq.start_ms))
    units = free_units(shelf, turn_of, start=start, end=end)
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
        micro_per_gpu_hour=posting.ask,
        money=posting.money,
        period_ms=posting.period_ms,
        notice_ms=rfq.notice_ms,
        lapse_ms=LAPSE_MS,
        terms=Terms(isolation=posting.isolation),
        gpu=shelf.source,
        head_seq=0,
        issued_ms=now,
        valid_until_ms=Millis(now + BID_LIFE_MS),
    )


def free_units(
    shelf: Shelf, turn_of: TurnOf, *, start: Millis, end: Millis
) -> tuple[UnitTurn, ...]:
    """The shelf's units that nobody holds within [start, end), with their next counters."""
    found = []
    for unit in shelf.units:
        turn = turn_of(unit)
        held = () if turn is None else turn.open
        if len(held) < OPEN_INTERVALS_SOFT_MAX and not overlaps(held, start, end):
            found.append(UnitTurn(unit=unit, ctr=next_place(turn).ctr))
    return tuple(found)


def _policy(rfq: Rfq, posting: Posting) -> No | None:
    span = rfq.end_ms - rfq.start_ms
    if rfq.tier not in posting.tiers or rfq.tier == "gold":
        return No("POLICY", f"tier {rfq.tier} is not offered")
    if rfq.money != posting.money:
        return No("POLICY", f"asks in {posting.money}")
    if not posting.lease_ms_min <= span <= posting.lease_ms_max:
        least, most = map(format_span, (posting.lease_ms_min, posting.lease_ms_max))
        return No("POLICY", f"leases of {least} to {most} only")
    return None


def _shape(need: Need, shelf: Shelf, posting: Posting) -> No | None:
    if need.gpus > len(shelf.units):
        return No("SHAPE", f"has {len(shelf.units)} GPUs")
    if need.vram_mib_min > shelf.vram:
        return No("SHAPE", f"has {shelf.vram} MiB")
    if need.models is not UNSET and not any(is_model(shelf.model, name) for name in need.models):
        return No("SHAPE", f"is a {shelf.model}")
    if need.regions is not UNSET and posting.region not in need.regions:
        return No("SHAPE", f"is in {posting.region}")
    if need.isolation_min is not UNSET and ISOLATIONS.index(posting.isolation) < ISOLATIONS.index(
        need.isolation_min
    ):
        return No("SHAPE", f"isolates by {posting.isolation}")
    return _host(need, posting)


def _host(need: Need, posting: Posting) -> No | None:
    for wanted, there, name in (
        (need.cpus_min, posting.cpus, "cores"),
        (need.memory_mib_min, posting.memory_mib, "MiB of memory"),
        (need.disk_mib_min, posting.disk_mib, "MiB of disk"),
    ):
        if wanted is not UNSET and wanted > there:
            return No("SHAPE", f"has {there} {name}")
    return None
