"""How far an owner lets a renter run up a debt: what a newcomer may owe, and what trust adds.

Money of test networks is worth nothing, so nothing of it is at risk.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ledger.debts import Debt, debt_of
from ledger.fold import Lease
from ledger.ledger import Ledger
from ledger.rail_bodies import RailTold, live_holds
from ledger.statements import stated_of
from ledger.trades import WORTHLESS
from p2pnode.clock import WallClock
from p2pnode.config import Config
from p2pnode.quantities import Money, format_money
from protocol.lease import LeaseRequest, charge
from protocol.rules import BUNDLE
from protocol.units import Digest, Micros, MillisSpan, PublicKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the owner has chosen."""

    billing_ms: MillisSpan
    newcomer: Money | None
    """None: the price of one billing period."""
    rails: tuple[PublicKey, ...] = ()
    """Keys of payment rails whose holds we take for money."""


def credit_terms(config: Config) -> Terms:
    """Those in the owner's configuration."""
    return Terms(
        billing_ms=config.pricing.billing,
        newcomer=config.pricing.newcomer_credit,
        rails=tuple(PublicKey(bytes.fromhex(text)) for text in config.pricing.rails),
    )


class CreditLine:
    """One owner's policy, asked before a lease is given and while it runs."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        terms: Terms,
        credit: Callable[[PublicKey, str], int],
        metered: Callable[[Digest], Micros],
        is_over: Callable[[Digest], bool],
        clock: WallClock,
    ) -> None:
        """`credit` is what the ledger's derivation trusts the renter with, in this money.

        `metered` is what the last tick of a lease says, and `is_over` whether its job has ended.
        """
        self._ledger = ledger
        self._terms = terms
        self._credit = credit
        self._metered = metered
        self._is_over = is_over
        self._clock = clock

    def refusal(self, request: LeaseRequest, renter: PublicKey) -> str | None:
        """Why the renter gets no such lease, in a sentence; None if it does."""
        money = request.money
        if money == WORTHLESS or renter == self._ledger.feed:
            return None
        account = self._ledger.state.feeds_of_account(renter)
        debts = [debt for feed in account if (debt := self.debt(feed, money)) is not None]
        for debt in debts:
            if self.is_late(debt):
                return f"{format_money(debt.due_micro, money)} have not been paid for too long"
        open_leases = [each for feed in account for each in self._open(feed, money)]
        promised = sum(
            max(0 if lease.reason else self._next_bill(lease.request), unbilled)
            for lease, unbilled in open_leases
        )
        wanted = sum(debt.owed_micro for debt in debts) + promised + self._next_bill(request)
        limit = self.limit(renter, request)
        if wanted <= limit:
            return None
        return (
            f"would owe {format_money(Micros(wanted), money)}, "
            f"and may owe {format_money(limit, money)}"
        )

    def is_enough(self, lease: Lease) -> bool:
        """Whether the renter owes all that it may, what this lease has metered included."""
        money = lease.request.money
        if money == WORTHLESS or lease.renter == self._ledger.feed:
            return False
        account = self._ledger.state.feeds_of_account(lease.renter)
        unbilled = sum(each for feed in account for _, each in self._open(feed, money))
        owed = sum(self._owed(feed, money) for feed in account) + unbilled
        return owed > self.limit(lease.renter, lease.request)

    def limit(self, renter: PublicKey, request: LeaseRequest) -> Micros:
        """What the renter may owe us in the money of this request."""
        newcomer = self._terms.newcomer
        if newcomer is None:
            known = _price(request, self._terms.billing_ms)
        else:
            known = newcomer.micros if newcomer.code == request.money else Micros(0)
        held = self.held(renter, request.money)
        return Micros(known + self._credit(renter, request.money) + held)

    def held(self, renter: PublicKey, money: str) -> Micros:
        """What rails that we trust hold for us of the renter's, for leases that it has of us.

        Of each lease as much as it can cost, since no more of it can be captured by its receipt: of
        one that our books have closed what they state and is not paid. A simulated hold counts
        nothing: there is nothing to be had.
        """
        state, own, now = self._ledger.state, self._ledger.feed, self._clock.now()
        if not self._terms.rails:
            return Micros(0)
        halves = [half.statement for half in state.halves(own, renter, money=money)]
        unbilled = {lease.id: each for lease, each in self._open(renter, money)}
        total = closed = 0
        for lease in self._between(renter, money):
            holds = live_holds(state.rail_told(lease.id), now)
            amounts = (each.amount_micro for each in holds if self._is_ours(each, lease))
            span = MillisSpan(max(0, lease.ended_ms - lease.request.start_ms))
            secured = min(sum(amounts), _price(lease.request, span))
            if lease.id not in unbilled:
                closed += min(secured, stated_of(halves, lease.id)[1])
            elif self._goes_on(lease):
                total += secured
            else:
                total += min(secured, unbilled[lease.id])
        return Micros(total + min(closed, self._owed(renter, money)))

    def _is_ours(self, hold: RailTold, lease: Lease) -> bool:
        """Whether we could get it for this lease."""
        return (
            hold.rail in self._terms.rails
            and not hold.is_simulated
            and (hold.payer, hold.payee) == (lease.renter, lease.owner)
            and hold.money == lease.request.money
        )

    def is_late(self, debt: Debt) -> bool:
        """Whether something of it should have been paid by now, by our terms. ledger/SPEC.md 14.7.

        Not *overdue*, by which the ledger weighs a debt: that has no billing period.
        """
        if debt.money == WORTHLESS or debt.since_ms is None:
            return False
        grace_ms = BUNDLE.overdue_epochs * BUNDLE.epoch_ms
        return self._clock.now() > debt.since_ms + self._terms.billing_ms + grace_ms

    def debt(self, renter: PublicKey, money: str) -> Debt | None:
        """What the renter owes us in this money; None if there has been nothing."""
        return debt_of(self._ledger.state, self._ledger.feed, renter, money)

    def _owed(self, renter: PublicKey, money: str) -> int:
        """What is agreed or claimed, and not paid."""
        debt = self.debt(renter, money)
        return 0 if debt is None else debt.owed_micro

    def _open(self, renter: PublicKey, money: str) -> list[tuple[Lease, int]]:
        """Leases of ours with this renter that our books have not closed.

        Those too that it has left: what it has not signed is claimed an hour later. Each with what
        its last tick says beyond what our halves state of it.
        """
        state, own = self._ledger.state, self._ledger.feed
        halves = [half.statement for half in state.halves(own, renter, money=money)]
        named = dict.fromkeys(said.lease for said in halves)
        return [
            (lease, max(0, self._metered(lease.id) - stated_of(halves, lease.id)[1]))
            for lease in self._between(renter, money)
            if lease.reason in {None, "unpaid"} and (lease.id not in named or self._goes_on(lease))
        ]

    def _between(self, renter: PublicKey, money: str) -> list[Lease]:
        """Ours with this renter in this money, over or not."""
        state = self._ledger.state
        found = map(state.lease, state.leases_of(self._ledger.feed, renter))
        return [lease for lease in found if lease is not None and lease.request.money == money]

    def _goes_on(self, lease: Lease) -> bool:
        return self._clock.now() < lease.ended_ms and not self._is_over(lease.id)

    def _next_bill(self, request: LeaseRequest) -> Micros:
        """What can come to be owed for it before it is to be paid."""
        span = MillisSpan(request.end_ms - request.start_ms)
        return _price(request, min(span, self._terms.billing_ms))


def _price(request: LeaseRequest, span: MillisSpan) -> Micros:
    used = MillisSpan(span * len(request.units))
    return charge(used, Micros(request.micro_per_gpu_hour))
