"""Routes about the market: why there is no match or no work, bids, asks and cleared prices."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, FromQuery

from p2pnode.api.market_documents import (
    BidListDocument,
    MarketDocument,
    NoWorkDocument,
    WhyDocument,
)
from p2pnode.api.wanted_documents import SHOWN_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketServices:
    """What the node can tell of the market. `why` raises LocalFault."""

    why: Callable[[str], Awaitable[WhyDocument]]
    bids: Callable[[int, int], BidListDocument]
    """bids(since, limit)."""
    no_work: Callable[[int], NoWorkDocument]
    market: Callable[[int], MarketDocument]


def market_routes(services: MarketServices) -> list[HTTPRouteHandler]:
    """The handlers, over these services."""

    @get("/v1/jobs/{name:str}/why")
    async def why(name: FromPath[str]) -> WhyDocument:
        return await services.why(name)

    @get("/v1/bids")
    async def bids(since_ms: FromQuery[int] = 0, limit: FromQuery[int] = 50) -> BidListDocument:
        return services.bids(since_ms, max(0, min(limit, SHOWN_MAX)))

    @get("/v1/no-work")
    async def no_work(since_ms: FromQuery[int] = 0) -> NoWorkDocument:
        return services.no_work(since_ms)

    @get("/v1/market")
    async def market(since_ms: FromQuery[int] = 0) -> MarketDocument:
        return services.market(since_ms)

    return [why, bids, no_work, market]
