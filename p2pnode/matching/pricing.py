"""What an owner asks for a lease. Pure; the owner's choices are arguments."""

from p2pnode.matching.provider import Posting
from protocol.auction import Rfq
from protocol.units import Micros

GOLD_PERCENT = 150
"""Of the posted ask: units that are kept free for a time earn nothing before it."""


def price(rfq: Rfq, posting: Posting) -> Micros | None:
    """Per GPU-hour for a lease as the request wants it; None offers none."""
    if rfq.tier not in posting.tiers or posting.ask is None:
        return None
    return Micros(posting.ask * GOLD_PERCENT // 100) if rfq.tier == "gold" else posting.ask
