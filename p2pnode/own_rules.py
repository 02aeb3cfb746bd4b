"""Whom and what this owner lets in: config.toml, and what it has said to the node since.

What was said is written before it counts, and goes to new leases only.
"""

from collections.abc import Callable
from typing import Annotated, Final

from msgspec import UNSET, Meta, UnsetType

from p2pnode.cabinet import RECORD_BYTES_MAX, Cabinet, put_record
from p2pnode.config import Workloads
from p2pnode.screening import KINDS, RULES_MAX, Guest, Kind, Rule, Verdict, check_rule, why_not
from protocol.advert import Listed, WorkloadPolicy
from protocol.auction import Rfq
from protocol.certificate import Certificate
from protocol.codec import Name, Wire, decode
from protocol.errors import LocalFault
from protocol.job import Job
from protocol.limits import POLICY_REGIONS_MAX

_RULES: Final = "owner/rules"
_LISTS: Final[dict[Listed, Kind]] = {
    "images": "image",
    "networks": "network",
    "renters": "renter",
}


class RuleRecord(Wire, frozen=True, kw_only=True):
    """One rule that a command has added."""

    name: Name
    verdict: Verdict
    kind: Kind
    pattern: Annotated[str, Meta(max_length=256)]


class RulesRecord(Wire, frozen=True, kw_only=True):
    """All of them."""

    next: int = 1
    rules: tuple[RuleRecord, ...] = ()


class OwnRules:
    """Owns the record."""

    def __init__(
        self,
        workloads: Workloads,
        *,
        own: Certificate,
        cabinet: Cabinet,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`own` is our certificate: nothing that our account runs is kept out."""
        self._changed = changed
        self._own = own
        self._cabinet = cabinet
        self._configured = tuple(
            RuleRecord(
                name=f"c{number}", verdict=rule.verdict, kind=rule.kind, pattern=rule.pattern
            )
            for number, rule in enumerate(rules_of(workloads), start=1)
        )
        raw = cabinet.get(_RULES)
        self._kept = (
            RulesRecord() if raw is None else decode(raw, RulesRecord, size_max=RECORD_BYTES_MAX)
        )

    @property
    def rules(self) -> tuple[RuleRecord, ...]:
        """Those of config.toml, then those that commands have added."""
        return (*self._configured, *self._kept.rules)

    @property
    def stated(self) -> WorkloadPolicy | None:
        """What adverts tell of them; of networks and renters no more than that there is a list."""
        kinds = {(each.verdict, each.kind) for each in self.rules}
        only = tuple(name for name, kind in _LISTS.items() if ("allow", kind) in kinds)
        policy = WorkloadPolicy(
            regions=self._regions("allow"), not_regions=self._regions("deny"), only=only or UNSET
        )
        return None if policy == WorkloadPolicy() else policy

    def _regions(self, verdict: Verdict) -> tuple[str, ...] | UnsetType:
        named = {r.pattern for r in self.rules if (r.verdict, r.kind) == (verdict, "region")}
        return tuple(sorted(named)) if 0 < len(named) <= POLICY_REGIONS_MAX else UNSET

    def is_configured(self, rule: RuleRecord) -> bool:
        """Whether config.toml has it, and so no command removes it."""
        return rule in self._configured

    def add(self, rule: Rule) -> RuleRecord:
        """The rule under its new name. Raises LocalFault."""
        if len(self._kept.rules) >= RULES_MAX:
            raise LocalFault(f"There are {RULES_MAX} rules already.", "p2pnode allow remove")
        number = self._kept.next
        record = _named(check_rule(rule), f"r{number}")
        self._keep(RulesRecord(next=number + 1, rules=(*self._kept.rules, record)))
        return record

    def remove(self, name: str) -> None:
        """Raises LocalFault if no command has added a rule of that name."""
        left = tuple(each for each in self._kept.rules if each.name != name)
        if len(left) == len(self._kept.rules):
            if any(each.name == name for each in self._configured):
                raise LocalFault(f"{name} is from config.toml.", "take it out there, and restart")
            raise LocalFault(f"No rule is called {name[:40]!a}.", "p2pnode allow list")
        self._keep(RulesRecord(next=self._kept.next, rules=left))

    def why_not(self, guest: Guest, kinds: tuple[Kind, ...] = KINDS) -> str | None:
        """The first reason to keep this guest out."""
        if guest.account == self._own.root.hex() or guest.feed == self._own.feed.hex():
            return None
        rules = [Rule(each.verdict, each.kind, each.pattern) for each in self.rules]
        return why_not(rules, guest, kinds)

    def bars(self, renter: Certificate, address: str | None, rfq: Rfq | None) -> str | None:
        """Why we do not deal with this renter; its region is known from a request for quote."""
        region = None if rfq is None or rfq.region is UNSET else rfq.region
        guest = Guest(
            feed=renter.feed.hex(), account=renter.root.hex(), region=region, address=address
        )
        kinds: tuple[Kind, ...] = ("renter", "network")
        return self.why_not(guest, kinds if rfq is None else (*kinds, "region"))

    def bars_job(self, job: Job, renter: Certificate) -> str | None:
        """Why we do not run this renter's job; what holds for an account does for all its peers."""
        image = None if job.image is UNSET else job.image
        guest = Guest(image=image, feed=renter.feed.hex(), account=renter.root.hex())
        return self.why_not(guest, ("image", "renter"))

    def _keep(self, record: RulesRecord) -> None:
        put_record(self._cabinet, _RULES, record)
        self._kept = record
        self._changed()


def _named(rule: Rule, name: str) -> RuleRecord:
    return RuleRecord(name=name, verdict=rule.verdict, kind=rule.kind, pattern=rule.pattern)


def rules_of(workloads: Workloads) -> list[Rule]:
    """What config.toml allows and denies."""
    named: dict[tuple[Verdict, Kind], tuple[str, ...]] = {
        ("allow", "image"): workloads.allow_images,
        ("deny", "image"): workloads.deny_images,
        ("allow", "renter"): workloads.allow_renters,
        ("deny", "renter"): workloads.deny_renters,
        ("allow", "region"): workloads.allow_regions,
        ("deny", "region"): workloads.deny_regions,
        ("allow", "network"): workloads.allow_networks,
        ("deny", "network"): workloads.deny_networks,
    }
    return [Rule(*key, pattern) for key, patterns in named.items() for pattern in patterns]
