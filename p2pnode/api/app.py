"""The HTTP API: routes and nothing else. What it tells and does are functions given to it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from litestar import Litestar, Request, Response, get
from litestar.datastructures import State
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.config import OpenAPIConfig
from litestar.params import FromPath, FromQuery
from litestar.types import ExceptionHandlersMap

from p2pnode.api.documents import (
    ArrivalListDocument,
    ListedDocument,
    OfferListDocument,
    OfferShowDocument,
    Problem,
    StatusDocument,
)
from p2pnode.api.reputation_routes import Show, reputation_routes
from p2pnode.api.wanted_documents import OfferQuery, offer_query
from protocol.errors import LocalFault, Unavailable
from protocol.gpu_class import CLASSES

ApiRequest = Request[None, None, State]


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What the API can tell and do."""

    status: Callable[[], StatusDocument]
    search: Callable[[OfferQuery], Awaitable[OfferListDocument]]
    """Raises LocalFault."""
    offer: Callable[[str], OfferShowDocument]
    """Raises LocalFault."""
    arrivals: Callable[[], ArrivalListDocument]
    listed: Callable[[int, tuple[str, ...]], Awaitable[ListedDocument]]
    """listed(class, regions). Raises Unavailable."""
    reputation: Show


def build_app(services: Services, others: list[HTTPRouteHandler]) -> Litestar:
    """The application, ready for a server; `others` are the routes of other files."""

    @get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @get("/v1/status")
    async def status() -> StatusDocument:
        return services.status()

    @get("/v1/offers")
    async def offers(request: ApiRequest) -> OfferListDocument:
        return await services.search(offer_query(request.query_params.dict()))

    @get("/v1/offers/arrivals")
    async def arrivals() -> ArrivalListDocument:
        return services.arrivals()

    @get("/v1/offers/{key:str}")
    async def offer(key: FromPath[str]) -> OfferShowDocument:
        return services.offer(key)

    @get("/v1/directory")
    async def directory(gpu_class: FromQuery[int], region: FromQuery[list[str]]) -> ListedDocument:
        if gpu_class not in CLASSES:
            raise LocalFault(f"{gpu_class} is no class", f"one of {', '.join(map(str, CLASSES))}")
        return await services.listed(gpu_class, tuple(region))

    return _app(
        [
            *(healthz, status, offers, offer, directory, arrivals),
            *reputation_routes(services.reputation),
            *others,
        ]
    )


def _app(handlers: list[HTTPRouteHandler]) -> Litestar:
    return Litestar(
        route_handlers=handlers,
        exception_handlers=exception_handlers(),
        openapi_config=OpenAPIConfig(title="p2pnode", version="1", path="/schema"),
        # Litestar would take over the root logger.
        logging_config=None,
        debug=False,
    )


def exception_handlers() -> ExceptionHandlersMap:
    """What goes wrong, as problem documents."""
    return {
        LocalFault: _local_fault,
        Unavailable: _unavailable,
        HTTPException: _http_fault,
    }


def _local_fault(_request: ApiRequest, fault: LocalFault) -> Response[Problem]:
    return _problem(Problem(title=fault.what, status=400, cure=fault.cure))


def _unavailable(_request: ApiRequest, error: Unavailable) -> Response[Problem]:
    return _problem(Problem(title=str(error), status=503))


def _http_fault(_request: ApiRequest, error: HTTPException) -> Response[Problem]:
    return _problem(Problem(title=error.detail, status=error.status_code))


def _problem(problem: Problem) -> Response[Problem]:
    return Response(problem, status_code=problem.status, media_type="application/problem+json")
