"""Whom and what a running node's owner lets in, as API documents."""

from p2pnode.api.owner_documents import (
    RuleAddDocument,
    RuleDocument,
    RuleListDocument,
    RuleOrder,
    RuleRemoveDocument,
    RuleTestDocument,
    RuleTestOrder,
)
from p2pnode.own_rules import OwnRules, RuleRecord
from p2pnode.screening import Guest, Kind, Rule


class RuleViews:
    """What the API does with the rules."""

    def __init__(self, rules: OwnRules) -> None:
        self._rules = rules

    def rules(self) -> RuleListDocument:
        """All of them."""
        return RuleListDocument(items=tuple(map(self._document, self._rules.rules)))

    def add_rule(self, order: RuleOrder) -> RuleAddDocument:
        """Keep one more. Raises LocalFault."""
        rule = Rule(order.verdict, order.kind, order.pattern)
        return RuleAddDocument(rule=self._document(self._rules.add(rule)))

    def remove_rule(self, name: str) -> RuleRemoveDocument:
        """Forget it. Raises LocalFault."""
        self._rules.remove(name)
        return RuleRemoveDocument(name=name)

    def test_rules(self, order: RuleTestOrder) -> RuleTestDocument:
        """What would become of this guest, by what is said of it."""
        asked: dict[Kind, str | None] = {
            "image": order.image,
            "renter": order.renter,
            "region": order.region,
            "network": order.address,
        }
        guest = Guest(
            image=order.image,
            feed=order.renter,
            account=order.renter,
            region=order.region,
            address=order.address,
        )
        kinds = tuple(kind for kind, value in asked.items() if value is not None)
        why = self._rules.why_not(guest, kinds)
        return RuleTestDocument(let_in=why is None, why=why)

    def _document(self, rule: RuleRecord) -> RuleDocument:
        return RuleDocument(
            name=rule.name,
            verdict=rule.verdict,
            kind=rule.kind,
            pattern=rule.pattern,
            origin="config.toml" if self._rules.is_configured(rule) else "allow add",
        )
