"""Which bid wins: one integer rule, by which a third peer recomputes a renter's choice.

SPEC.md section 12. Version 1 scores in expected money: the price of the whole time, and what is
likely to be paid again because the owner fails.
"""

from hashlib import sha256
from typing import Annotated, Final, Literal

from msgspec import Meta

from protocol.answers import check_answer, gpu_span
from protocol.auction import Bid, Need, Refusal, Rfq
from protocol.codec import Hash, Id16, UInt, Wire
from protocol.errors import PeerFault
from protocol.lease import charge
from protocol.limits import BIDS_MAX, QUOTE_BYTES_MAX, REFUSAL_BYTES_MAX, SEAL_BYTES
from protocol.units import Digest, Micros, NetId
from protocol.wire import unpack

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
    cost = charge(gpu_span(bid), bid.micro_per_gpu_hour)
    return Micros(-(-cost * (2 * PPM - reliability_ppm) // PPM))


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


def _wanted(rfq: Rfq) -> tuple[Need, str, int, int]:
    """What all questions of one auction have in common; of tiers, any of several may do."""
    return rfq.need, rfq.money, rfq.notice_ms, rfq.end_ms - rfq.start_ms


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
