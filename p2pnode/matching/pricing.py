"""What an owner asks for a lease. Pure; the owner's choices are arguments."""

from p2pnode.matching.provider import Posting
from protocol.auction import Rfq
from protocol.units import Micros


def price(rfq: Rfq, posting: Posting) -> Micros | None:
    """Per GPU-hour for a lease as the request wants it; None offers none."""
    if rfq.tier == "gold" or rfq.tier not in posting.tiers:
        return None
    return posting.ask
