"""Credit and reliability of one peer in the eyes of another. SPEC.md 13.4 and 13.5. Pure, integer.

A number depends on the set of entries, the two peers, the money, the epoch and the bundle, and on
nothing else. Money of different units never meets: there is one graph for each.
"""

from dataclasses import dataclass
from math import isqrt
from typing import Final

from ledger.max_flow import Flow, Graph, graph_of
from ledger.trades import Claim, Risk, Trade
from ledger.view import Failure, View, pair_of
from protocol.codec import encode_plain
from protocol.rules import KEPT_PPM_MAX, Bundle, digest_of_bundle
from protocol.signing import digest
from protocol.units import Digest, PublicKey

_FINE: Final = KEPT_PPM_MAX * KEPT_PPM_MAX
"""In these parts roots are taken, so that rounding never shows in a millionth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One number, and the entries and proofs that it comes from, by id, sorted."""

    name: str
    value: int
    entries: tuple[Digest, ...]
    proofs: tuple[Digest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finance:
    """What may be risked with a peer, and how that number comes about."""

    flow_micro: int
    """What can still flow, everything at risk set aside."""
    reserved_micro: int
    """Flow that is set aside for what `ego` has at risk, with whomever."""
    credit_micro: int
    entries: tuple[Digest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What is believed of a peer's service, in flow, and what that makes its reliability."""

    good_micro: int
    bad_micro: int
    reliability_ppm: int
    entries: tuple[Digest, ...]


def lower_bound_ppm(good_micro: int, bad_micro: int, bundle: Bundle) -> int:
    """The reliability that these good and bad periods, measured in flow, make certain enough.

    A lower bound of a Beta distribution by its mean and variance, rounded down. More good never
    lowers it, more bad never raises it.
    """
    unit = bundle.period_micro
    good = good_micro + bundle.prior[0] * unit
    bad = bad_micro + bundle.prior[1] * unit
    both = good + bad
    numerator, denominator = bundle.bound
    variance = -(-_FINE * _FINE * numerator * good * bad * unit // (denominator * (both + unit)))
    spread = isqrt(variance - 1) + 1
    return max(0, _FINE * good - spread) // (KEPT_PPM_MAX * both)


class Trust:
    """The numbers of one view; keeps the graphs that it has built. One owner."""

    def __init__(self, view: View) -> None:
        self.view = view
        self._graphs: dict[str, Graph] = {}

    def _graph(self, money: str) -> Graph:
        if money not in self._graphs:
            self._graphs[money] = graph_of(self.view.edges(money))
        return self._graphs[money]

    def finance(self, peer: PublicKey, money: str) -> Finance:
        """What `ego` may risk with the peer beyond what it has at risk already."""
        bundle, ego = self.view.bundle, self.view.ego
        flow, exposures, reserved = Flow(self._graph(money)), self.view.exposures(money), 0
        for _, renter, amount in exposures:
            reserved += flow.push(ego, renter, _needed(amount, bundle))
        pushed = flow.push(ego, peer, _needed(bundle.credit_micro_max, bundle))
        numerator, denominator = bundle.phi
        entries = [entry for entry, _, _ in exposures] + self._halves_between(flow.used(), money)
        return Finance(
            flow_micro=pushed,
            reserved_micro=reserved,
            credit_micro=min(bundle.credit_micro_max, pushed * numerator // denominator),
            entries=tuple(sorted(dict.fromkeys(entries))),
        )

    def credit(self, peer: PublicKey, money: str) -> int:
        """Millionths of `money` that `ego` may lend the peer; 0 for a newcomer."""
        return self.finance(peer, money).credit_micro

    def record(self, peer: PublicKey, money: str) -> Record:
        """What is believed of the peer's service to those who rented for this money.

        Each reporter is believed as far as flow reaches it from `ego` past the peer itself, and
        what one reporter takes is gone for the next; `ego` believes itself.
        """
        reports = self._reports(peer, money)
        flow = Flow(self._graph(money))
        flow.close(peer)
        good = bad = 0
        entries: list[Digest] = []
        for reporter in sorted(reports, key=lambda each: (each != self.view.ego, each)):
            done, failed, halves = reports[reporter]
            voice = self._voice(flow, reporter, done + failed)
            fine = voice * done // (done + failed)
            good, bad = good + fine, bad + voice - fine
            entries += halves if voice else ()
        entries += self._halves_between(flow.used(), money)
        bound = lower_bound_ppm(good, bad, self.view.bundle)
        return Record(
            good_micro=good,
            bad_micro=bad,
            reliability_ppm=bound * self.view.kept_ppm(peer) // KEPT_PPM_MAX,
            entries=tuple(sorted(dict.fromkeys(entries))),
        )

    def reliability(self, peer: PublicKey, money: str) -> int:
        """How likely the peer serves to the end, at least, in ppm."""
        return self.record(peer, money).reliability_ppm

    def _voice(self, flow: Flow, reporter: PublicKey, periods: int) -> int:
        bundle = self.view.bundle
        wanted = min(bundle.voice_micro_max, periods * bundle.period_micro)
        return wanted if reporter == self.view.ego else flow.push(self.view.ego, reporter, wanted)

    def _reports(
        self, peer: PublicKey, money: str
    ) -> dict[PublicKey, tuple[int, int, tuple[Digest, ...]]]:
        """Reporter -> periods served to it, periods that failed, and the entries that say so."""
        reports: dict[PublicKey, tuple[int, int, tuple[Digest, ...]]] = {}
        for trade in self.view.trades(money):
            if trade.owner == peer and trade.used_ms:
                done, failed, by = reports.get(trade.renter, (0, 0, ()))
                periods = -(-trade.used_ms // self.view.bundle.period_ms)
                reports[trade.renter] = (done + periods, failed, (*by, *trade.halves))
        for failure in self.view.failures:
            if failure.subject == peer and failure.periods > 0 and failure.epoch <= self.view.epoch:
                done, failed, by = reports.get(failure.reporter, (0, 0, ()))
                reports[failure.reporter] = (done, failed + failure.periods, (*by, *failure.by))
        return reports

    def _halves_between(
        self, ways: tuple[tuple[PublicKey, PublicKey], ...], money: str
    ) -> list[Digest]:
        """The halves that the edges along these ways come from."""
        wanted = {(min(way), max(way)): None for way in ways}
        return [
            half
            for trade in self.view.trades(money)
            if pair_of(trade) in wanted
            for half in trade.halves
        ]

    def explain(self, peer: PublicKey, money: str) -> tuple[Finding, ...]:
        """Each number with what it comes from."""
        cases = [each for each in self.view.verdicts if each.offender == peer]
        proofs = tuple(sorted(each.case.id for each in cases))
        own = tuple(sorted(dict.fromkeys(one for each in cases for one in each.case.entries)))
        finance, record = self.finance(peer, money), self.record(peer, money)
        return (
            Finding(name="kept_ppm", value=self.view.kept_ppm(peer), entries=own, proofs=proofs),
            Finding(
                name="credit_micro",
                value=finance.credit_micro,
                entries=finance.entries,
                proofs=proofs,
            ),
            Finding(
                name="reliability_ppm",
                value=record.reliability_ppm,
                entries=record.entries,
                proofs=proofs,
            ),
        )

    def digest(self, peer: PublicKey, money: str) -> Digest:
        """Digest of all inputs and of the peer's numbers: replicas that agree have the same."""
        view = self.view
        inputs = [
            [digest_of_bundle(view.bundle), view.ego, view.epoch, peer, money],
            [_row(each) for each in view.facts.trades],
            [_row(each) for each in view.facts.claims],
            [_row(each) for each in view.facts.risks],
            [[each.case.id, each.name, each.kept_ppm(view.epoch)] for each in view.verdicts],
            [_row(each) for each in view.failures],
        ]
        outputs = [
            self.view.kept_ppm(peer),
            self.credit(peer, money),
            self.reliability(peer, money),
        ]
        return digest("standing", encode_plain([inputs, outputs]))


def _row(fact: Trade | Claim | Risk | Failure) -> list[object]:
    """The fact as a list, its fields in their order."""
    values = (getattr(fact, name) for name in fact.__slots__)
    return [list(value) if isinstance(value, tuple) else value for value in values]


def _needed(amount: int, bundle: Bundle) -> int:
    """The flow that this much credit takes."""
    numerator, denominator = bundle.phi
    return -(-amount * denominator // numerator)
