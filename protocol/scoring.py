"""Which bid wins: one integer rule, by which a third peer recomputes a renter's choice.

SPEC.md section 12. Version 1 scores in expected money: the price of the whole time, and what is
likely to be paid again because the owner fails.
"""

from hashlib import sha256
from typing import Annotated, Final, Literal, get_args

from msgspec import UNSET, Meta

from protocol.advert import Isolation, Tier
from protocol.auction import Bid, Need, Refusal, Rfq
from protocol.codec import Hash, Id16, UInt, Wire
from protocol.errors import PeerFault
from protocol.genesis import Genesis
from protocol.lease import LeaseRequest, Terms, charge, digest_of_terms
from protocol.limits import BIDS_MAX, INT_MAX, QUOTE_BYTES_MAX, REFUSAL_BYTES_MAX, SEAL_BYTES
from protocol.units import Digest, Micros, Millis, MillisSpan, NetId, PublicKey
from protocol.wire import Sealed, unpack

PPM: Final = 1_000_000
BAND_PPM: Final = 20_000
"""Bids within 2 % of the best are as good: a random one of them wins, so that renters with the
same view do not all run to one owner."""
ISOLATIONS: Final[tuple[Isolation, ...]] = get_args(Isolation)
"""Weakest first."""

SealedQuote = Annotated[bytes, Meta(max_length=QUOTE_BYTES_MAX + SEAL_BYTES)]
SealedRefusal = Annotated[bytes, Meta(max_length=REFUSAL_BYTES_MAX + SEAL_BYTES)]


class Heard(Wire, frozen=True, kw_only=True):
    """One bid, the question that it answers, and what the renter thought of its owner."""

    rfq: SealedQuote
    bid: SealedQuote
    reliability_ppm: Annotated[int, Meta(ge=0, le=PPM)]
    round: Annotated[int, Meta(ge=1, le=BIDS_MAX)] = 1
    """In which round of questions it came; a next one begins when all bids were tried in vain."""


class AuctionRecord(Wire, frozen=True, kw_only=True):
    """What a renter saw and chose; kept with the job."""

    v: Literal[1] = 1
    rule: Literal[1] = 1
    seed: Id16
    """Decides among bids that are as good."""
    offers_seen: UInt
    bids: Annotated[tuple[Heard, ...], Meta(max_length=BIDS_MAX)]
    refusals: Annotated[tuple[SealedRefusal, ...], Meta(max_length=BIDS_MAX)]
    chosen: Annotated[tuple[Hash, ...], Meta(max_length=BIDS_MAX)]
    """Digests of the bids that were taken, in order; all but the last gave nothing, and the last
    too if no lease names it."""


def expected_cost(bid: Bid, *, reliability_ppm: int) -> Micros:
    """What the bid is expected to cost in all, in micro-units: its score, least is best.

    With probability 1 - reliability the time is paid once more.
    """
    cost = charge(_gpu_span(bid), bid.micro_per_gpu_hour)
    return Micros(-(-cost * (2 * PPM - reliability_ppm) // PPM))


def _gpu_span(bid: Bid) -> MillisSpan:
    return MillisSpan((bid.end_ms - bid.start_ms) * len(bid.units))


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


def order_of(record: AuctionRecord, net: NetId) -> list[Digest]:
    """The digests of a record's bids in the order in which they are to be tried: round by round.

    Raises as `check_auction` does, but for `auction.choice`.
    """
    rounds: dict[int, list[tuple[Digest, Micros]]] = {}
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
        cost = expected_cost(bid.body, reliability_ppm=heard.reliability_ppm)
        rounds.setdefault(heard.round, []).append((bid.digest, cost))
    wanted = [_wanted(rfq) for rfq in asked.values()]
    if any(each != renters[0] for each in renters) or any(each != wanted[0] for each in wanted):
        raise PeerFault("auction.order", "of several renters or orders")
    return [digest for number in sorted(rounds) for digest in ranking(rounds[number], record.seed)]


def _wanted(rfq: Rfq) -> tuple[Need, Tier, str, int, int]:
    """What all questions of one auction have in common."""
    return rfq.need, rfq.tier, rfq.money, rfq.notice_ms, rfq.end_ms - rfq.start_ms


def check_auction(record: AuctionRecord, net: NetId) -> Digest | None:
    """The bid that was tried last, by the rule; None if none was.

    Whether it was granted, only a GRANT shows. Raises PeerFault `bid.*` (a bid that is no answer),
    `auction.twice` (two bids to one question), `auction.order` (questions or refusals that belong
    to several auctions), `auction.choice` (another bid should have been tried), or `codec.*` and
    `seal.*`.
    """
    if list(record.chosen) != order_of(record, net)[: len(record.chosen)]:
        raise PeerFault("auction.choice")
    return record.chosen[-1] if record.chosen else None


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
    if charge(_gpu_span(given), given.micro_per_gpu_hour) > INT_MAX:
        raise PeerFault("bid.sum", "more than can be encoded")


def _check_span(asked: Rfq, given: Bid) -> None:
    if given.end_ms - given.start_ms != asked.end_ms - asked.start_ms:
        raise PeerFault("bid.span", "of another length")
    if given.start_ms < asked.start_ms:
        raise PeerFault("bid.span", "starts before it may")
    # Else a cheap lease next year would win every auction.
    if given.start_ms > max(asked.start_ms, given.valid_until_ms):
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
        and asked.terms == digest_of_terms(given.terms)
    )
    if not same:
        raise PeerFault("request.bid", "differs from the bid that it names")
