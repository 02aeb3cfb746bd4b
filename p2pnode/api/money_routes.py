"""Routes about debts and payments."""

from typing import Protocol

from litestar import get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromQuery, JSONBody

from p2pnode.api.money_documents import (
    AccountListDocument,
    ConfirmedDocument,
    ConfirmOrder,
    DebtListDocument,
    StatementDocument,
)


class MoneyServices(Protocol):
    """What the node can tell and do about its accounts. All raise LocalFault."""

    def accounts(self) -> AccountListDocument: ...
    def statement(
        self, peer: str | None, *, since_ms: int | None, until_ms: int | None
    ) -> StatementDocument: ...
    async def debts(self) -> DebtListDocument: ...
    def confirm(self, order: ConfirmOrder) -> ConfirmedDocument: ...


def money_routes(services: MoneyServices) -> list[HTTPRouteHandler]:
    """The handlers, over these services."""

    @get("/v1/accounts")
    async def accounts() -> AccountListDocument:
        return services.accounts()

    @get("/v1/accounts/statement")
    async def statement(
        peer: FromQuery[str | None] = None,
        since_ms: FromQuery[int | None] = None,
        until_ms: FromQuery[int | None] = None,
    ) -> StatementDocument:
        return services.statement(peer, since_ms=since_ms, until_ms=until_ms)

    @get("/v1/debts")
    async def debts() -> DebtListDocument:
        return await services.debts()

    @post("/v1/payments", status_code=200)
    async def confirm(data: JSONBody[ConfirmOrder]) -> ConfirmedDocument:
        return services.confirm(data)

    return [accounts, statement, debts, confirm]
