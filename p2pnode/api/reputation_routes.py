"""The route about a peer's standing."""

from collections.abc import Callable

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, FromQuery

from p2pnode.api.reputation_documents import ReputationDocument


def reputation_routes(show: Callable[[str, bool], ReputationDocument]) -> list[HTTPRouteHandler]:
    """The handlers, over show(peer, why). It raises LocalFault."""

    @get("/v1/reputation/{peer:str}")
    async def reputation(peer: FromPath[str], why: FromQuery[bool] = False) -> ReputationDocument:
        return show(peer, why)

    return [reputation]
