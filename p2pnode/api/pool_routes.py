"""Routes about jobs on several nodes."""

from typing import Protocol

from litestar import Response, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, FromQuery, JSONBody

from p2pnode.api.auction_documents import PoolAuctionDocument
from p2pnode.api.pool_documents import PoolDocument, PoolListDocument
from p2pnode.api.wanted_documents import JobOrder


class PoolServices(Protocol):
    """What the node can tell and do about them. All raise LocalFault."""

    async def submit(self, order: JobOrder) -> PoolDocument: ...
    def list_pools(self, limit: int) -> PoolListDocument: ...
    def show(self, name: str) -> PoolDocument: ...
    def cancel(self, name: str) -> PoolDocument: ...
    def auction(self, name: str) -> PoolAuctionDocument: ...
    def auction_file(self, name: str) -> bytes: ...


def pool_routes(services: PoolServices) -> list[HTTPRouteHandler]:
    """The handlers, over these services."""

    @post("/v1/pools", status_code=201)
    async def submit(data: JSONBody[JobOrder]) -> PoolDocument:
        return await services.submit(data)

    @get("/v1/pools")
    async def list_pools(limit: FromQuery[int] = 50) -> PoolListDocument:
        return services.list_pools(max(0, min(limit, 1_000)))

    @get("/v1/pools/{name:str}")
    async def show(name: FromPath[str]) -> PoolDocument:
        return services.show(name)

    @post("/v1/pools/{name:str}/cancel", status_code=200)
    async def cancel(name: FromPath[str]) -> PoolDocument:
        return services.cancel(name)

    @get("/v1/pools/{name:str}/bids")
    async def bids(name: FromPath[str]) -> PoolAuctionDocument:
        return services.auction(name)

    @get("/v1/pools/{name:str}/auction")
    async def auction(name: FromPath[str]) -> Response[bytes]:
        return Response(services.auction_file(name), media_type="application/octet-stream")

    return [submit, list_pools, show, cancel, bids, auction]
