"""What the owners of one auction have said: their bids, their refusals, and what was tried."""

from dataclasses import dataclass, field
from typing import Final

from p2pnode.matching.book import Offer
from protocol.answers import check_refusal
from protocol.auction import Bid, Refusal, Reply, Rfq
from protocol.limits import BIDS_MAX
from protocol.scoring import (
    AuctionRecord,
    Heard,
    Judged,
    Weights,
    deal_of,
    expected_cost,
    ranking,
)
from protocol.units import Digest, NetId, PublicKey
from protocol.wire import Sealed, unpack


@dataclass(frozen=True, slots=True, kw_only=True)
class HeardBid:
    """A bid that may be taken, and the offer on which it was asked for."""

    offer: Offer
    bid: Sealed[Bid]
    heard: Heard
    rfq: Rfq


@dataclass(slots=True)
class Hearing:
    """Grows while its auction runs; becomes the auction's record."""

    seed: Final[bytes]
    weights: Final[Weights]
    bids: dict[Digest, HeardBid] = field(default_factory=dict)
    refusals: list[bytes] = field(default_factory=list)
    why: dict[str, int] = field(default_factory=dict)
    """Reasons of offers that do not fit, of refusals and of failures, counted."""
    chosen: list[Digest] = field(default_factory=list)
    round: int = 0
    presumed_ppm: dict[bytes, int] = field(default_factory=dict)
    """Group key -> how reliable its owner, a newcomer, is taken to be; it is asked in one round."""

    def count(self, reason: str) -> None:
        """One more offer that came to nothing."""
        self.why[reason] = self.why.get(reason, 0) + 1

    def hear(self, offer: Offer, rfq: tuple[bytes, Rfq], bid: tuple[bytes, Sealed[Bid]],
             judged: Judged) -> None:  # fmt: skip
        """Keep a bid of this round, if the record has room for it."""
        if len(self.bids) < BIDS_MAX:
            heard = Heard(rfq=rfq[0], bid=bid[0], judged=judged, round=self.round)
            self.bids[bid[1].digest] = HeardBid(offer=offer, bid=bid[1], heard=heard, rfq=rfq[1])

    def note_refusal(
        self, reply: Reply, *, of: Digest, owner: PublicKey, renter: PublicKey, net: NetId
    ) -> None:
        """Count and keep a signed no. Raises PeerFault."""
        assert isinstance(reply.no, bytes)
        refusal = unpack(reply.no, net, Refusal)
        check_refusal(refusal, of=of, owner=owner, renter=renter)
        self.count(refusal.body.reason.lower())
        if len(self.refusals) < BIDS_MAX:
            self.refusals.append(reply.no)

    def order(self) -> list[Digest]:
        """This round's bids, in the order in which they are to be tried."""
        scored = [
            (
                digest,
                expected_cost(
                    deal_of(one.rfq, one.bid.body, self.weights), one.heard.judged, self.weights
                ),
            )
            for digest, one in self.bids.items()
            if one.heard.round == self.round
        ]
        return ranking([(digest, cost.score) for digest, cost in scored], self.seed)

    def record(self, seen: int) -> AuctionRecord:
        """What is kept of it; `seen` adverts were in the book."""
        return AuctionRecord(
            seed=self.seed,
            weights=self.weights,
            offers_seen=seen,
            bids=tuple(one.heard for one in self.bids.values()),
            refusals=tuple(self.refusals),
            chosen=tuple(self.chosen),
        )
