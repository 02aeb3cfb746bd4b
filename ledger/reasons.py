"""Why the numbers of one peer are what they are: the entries and proofs that make them.

SPEC.md 14.6. Pure. Derives no number of its own.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from ledger.max_flow import Flow
from ledger.trust import Record, Trust
from protocol.rules import KEPT_PPM_MAX
from protocol.units import Digest, PublicKey

UNPROVED: Final = "nothing is proved against it or another feed of its account"
SPENT: Final = "what is proved costs it nothing in this epoch"
UNSETTLED: Final = "zero: nothing is known that it has settled with anybody"
NO_WAY: Final = "zero: no way to it has room left"
NOT_AT_RISK: Final = "zero: nothing of this node's is at risk"
NO_WAY_AT_RISK: Final = "zero: no way leads to those with whom something is at risk"
UNSAID: Final = "zero: nobody who is believed says so"
UNHEARD: Final = "as of a newcomer: nobody who is believed says anything of it"
OWN: Final = "this node's own observation: no entry tells it"
OWN_TOO: Final = "with this node's own observation, which no entry tells"
UNSEEN: Final = "zero: this node's own observation, no entry tells it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One number and what it comes from, by id; each list is sorted."""

    name: str
    value: int
    entries: tuple[Digest, ...] = ()
    proofs: tuple[Digest, ...] = ()
    """Of what lessens the weight of the peer, or of one on the way to it."""
    overdue: tuple[Digest, ...] = ()
    """Halves of which the renter is late, so that their owner does not vouch for it."""
    said_by: tuple[PublicKey, ...] = ()
    """Whose word it is, if it is somebody's."""
    note: str = ""
    """What the ids do not tell; there is one wherever there are no ids."""


