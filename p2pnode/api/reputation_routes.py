"""The route about a peer's standing."""

from collections.abc import Callable
from typing import Final

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, FromQuery

from p2pnode.api.reputation_documents import ReputationDocument

SHOWN_DEFAULT: Final = 100
SHOWN_MAX: Final = 10_000
"""Of each list of ids. A document with thirty such lists is some 20 MB."""

Show = Callable[[str, bool, int], ReputationDocument]
"""show(peer, why, limit). Raises LocalFault."""


def reputation_routes(show: Show) -> list[HTTPRouteHandler]:
    """The handlers, over this."""

    @get("/v1/reputation/{peer:str}")
    async def reputation(
        peer: FromPath[str],
        why: FromQuery[bool] = False,
        limit: FromQuery[int] = SHOWN_DEFAULT,
    ) -> ReputationDocument:
        return show(peer, why, max(0, min(limit, SHOWN_MAX)))

    return [reputation]
