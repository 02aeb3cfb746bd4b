"""Where a job goes: on free units, or else on those that bronze gives back."""

from dataclasses import replace
from typing import Final

from p2pnode.jobs.desk import Desk
from p2pnode.matching.order import Order
from p2pnode.matching.renter import NoMatch, Remember, SealJob, Won
from protocol.units import MillisSpan

LATE_MS: Final = MillisSpan(60_000)
"""A job of a better tier waits so long for the notice of the bronze one that is in its way."""


async def place(desk: Desk, order: Order, seal_job: SealJob, remember: Remember) -> Won:
    """The best bid that its owner grants. Raises NoMatch."""
    await desk.look_around(order.wish())
    try:
        return await desk.renter.rent(order, seal_job=seal_job, remember=remember)
    except NoMatch:
        # Not asked why: what an own lease keeps from this one is told by no reason.
        if order.tier == "bronze":
            raise
    late = replace(order, late_ms=LATE_MS)
    return await desk.renter.rent(late, seal_job=seal_job, remember=remember)
