"""What one peer sees of a set of entries: who vouches for whom, and what is at risk.

SPEC.md 14.3 and 14.4. Pure. A view is made for one peer and one epoch, of facts in canonical order.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ledger.attested import non_deliveries
from ledger.fold import State
from ledger.max_flow import Edge
from ledger.rules import BUNDLES, Case, Verdict, ending, judge, verdicts_by_feed
from ledger.trades import Claim, Facts, Owed, Risk, Trade, facts_of
from protocol.rules import BUNDLE, KEPT_PPM_MAX, Bundle
from protocol.units import Digest, PublicKey


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Failure:
    """Periods of service that did not come, as attested to their renter."""

    reporter: PublicKey
    """The renter; it is believed as far as `ego` has reason to."""
    subject: PublicKey
    epoch: int
    periods: int
    by: tuple[Digest, ...] = ()
    """Ids of the entries that attest it; none: what `ego` has seen itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """All that the numbers are derived from, each fact once."""

    ego: PublicKey
    epoch: int
    bundle: Bundle
    """The network's own."""
    facts: Facts
    verdicts: tuple[Verdict, ...]
    answers: Mapping[PublicKey, Sequence[Verdict]]
    """Feed -> what it answers for."""
    kept: dict[PublicKey, int]
    """Feed -> what these leave of its weight, in ppm."""
    failures: tuple[Failure, ...]

    def kept_ppm(self, peer: PublicKey) -> int:
        """What proved offences leave of the peer's weight."""
        return self.kept.get(peer, KEPT_PPM_MAX)

    def verdicts_of(self, peer: PublicKey) -> Sequence[Verdict]:
        """What the peer answers for, by the id of the proof: what any feed of its account did."""
        return self.answers.get(peer, ())

    def barred_by(self, peer: PublicKey) -> Verdict | None:
        """An offence for which nobody should deal with the peer again; None if there is none."""
        return ending(self.verdicts_of(peer))

    def trades(self, money: str) -> list[Trade]:
        """Those for this money; one of the future does not count yet."""
        trades = self.facts.trades
        return [each for each in trades if each.money == money and each.epoch <= self.epoch]

    def edges(self, money: str) -> list[Edge]:
        """Who vouches for whom, and for how much: both sides of what was settled between them.

        A side with an overdue claim, or an overdue debt to it, vouches no more: its own loss.
        """
        overdue = self.overdue(money)
        edges: list[Edge] = []
        for (one, other), by_epoch in self._settled(money).items():
            weight = self._weight(by_epoch) * min(self.kept_ppm(one), self.kept_ppm(other))
            pairs = ((one, other), (other, one))
            edges += [(*pair, weight // KEPT_PPM_MAX) for pair in pairs if pair not in overdue]
        return edges

    def overdue(self, money: str) -> dict[tuple[PublicKey, PublicKey], list[Digest]]:
        """Who vouches no more for whom -> the owner's halves of which the renter is late."""
        late = self.bundle.overdue_epochs
        waited: list[Claim | Owed] = [*self.facts.claims, *self.facts.owed]
        halves: dict[tuple[PublicKey, PublicKey], list[Digest]] = {}
        for each in waited:
            if each.money == money and each.epoch + late < self.epoch:
                halves.setdefault((each.owner, each.renter), []).append(each.half)
        return halves

    def _weight(self, by_epoch: dict[int, int]) -> int:
        most, half_life = self.bundle.settled_micro_max, self.bundle.half_life_epochs
        return sum(
            min(amount, most) >> ((self.epoch - epoch) // half_life)
            for epoch, amount in by_epoch.items()
        )

    def _settled(self, money: str) -> dict[tuple[PublicKey, PublicKey], dict[int, int]]:
        """Pair, the smaller feed first -> epoch -> what the two have settled in it, both ways."""
        settled: dict[tuple[PublicKey, PublicKey], dict[int, int]] = {}
        for trade in self.trades(money):
            by_epoch = settled.setdefault(pair_of(trade), {})
            by_epoch[trade.epoch] = by_epoch.get(trade.epoch, 0) + trade.amount_micro
        return settled

    def exposures(self, money: str) -> list[tuple[Digest, PublicKey, int]]:
        """What `ego` has at risk: entry, renter, amount; in the order of the entries' ids.

        A lease of which nothing is stated is at risk until it is overdue; a claim until the renter
        has answered it; what both have signed until it is paid.
        """
        late = self.bundle.overdue_epochs
        risks = [each for each in self.facts.risks if each.epoch + late >= self.epoch]
        at_risk: list[Claim | Owed | Risk] = [*risks, *self.facts.claims, *self.facts.owed]
        return sorted(
            (each.lease if isinstance(each, Risk) else each.half, each.renter, each.amount_micro)
            for each in at_risk
            if each.owner == self.ego and each.money == money
        )


def pair_of(trade: Trade) -> tuple[PublicKey, PublicKey]:
    """Both sides, the smaller feed first."""
    return min(trade.owner, trade.renter), max(trade.owner, trade.renter)


def epoch_of(ts_ms: int, bundle: Bundle) -> int:
    """The epoch in which this instant lies."""
    return ts_ms // bundle.epoch_ms


def view_of(
    facts: Facts,
    verdicts: tuple[Verdict, ...],
    *,
    ego: PublicKey,
    epoch: int,
    failures: tuple[Failure, ...] = (),
    bundle: Bundle = BUNDLE,
    account: Callable[[PublicKey], list[PublicKey]] = lambda feed: [feed],
) -> View:
    """The view of `ego` on these facts and verdicts, in whatever order and however often."""
    by_id = {verdict.case.id: verdict for verdict in verdicts}
    ordered = tuple(by_id[each] for each in sorted(by_id))
    answers = verdicts_by_feed(ordered, account)
    kept = {feed: min(each.kept_ppm(epoch) for each in of) for feed, of in answers.items()}
    return View(
        ego=ego,
        epoch=epoch,
        bundle=bundle,
        facts=facts.merged(Facts()),
        verdicts=ordered,
        answers=answers,
        kept=dict(sorted(kept.items())),
        failures=tuple(sorted(dict.fromkeys(failures))),
    )


def look(
    state: State,
    cases: tuple[Case, ...],
    *,
    ego: PublicKey,
    epoch: int,
    failures: tuple[Failure, ...] = (),
    bundles: Mapping[bytes, Bundle] = BUNDLES,
    bundle: Bundle = BUNDLE,
) -> View:
    """The view of `ego` on this set of entries and proofs; `bundle` is the network's.

    To the `failures` that ego has seen come those that witnesses attest in the entries.
    """
    return view_of(
        facts_of(state, bundles=bundles, home=bundle),
        judge(cases, state, bundles=bundles, home=bundle),
        ego=ego,
        epoch=epoch,
        failures=(*failures, *attested_failures(state, bundle)),
        bundle=bundle,
        account=state.feeds_of_account,
    )


def attested_failures(state: State, bundle: Bundle) -> tuple[Failure, ...]:
    """A failure for each period of a lease of which enough of its witnesses say so. SPEC.md 14.5.

    It is in the renter's mouth: it chose the witnesses, so it is believed as far as the renter is.
    """
    return tuple(
        Failure(
            reporter=each.renter,
            subject=each.owner,
            epoch=epoch_of(each.at_ms, bundle),
            periods=1,
            by=each.by,
        )
        for each in non_deliveries(state)
        if each.is_enough
    )
