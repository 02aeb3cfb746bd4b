"""The HTTP API: routes and nothing else. What it tells and does are functions given to it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from litestar import Litestar, Request, Response, get, post
from litestar.datastructures import State
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.config import OpenAPIConfig
from litestar.params import FromQuery, JSONBody
from litestar.types import ExceptionHandlersMap

from p2pnode.api.documents import (
    ArrivalListDocument,
    AskChange,
    ListedDocument,
    OfferListDocument,
    Problem,
    StatusDocument,
)
from p2pnode.api.reputation_routes import Show, reputation_routes
from p2pnode.matching.search import Wish
from protocol.advert import TIERS, Tier
from protocol.errors import LocalFault, Unavailable
from protocol.gpu_class import CLASSES
from protocol.units import Mebibytes, Micros

SHOWN_DEFAULT = 50
SHOWN_MAX = 16_384
ApiRequest = Request[None, None, State]


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What the API can tell and do."""

    status: Callable[[], StatusDocument]
    search: Callable[[Wish, int], Awaitable[OfferListDocument]]
    arrivals: Callable[[], ArrivalListDocument]
    listed: Callable[[int, tuple[str, ...]], Awaitable[ListedDocument]]
    """listed(class, regions). Raises Unavailable."""
    set_ask: Callable[[AskChange], None]
    """Raises LocalFault."""
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
    async def offers(  # noqa: PLR0917 - query parameters
        vram_mib_min: FromQuery[int | None] = None,
        model: FromQuery[list[str] | None] = None,
        region: FromQuery[list[str] | None] = None,
        tier: FromQuery[str] = "silver",
        ask_micro_max: FromQuery[int | None] = None,
        money: FromQuery[str | None] = None,
        gpus: FromQuery[int] = 1,
        limit: FromQuery[int] = SHOWN_DEFAULT,
    ) -> OfferListDocument:
        wish = Wish(
            gpus=gpus,
            vram_min=None if vram_mib_min is None else Mebibytes(vram_mib_min),
            models=tuple(model or ()),
            regions=tuple(region or ()),
            tier=_tier(tier),
            ask_max=None if ask_micro_max is None else Micros(ask_micro_max),
            money=money,
        )
        return await services.search(wish, max(0, min(limit, SHOWN_MAX)))

    @get("/v1/offers/arrivals")
    async def arrivals() -> ArrivalListDocument:
        return services.arrivals()

    @get("/v1/directory")
    async def directory(gpu_class: FromQuery[int], region: FromQuery[list[str]]) -> ListedDocument:
        if gpu_class not in CLASSES:
            raise LocalFault(f"{gpu_class} is no class", f"one of {', '.join(map(str, CLASSES))}")
        return await services.listed(gpu_class, tuple(region))

    @post("/v1/ask", status_code=200)
    async def ask(data: JSONBody[AskChange]) -> dict[str, str]:
        services.set_ask(data)
        return {"applies": "now, to new leases"}

    return _app(
        [
            *(healthz, status, offers, directory, arrivals, ask),
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


def _tier(text: str) -> Tier:
    for tier in TIERS:
        if tier == text:
            return tier
    raise LocalFault(f"{text!r} is no tier", "gold, silver or bronze")


def _local_fault(_request: ApiRequest, fault: LocalFault) -> Response[Problem]:
    return _problem(Problem(title=fault.what, status=400, cure=fault.cure))


def _unavailable(_request: ApiRequest, error: Unavailable) -> Response[Problem]:
    return _problem(Problem(title=str(error), status=503))


def _http_fault(_request: ApiRequest, error: HTTPException) -> Response[Problem]:
    return _problem(Problem(title=error.detail, status=error.status_code))


def _problem(problem: Problem) -> Response[Problem]:
    return Response(problem, status_code=problem.status, media_type="application/problem+json")
