"""Routes about the ledger: what it holds, what is proved, whether it holds, files of it."""

from typing import Protocol

from litestar import get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, FromQuery, JSONBody

from p2pnode.api.ledger_documents import (
    EvidenceDocument,
    ExportDocument,
    ExportOrder,
    FeedDocument,
    ForkListDocument,
    ImportDocument,
    ImportOrder,
    LedgerDocument,
    PruneDocument,
    PruneOrder,
    VerifyDocument,
)

SHOWN_DEFAULT = 50
SHOWN_MAX = 1_000


class LedgerServices(Protocol):
    """What the node can tell and do about its ledger. All raise LocalFault."""

    def ledger(self) -> LedgerDocument: ...
    def feed(self, name: str, *, first: int | None, limit: int) -> FeedDocument: ...
    def evidence(self, offender: str | None, *, limit: int) -> EvidenceDocument: ...
    def forks(self) -> ForkListDocument: ...
    async def verify(self) -> VerifyDocument: ...
    async def export_to(self, order: ExportOrder) -> ExportDocument: ...
    async def import_from(self, order: ImportOrder) -> ImportDocument: ...
    async def prune(self, order: PruneOrder) -> PruneDocument: ...


def ledger_routes(services: LedgerServices) -> list[HTTPRouteHandler]:
    """The handlers, over these services."""

    @get("/v1/ledger")
    async def ledger() -> LedgerDocument:
        return services.ledger()

    @get("/v1/ledger/feeds/{name:str}")
    async def feed(
        name: FromPath[str],
        first: FromQuery[int | None] = None,
        limit: FromQuery[int] = SHOWN_DEFAULT,
    ) -> FeedDocument:
        return services.feed(name, first=first, limit=_bounded(limit))

    @get("/v1/ledger/evidence")
    async def evidence(
        offender: FromQuery[str | None] = None, limit: FromQuery[int] = SHOWN_DEFAULT
    ) -> EvidenceDocument:
        return services.evidence(offender, limit=_bounded(limit))

    @get("/v1/ledger/forks")
    async def forks() -> ForkListDocument:
        return services.forks()

    @get("/v1/ledger/verify")
    async def verify() -> VerifyDocument:
        return await services.verify()

    @post("/v1/ledger/export", status_code=200)
    async def export_to(data: JSONBody[ExportOrder]) -> ExportDocument:
        return await services.export_to(data)

    @post("/v1/ledger/import", status_code=200)
    async def import_from(data: JSONBody[ImportOrder]) -> ImportDocument:
        return await services.import_from(data)

    @post("/v1/ledger/prune", status_code=200)
    async def prune(data: JSONBody[PruneOrder]) -> PruneDocument:
        return await services.prune(data)

    return [ledger, feed, evidence, forks, verify, export_to, import_from, prune]


def _bounded(limit: int) -> int:
    return max(0, min(limit, SHOWN_MAX))
