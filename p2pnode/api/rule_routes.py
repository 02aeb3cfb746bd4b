"""Routes about whom and what the owner lets in."""

from typing import Protocol

from litestar import get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody

from p2pnode.api.owner_documents import (
    RuleAddDocument,
    RuleListDocument,
    RuleOrder,
    RuleRemoveDocument,
    RuleTestDocument,
    RuleTestOrder,
    WindowName,
)


class RuleServices(Protocol):
    """What the node can tell and do about its rules. All raise LocalFault."""

    def rules(self) -> RuleListDocument: ...
    def add_rule(self, order: RuleOrder) -> RuleAddDocument: ...
    def remove_rule(self, name: str) -> RuleRemoveDocument: ...
    def test_rules(self, order: RuleTestOrder) -> RuleTestDocument: ...


def rule_routes(services: RuleServices) -> list[HTTPRouteHandler]:
    """The handlers, over these services."""

    @get("/v1/rules")
    async def rules() -> RuleListDocument:
        return services.rules()

    @post("/v1/rules", status_code=200)
    async def add_rule(data: JSONBody[RuleOrder]) -> RuleAddDocument:
        return services.add_rule(data)

    @post("/v1/rules/remove", status_code=200)
    async def remove_rule(data: JSONBody[WindowName]) -> RuleRemoveDocument:
        return services.remove_rule(data.name)

    @post("/v1/rules/test", status_code=200)
    async def test_rules(data: JSONBody[RuleTestOrder]) -> RuleTestDocument:
        return services.test_rules(data)

    return [rules, add_rule, remove_rule, test_rules]
