"""Credit and reliability of one peer in the eyes of another. SPEC.md 14.4 and 14.5. Pure, integer.

A number depends on the set of entries, the two peers, the money, the epoch and the bundle, and on
nothing else. Money of different units never meets: there is one graph for each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Final

from ledger.max_flow import Flow, Graph, graph_of
from ledger.trades import Claim, Owed, Risk, Trade
from ledger.view import Failure, View, pair_of
from protocol.codec import encode_plain
from protocol.rules import KEPT_PPM_MAX, Bundle, digest_of_bundle
from protocol.signing import digest
from protocol.units import Digest, PublicKey

_FINE: Final = KEPT_PPM_MAX * KEPT_PPM_MAX
"""In these parts roots are taken, so that rounding never shows in a millionth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finance:
    """What may be risked with a peer, and how that number comes about."""

    flow_micro: int
    """What can still flow, everything at risk set aside."""
    reserved_micro: int
    """Flow that is set aside for what `ego` has at risk, with whomever."""
    credit_micro: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What is believed of a peer's service, in flow, and what that makes its reliability."""

    good_micro: int
    bad_micro: int
    reliability_ppm: int
    heard: tuple[PublicKey, ...]
    """The reporters that were believed at all, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Market:
    """The trades for one money, by who served and by who traded, and the graph of them."""

    graph: Graph
    by_owner: dict[PublicKey, list[Trade]]
    by_pair: dict[tuple[PublicKey, PublicKey], list[Trade]]


def _market_of(view: View, money: str) -> _Market:
    by_owner: dict[PublicKey, list[Trade]] = {}
    by_pair: dict[tuple[PublicKey, PublicKey], list[Trade]] = {}
    for trade in view.trades(money):
        by_owner.setdefault(trade.owner, []).append(trade)
        by_pair.setdefault(pair_of(trade), []).append(trade)
    return _Market(graph=graph_of(view.edges(money)), by_owner=by_owner, by_pair=by_pair)


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
    """The numbers of one view; keeps what it has built of it. One owner."""

    def __init__(self, view: View) -> None:
        self.view = view
        self._markets: dict[str, _Market] = {}

    def _market(self, money: str) -> _Market:
        if money not in self._markets:
            self._markets[money] = _market_of(self.view, money)
        return self._markets[money]

    def credit(self, peer: PublicKey, money: str) -> int:
        """Millionths of `money` that `ego` may lend the peer; 0 for a newcomer."""
        return self.finance(peer, money).credit_micro

    def finance(self, peer: PublicKey, money: str) -> Finance:
        """What `ego` may risk with the peer beyond what it has at risk already."""
        return self.finance_by(self.flow(money), peer, money)

    def flow(self, money: str) -> Flow:
        """The graph of this money, through which nothing was pushed yet."""
        return Flow(self._market(money).graph)

    def reserve(self, flow: Flow, money: str) -> int:
        """Pushes what `ego` has at risk, and returns how much flow that took."""
        bundle, ego = self.view.bundle, self.view.ego
        return sum(
            flow.push(ego, renter, _needed(amount, bundle))
            for _, renter, amount in self.view.exposures(money)
        )

    def finance_by(self, flow: Flow, peer: PublicKey, money: str) -> Finance:
        """As `finance`; afterwards the flow tells which edges were used."""
        bundle, ego = self.view.bundle, self.view.ego
        reserved = self.reserve(flow, money)
        pushed = flow.push(ego, peer, _needed(bundle.credit_micro_max, bundle))
        numerator, denominator = bundle.phi
        return Finance(
            flow_micro=pushed,
            reserved_micro=reserved,
            credit_micro=min(bundle.credit_micro_max, pushed * numerator // denominator),
        )

    def reliability(self, peer: PublicKey, money: str) -> int:
        """How likely the peer serves to the end, at least, in ppm."""
        return self.record(peer, money).reliability_ppm

    def record(self, peer: PublicKey, money: str) -> Record:
        """What is believed of the peer's service to those who rented for this money.

        Each reporter is believed as far as flow reaches it from `ego` past the peer itself, and
        what one reporter takes is gone for the next; `ego` believes itself.
        """
        return self.record_by(self.flow(money), peer, money)

    def record_by(self, flow: Flow, peer: PublicKey, money: str) -> Record:
        """As `record`; afterwards the flow tells which edges were used."""
        flow.close(peer)
        good = bad = 0
        heard: list[PublicKey] = []
        reports = self.reports(peer, money)
        for reporter in sorted(reports):
            done, failed = reports[reporter]
            voice = self._voice(flow, reporter, done + failed)
            fine = voice * done // (done + failed)
            good, bad = good + fine, bad + voice - fine
            heard += [reporter] if voice else []
        bound = lower_bound_ppm(good, bad, self.view.bundle)
        return Record(
            good_micro=good,
            bad_micro=bad,
            reliability_ppm=bound * self.view.kept_ppm(peer) // KEPT_PPM_MAX,
            heard=tuple(heard),
        )

    def _voice(self, flow: Flow, reporter: PublicKey, periods: int) -> int:
        bundle = self.view.bundle
        wanted = min(bundle.voice_micro_max, periods * bundle.period_micro)
        return wanted if reporter == self.view.ego else flow.push(self.view.ego, reporter, wanted)

    def reports(self, peer: PublicKey, money: str) -> dict[PublicKey, tuple[int, int]]:
        """Reporter -> periods that the peer served it, and periods that failed."""
        reports: dict[PublicKey, tuple[int, int]] = {}
        for trade in self.served(peer, money):
            if trade.used_ms:
                done, failed = reports.get(trade.renter, (0, 0))
                periods = -(-trade.used_ms // self.view.bundle.period_ms)
                reports[trade.renter] = (done + periods, failed)
        for failure in self.failures_of(peer):
            done, failed = reports.get(failure.reporter, (0, 0))
            reports[failure.reporter] = (done, failed + failure.periods)
        return reports

    def failures_of(self, peer: PublicKey) -> list[Failure]:
        """Those that count by now, believed or not."""
        return [
            each
            for each in self.view.failures
            if each.subject == peer and each.periods > 0 and each.epoch <= self.view.epoch
        ]

    def failures_seen(self, peer: PublicKey) -> int:
        """Periods that failed before the eyes of `ego`: no entry tells them."""
        return sum(each.periods for each in self.failures_of(peer) if not each.by)

    def served(self, peer: PublicKey, money: str) -> Sequence[Trade]:
        """The trades in which the peer is the owner."""
        return self._market(money).by_owner.get(peer, ())

    def between(self, one: PublicKey, other: PublicKey, money: str) -> Sequence[Trade]:
        """The trades of these two, whichever was the owner."""
        pair = min(one, other), max(one, other)
        return self._market(money).by_pair.get(pair, ())

    def has_traded(self, peer: PublicKey, money: str) -> bool:
        """Whether anything is known that the peer has settled in this money, with whomever."""
        return any(peer in pair for pair in self._market(money).by_pair)

    def digest(self, peer: PublicKey, money: str) -> Digest:
        """Digest of all inputs and of the peer's numbers: replicas that agree have the same."""
        view = self.view
        inputs = [
            [digest_of_bundle(view.bundle), view.ego, view.epoch, peer, money],
            [_row(each) for each in view.facts.trades],
            [_row(each) for each in view.facts.claims],
            [_row(each) for each in view.facts.risks],
            [_row(each) for each in view.facts.owed],
            [[each.case.id, each.name, each.kept_ppm(view.epoch)] for each in view.verdicts],
            [_row(each) for each in view.failures],
        ]
        outputs = [
            self.view.kept_ppm(peer),
            self.credit(peer, money),
            self.reliability(peer, money),
        ]
        return digest("standing", encode_plain([inputs, outputs]))


def _row(fact: Trade | Claim | Owed | Risk | Failure) -> list[object]:
    """The fact as a list, its fields in their order."""
    values = (getattr(fact, name) for name in fact.__slots__)
    return [list(value) if isinstance(value, tuple) else value for value in values]


def _needed(amount: int, bundle: Bundle) -> int:
    """The flow that this much credit takes."""
    numerator, denominator = bundle.phi
    return -(-amount * denominator // numerator)
