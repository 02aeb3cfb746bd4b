"""Routes about jobs, leases and receipts."""

from typing import Protocol

from litestar import Response, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, FromQuery, JSONBody

from p2pnode.api.auction_documents import AuctionDocument
from p2pnode.api.job_documents import (
    FetchOrder,
    JobDocument,
    JobListDocument,
    LeaseListDocument,
    ReceiptCheck,
    ReceiptDocument,
    YieldDocument,
    YieldOrder,
)
from p2pnode.api.wanted_documents import JobOrder

LOG_BYTES_MAX = 1_048_576


class JobServices(Protocol):
    """What the node can tell and do about jobs. All raise LocalFault."""

    async def submit(self, order: JobOrder) -> JobDocument: ...
    def list_jobs(self, limit: int) -> JobListDocument: ...
    def show(self, name: str) -> JobDocument: ...
    def cancel(self, name: str) -> JobDocument: ...
    async def read_log(self, name: str, offset: int, size_max: int) -> tuple[int, bytes]: ...
    async def fetch(self, name: str, folder: str) -> JobDocument: ...
    def receipt(self, name: str) -> ReceiptDocument: ...
    def check(self, text: str) -> ReceiptDocument: ...
    def auction(self, name: str) -> AuctionDocument: ...
    def auction_file(self, name: str) -> bytes: ...
    def leases(self) -> LeaseListDocument: ...
    def take_back(self, name: str | None, order: YieldOrder) -> YieldDocument: ...


def job_routes(services: JobServices) -> list[HTTPRouteHandler]:
    """The handlers, over these services."""

    @post("/v1/jobs", status_code=201)
    async def submit(data: JSONBody[JobOrder]) -> JobDocument:
        return await services.submit(data)

    @get("/v1/jobs")
    async def list_jobs(limit: FromQuery[int] = 50) -> JobListDocument:
        return services.list_jobs(max(0, min(limit, 10_000)))

    @get("/v1/jobs/{name:str}")
    async def show(name: FromPath[str]) -> JobDocument:
        return services.show(name)

    @post("/v1/jobs/{name:str}/cancel", status_code=200)
    async def cancel(name: FromPath[str]) -> JobDocument:
        return services.cancel(name)

    @get("/v1/jobs/{name:str}/log")
    async def read_log(name: FromPath[str], offset: FromQuery[int] = 0) -> Response[bytes]:
        begin, piece = await services.read_log(name, max(0, offset), LOG_BYTES_MAX)
        # Another one than was asked for where what is between was not kept.
        headers = {"Log-Offset": str(begin)}
        return Response(piece, media_type="application/octet-stream", headers=headers)

    @post("/v1/jobs/{name:str}/fetch", status_code=200)
    async def fetch(name: FromPath[str], data: JSONBody[FetchOrder]) -> JobDocument:
        return await services.fetch(name, data.folder)

    @get("/v1/jobs/{name:str}/receipt")
    async def receipt(name: FromPath[str]) -> ReceiptDocument:
        return services.receipt(name)

    @get("/v1/jobs/{name:str}/bids")
    async def bids(name: FromPath[str]) -> AuctionDocument:
        return services.auction(name)

    @get("/v1/jobs/{name:str}/auction")
    async def auction(name: FromPath[str]) -> Response[bytes]:
        return Response(services.auction_file(name), media_type="application/octet-stream")

    @post("/v1/receipts/check", status_code=200)
    async def check(data: JSONBody[ReceiptCheck]) -> ReceiptDocument:
        return services.check(data.hex)

    jobs = [submit, list_jobs, show, cancel, read_log, fetch, receipt, bids, auction, check]
    return [*jobs, *_lease_routes(services)]


def _lease_routes(services: JobServices) -> list[HTTPRouteHandler]:
    @get("/v1/leases")
    async def leases() -> LeaseListDocument:
        return services.leases()

    @post("/v1/leases/{name:str}/yield", status_code=200)
    async def take_back(name: FromPath[str], data: JSONBody[YieldOrder]) -> YieldDocument:
        return services.take_back(name, data)

    @post("/v1/gpus/reclaim", status_code=200)
    async def reclaim(data: JSONBody[YieldOrder]) -> YieldDocument:
        return services.take_back(None, data)

    return [leases, take_back, reclaim]