def explain(trust: Trust, peer: PublicKey, money: str) -> tuple[Finding, ...]:
    """A finding for each number of the peer."""
    asked = _Asked(trust=trust, peer=peer, money=money)
    return (asked.kept(), *asked.lent(), asked.reserved(), *asked.told(), asked.seen())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ways:
    """What makes a flow as large as it is."""

    entries: Sequence[Digest] = ()
    """The halves from which the edges come that were used."""
    proofs: Sequence[Digest] = ()
    overdue: Sequence[Digest] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """About whom it is asked."""

    trust: Trust
    peer: PublicKey
    money: str

    def kept(self) -> Finding:
        """What all feeds of the peer's account have done."""
        view = self.trust.view
        cases = [verdict.case for verdict in view.verdicts_of(self.peer)]
        kept = view.kept_ppm(self.peer)
        return Finding(
            name="kept_ppm",
            value=kept,
            entries=_sorted(entry for case in cases for entry in case.entries),
            proofs=_sorted(case.id for case in cases),
            note="" if kept < KEPT_PPM_MAX else SPENT if cases else UNPROVED,
        )

    def lent(self) -> list[Finding]:
        """Of what may be risked with the peer: the same makes the flow and the credit."""
        flow = self.trust.flow(self.money)
        finance = self.trust.finance_by(flow, self.peer, self.money)
        if self.trust.has_traded(self.peer, self.money):
            note = "" if finance.flow_micro else NO_WAY
            ways, at_risk = self._ways(flow, (self.peer,)), self._at_risk()
        else:
            note = UNSETTLED
            ways, at_risk = _Ways(proofs=self._proofs((self.peer,))), {}
        return [
            Finding(
                name=name,
                value=getattr(finance, name),
                entries=_sorted((*at_risk, *ways.entries)),
                proofs=_sorted(ways.proofs),
                overdue=_sorted(ways.overdue),
                note=note,
            )
            for name in ("credit_micro", "flow_micro")
        ]

    def reserved(self) -> Finding:
        """Of what is set aside before: it is about whoever has something of `ego`'s."""
        flow, at_risk = self.trust.flow(self.money), self._at_risk()
        reserved = self.trust.reserve(flow, self.money)
        if not at_risk:
            return Finding(name="reserved_micro", value=reserved, note=NOT_AT_RISK)
        ways = self._ways(flow, dict.fromkeys(at_risk.values()))
        return Finding(
            name="reserved_micro",
            value=reserved,
            entries=_sorted((*at_risk, *ways.entries)),
            proofs=_sorted(ways.proofs),
            overdue=_sorted(ways.overdue),
            note="" if reserved else NO_WAY_AT_RISK,
        )

    def told(self) -> list[Finding]:
        """Of what is believed of the peer's service: who said it, and what lets it be believed."""
        trust, peer, money = self.trust, self.peer, self.money
        flow = trust.flow(money)
        record = trust.record_by(flow, peer, money)
        served = [each for each in trust.served(peer, money) if each.used_ms]
        failures, heard = trust.failures_of(peer), dict.fromkeys(record.heard)
        praise = [half for each in served if each.renter in heard for half in each.halves]
        blame = [entry for each in failures if each.reporter in heard for entry in each.by]
        fine = dict.fromkeys(each.renter for each in served)
        poor = dict.fromkeys(each.reporter for each in failures)
        both = self._believed(
            "reliability_ppm", record, flow, reporters={**fine, **poor}, said=praise + blame
        )
        proofs = _sorted((*both.proofs, *self._proofs((peer,))))
        return [
            self._believed("good_micro", record, flow, reporters=fine, said=praise),
            self._believed("bad_micro", record, flow, reporters=poor, said=blame),
            replace(both, proofs=proofs, note=both.note if both.said_by else UNHEARD),
        ]

    def _believed(
        self,
        name: str,
        record: Record,
        flow: Flow,
        *,
        reporters: Collection[PublicKey],
        said: list[Digest],
    ) -> Finding:
        """Of one number of the record, about which these reporters say something."""
        by = tuple(each for each in record.heard if each in reporters)
        # No flow has to reach `ego`.
        others = dict.fromkeys(each for each in reporters if each != self.trust.view.ego)
        ways = self._ways(flow, others) if others else _Ways()
        entries = _sorted((*said, *ways.entries)) if by else ()
        own = OWN_TOO if entries else OWN
        is_own = name != "good_micro" and self.trust.failures_seen(self.peer) > 0
        return Finding(
            name=name,
            value=getattr(record, name),
            entries=entries,
            proofs=_sorted(ways.proofs),
            overdue=_sorted(ways.overdue),
            said_by=by,
            note=UNSAID if not by else own if is_own else "",
        )

    def seen(self) -> Finding:
        """Of what the peer did not finish for `ego`, as that has seen itself."""
        seen = self.trust.failures_seen(self.peer)
        by = (self.trust.view.ego,) if seen else ()
        return Finding(name="failures_seen", value=seen, said_by=by, note=OWN if seen else UNSEEN)

    def _at_risk(self) -> dict[Digest, PublicKey]:
        """What `ego` has at risk -> with whom."""
        return {entry: renter for entry, renter, _ in self.trust.view.exposures(self.money)}

    def _ways(self, flow: Flow, ends: Collection[PublicKey]) -> _Ways:
        """What this flow used and what kept it small, at its begin, at its ends and between."""
        trust, ego = self.trust, self.trust.view.ego
        pairs = dict.fromkeys((min(way), max(way)) for way in flow.used())
        edges = [trust.between(*pair, self.money) for pair in pairs]
        # An edge to the peer itself matters only to what ends there.
        late = [
            half
            for (owner, renter), halves in trust.view.overdue(self.money).items()
            if (renter in ends or (owner == ego and renter != self.peer))
            and trust.between(owner, renter, self.money)
            for half in halves
        ]
        return _Ways(
            entries=[half for trades in edges for trade in trades for half in trade.halves],
            proofs=self._proofs((ego, *ends, *chain.from_iterable(pairs))),
            overdue=late,
        )

    def _proofs(self, feeds: Iterable[PublicKey]) -> list[Digest]:
        """Of what lessens the weight of these in this epoch."""
        view = self.trust.view
        return [
            verdict.case.id
            for feed in dict.fromkeys(feeds)
            for verdict in view.verdicts_of(feed)
            if verdict.kept_ppm(view.epoch) < KEPT_PPM_MAX
        ]


def _sorted(ids: Iterable[Digest]) -> tuple[Digest, ...]:
    return tuple(sorted(dict.fromkeys(ids)))
