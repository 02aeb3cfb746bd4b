"""What an owner asks for a lease. Pure; the owner's choices are arguments."""

from functools import partial

from p2pnode.matching.provider import Posting, Shelf
from p2pnode.matching.strategies import share_of
from protocol.advert import Tier, surcharged
from protocol.auction import Rfq
from protocol.units import Micros, Millis


def price(rfq: Rfq, posting: Posting, shelf: Shelf) -> Micros | None:
    """Per GPU-hour for a lease as the request wants it; None offers none."""
    ask = posting.ask_of(rfq.group, rfq.tier)
    return None if ask is None else Micros(surcharged(ask, shelf.surcharges, rfq.need.gpus))


def least(posting: Posting, tier: Tier, *, start: Millis, end: Millis) -> Micros:
    """The floor of a lease from `start` to `end`: the highest that holds in it."""
    return posting.timetable.floor(
        start,
        end,
        other=posting.floors.get(tier, Micros(0)),
        scale=partial(share_of, tier=tier),
    )
