"""Whether a bid, a refusal or a lease request answers what it names. SPEC.md 9.2, 9.3 and 10.3."""

from typing import Final, get_args

from msgspec import UNSET

from protocol.advert import Isolation
from protocol.auction import Bid, Need, Refusal, Rfq, latest_start
from protocol.errors import PeerFault
from protocol.genesis import Genesis
from protocol.lease import LeaseRequest, Terms, charge, digest_of_terms
from protocol.limits import INT_MAX
from protocol.units import Digest, Millis, MillisSpan, PublicKey
from protocol.wire import Sealed

ISOLATIONS: Final[tuple[Isolation, ...]] = get_args(Isolation)
"""Weakest first."""


def check_bid(bid: Sealed[Bid], rfq: Sealed[Rfq], *, genesis: Genesis, now: Millis) -> None:
    """Whether a renter may take the bid as an answer to its question. SPEC.md 9.2.

    Raises PeerFault `bid.*`.
    """
    check_answer(rfq, bid)
    given = bid.body
    if not 0 < given.valid_until_ms - given.issued_ms <= genesis.bounds.bid_life_ms:
        raise PeerFault("bid.life")
    if given.issued_ms > now + genesis.bounds.skew_ms:
        raise PeerFault("bid.future")
    if now > given.valid_until_ms:
        raise PeerFault("bid.expired")
    if given.gpu == "simulated" and not genesis.simulation_allowed:
        raise PeerFault("bid.simulated")


def check_answer(rfq: Sealed[Rfq], bid: Sealed[Bid]) -> None:
    """Whether the bid answers this question and gives what it asks for, at any time.

    Raises PeerFault `bid.answer`, `bid.units`, `bid.span`, `bid.notice`, `bid.terms` or `bid.sum`.
    """
    asked, given = rfq.body, bid.body
    same = (
        given.rfq == rfq.digest
        and given.renter == rfq.signer
        and bid.signer == asked.owner
        and given.group == asked.group
        and given.tier == asked.tier
        and given.renews == asked.renews
        and given.money == asked.money
    )
    if not same:
        raise PeerFault("bid.answer", "answers another question")
    different = len({turn.unit: turn for turn in given.units})
    if not different == len(given.units) == asked.need.gpus:
        raise PeerFault("bid.units")
    _check_span(asked, given)
    if given.notice_ms < asked.notice_ms:
        raise PeerFault("bid.notice")
    if why := _shortfall(asked.need, given.terms):
        raise PeerFault("bid.terms", why)
    if charge(gpu_span(given), given.micro_per_gpu_hour) > INT_MAX:
        raise PeerFault("bid.sum", "more than can be encoded")


def _check_span(asked: Rfq, given: Bid) -> None:
    if given.end_ms - given.start_ms != asked.end_ms - asked.start_ms:
        raise PeerFault("bid.span", "of another length")
    if given.start_ms < asked.start_ms:
        raise PeerFault("bid.span", "starts before it may")
    # Else a cheap lease next year would win every auction.
    if given.start_ms > max(latest_start(asked), given.valid_until_ms):
        raise PeerFault("bid.span", "starts later than asked, and than the bid holds")


def _shortfall(need: Need, terms: Terms) -> str | None:
    """Where the terms give less than is needed; what they do not name is not judged."""
    if need.isolation_min is not UNSET and ISOLATIONS.index(terms.isolation) < ISOLATIONS.index(
        need.isolation_min
    ):
        return f"isolates by {terms.isolation}"
    pairs = (
        ("cpus", need.cpus_min, terms.cpus),
        ("memory_mib", need.memory_mib_min, terms.memory_mib),
        ("disk_mib", need.disk_mib_min, terms.disk_mib),
    )
    for name, least, given in pairs:
        if least is not UNSET and given is not UNSET and given < least:
            return f"gives {given} {name}"
    return None


def check_refusal(
    refusal: Sealed[Refusal], *, of: Digest, owner: PublicKey, renter: PublicKey
) -> None:
    """Whether it is this owner's no to what we sealed. Raises PeerFault `refusal.answer`."""
    if (refusal.signer, refusal.body.of, refusal.body.renter) != (owner, of, renter):
        raise PeerFault("refusal.answer", "refuses something else")


def check_takes(request: Sealed[LeaseRequest], bid: Sealed[Bid]) -> None:
    """Whether the request takes this bid as it was made. Raises PeerFault `request.bid`."""
    asked, given = request.body, bid.body
    same = (
        (asked.bid, asked.owner) == (bid.digest, bid.signer)
        and given.renter == request.signer
        and asked.units == given.units
        and (asked.start_ms, asked.end_ms) == (given.start_ms, given.end_ms)
        and (asked.tier, asked.money) == (given.tier, given.money)
        and asked.micro_per_gpu_hour == given.micro_per_gpu_hour
        and asked.period_ms == given.period_ms
        and (asked.notice_ms, asked.lapse_ms) == (given.notice_ms, given.lapse_ms)
        and (asked.remedy_ppm, asked.renews) == (given.remedy_ppm, given.renews)
        and asked.terms == digest_of_terms(given.terms)
    )
    if not same:
        raise PeerFault("request.bid", "differs from the bid that it names")


def gpu_span(bid: Bid) -> MillisSpan:
    """GPU-milliseconds of the whole lease."""
    return MillisSpan((bid.end_ms - bid.start_ms) * len(bid.units))
