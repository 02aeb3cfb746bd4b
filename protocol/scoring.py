"""Which bid wins: one integer rule, by which a third peer recomputes a renter's choice.

SPEC.md section 12. Version 1 scores in expected money: the price of the whole time, and what is
likely to be paid again because the owner fails.
"""

from hashlib import sha256
from typing import Annotated, Final, Literal

from msgspec import Meta

from protocol.auction import Bid, Refusal, Rfq
from protocol.codec import Hash, Id16, UInt, Wire
from protocol.errors import PeerFault
from protocol.lease import charge
from protocol.limits import BIDS_MAX, QUOTE_BYTES_MAX, REFUSAL_BYTES_MAX, SEAL_BYTES
from protocol.units import Digest, Micros, MillisSpan, NetId
from protocol.wire import Sealed, unpack

PPM: Final = 1_000_000
BAND_PPM: Final = 20_000
"""Bids within 2 % of the best are as good: a random one of them wins, so that renters with the
same view do not all run to one owner."""

SealedQuote = Annotated[bytes, Meta(max_length=QUOTE_BYTES_MAX + SEAL_BYTES)]
SealedRefusal = Annotated[bytes, Meta(max_length=REFUSAL_BYTES_MAX + SEAL_BYTES)]


class Heard(Wire, frozen=True, kw_only=True):
    """One bid, the question that it answers, and what the renter thought of its owner."""

    rfq: SealedQuote
    bid: SealedQuote
    reliability_ppm: Annotated[int, Meta(ge=0, le=PPM)]


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
    """Digests of the bids that were taken, in order; all but the last were refused then."""


def expected_cost(bid: Bid, *, reliability_ppm: int) -> Micros:
    """What the bid is expected to cost in all, in micro-units: its score, least is best.

    With probability 1 - reliability the time is paid once more.
    """
    span = MillisSpan((bid.end_ms - bid.start_ms) * len(bid.units))
    cost = charge(span, bid.micro_per_gpu_hour)
    return Micros(-(-cost * (2 * PPM - reliability_ppm) // PPM))


def ranking(bids: list[tuple[Digest, Micros]], seed: bytes) -> list[Digest]:
    """The digests of scored bids, in the order in which they are tried.

    The best and all within BAND_PPM of it come first, in an order drawn by the seed; then the
    others by score. Ties go by digest.
    """
    if not bids:
        return []
    ordered = sorted((score, digest) for digest, score in bids)
    best = ordered[0][0]
    band = [digest for score, digest in ordered if (score - best) * PPM <= best * BAND_PPM]
    band.sort(key=lambda digest: sha256(seed + digest).digest())
    return band + [digest for _, digest in ordered[len(band) :]]


def check_auction(record: AuctionRecord, net: NetId) -> Digest | None:
    """The winner that the rule gives for this record; None if nothing was won.

    Raises PeerFault `auction.answer` (a bid that answers another question or renter),
    `auction.choice` (another one should have been tried), or `codec.*` and `seal.*`.
    """
    scored: list[tuple[Digest, Micros]] = []
    for heard in record.bids:
        rfq = unpack(heard.rfq, net, Rfq)
        bid = unpack(heard.bid, net, Bid)
        check_answer(rfq, bid)
        cost = expected_cost(bid.body, reliability_ppm=heard.reliability_ppm)
        scored.append((bid.digest, cost))
    for refusal in record.refusals:
        unpack(refusal, net, Refusal)
    tried = ranking(scored, record.seed)[: len(record.chosen)]
    if list(record.chosen) != tried:
        raise PeerFault("auction.choice")
    return record.chosen[-1] if record.chosen else None


def check_answer(rfq: Sealed[Rfq], bid: Sealed[Bid]) -> None:
    """Whether the bid answers this question and gives what it asks for.

    Raises PeerFault `auction.answer`.
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
        raise PeerFault("auction.answer", "answers another question")
    span = asked.end_ms - asked.start_ms
    if len(given.units) != asked.need.gpus or given.end_ms - given.start_ms != span:
        raise PeerFault("auction.answer", "offers something else")
    if given.start_ms < asked.start_ms:
        raise PeerFault("auction.answer", "starts before it may")
