"""What an owner asks for a lease. Pure; the owner's choices are arguments."""

from functools import partial

from p2pnode.matching.provider import Posting
from p2pnode.matching.strategies import share_of
from protocol.advert import Tier
from protocol.auction import Rfq
from protocol.units import Micros, Millis


def price(rfq: Rfq, posting: Posting) -> Micros | None:
    """Per GPU-hour for a lease as the request wants it; None offers none."""
    return posting.ask_of(rfq.group, rfq.tier)


def least(posting: Posting, tier: Tier, *, start: Millis, end: Millis) -> Micros:
    """The floor of a lease from `start` to `end`: the highest that holds in it."""
    return posting.timetable.floor(
        start,
        end,
        other=posting.floors.get(tier, Micros(0)),
        scale=partial(share_of, tier=tier),
    )
