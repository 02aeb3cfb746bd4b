"""The accounts of a running node, as API documents."""

from collections.abc import Callable

import trio

from ledger.debts import Debt, Line
from p2pnode.api.money_documents import (
    AccountDocument,
    AccountListDocument,
    ConfirmedDocument,
    ConfirmOrder,
    DebtDocument,
    DebtListDocument,
    EnergyDocument,
    LineDocument,
    Side,
    StatementDocument,
)
from p2pnode.credit_line import CreditLine
from p2pnode.network.exchange import Refused
from p2pnode.node import Node
from p2pnode.reputation_views import feed_named
from p2pnode.settling import Settling
from protocol.errors import LocalFault, PeerFault, Unavailable
from protocol.payment import reference_of
from protocol.units import Micros, PublicKey


def money_views(node: Node) -> "MoneyViews":
    """Those of this node."""
    return MoneyViews(
        settling=node.settling,
        credit_line=node.credit_line,
        feed_of=lambda text: feed_named(node, text),
        energy=lambda: _energy(node),
    )


def _energy(node: Node) -> EnergyDocument | None:
    energy = node.terms.prices.rule.energy
    if energy is None:
        return None
    return EnergyDocument(
        money=node.provider.posting.money,
        micro_per_kwh=energy.micro_per_kwh,
        watts=energy.watts,
    )


class MoneyViews:
    """What the API does with accounts; `feed_of` finds the feed that a user names."""

    def __init__(
        self,
        *,
        settling: Settling,
        credit_line: CreditLine,
        feed_of: Callable[[str], PublicKey],
        energy: Callable[[], EnergyDocument | None] = lambda: None,
    ) -> None:
        """`energy` tells what that costs us, if it is known."""
        self._settling = settling
        self._credit_line = credit_line
        self._feed_of = feed_of
        self._energy = energy

    def accounts(self) -> AccountListDocument:
        """All accounts, in both roles."""
        return AccountListDocument(
            items=tuple(map(self._account, self._settling.debts())), energy=self._energy()
        )

    def statement(
        self, peer: str | None, *, since_ms: int | None, until_ms: int | None
    ) -> StatementDocument:
        """The lines with this peer, or all, from `since_ms` up to but not including `until_ms`."""
        wanted = None if peer is None else self._feed_of(peer)
        lines = [
            line
            for line in self._settling.lines()
            if (wanted is None or wanted in {line.owner, line.renter})
            and (since_ms is None or line.ts_ms >= since_ms)
            and (until_ms is None or line.ts_ms < until_ms)
        ]
        return StatementDocument(items=tuple(map(self._line, lines)))

    async def debts(self) -> DebtListDocument:
        """What we owe, each with its owner's payment reference; all are asked at once."""
        due = [each for each in self._settling.debts() if self._owes(each)]
        found: dict[Debt, DebtDocument] = {}

        async def ask(debt: Debt) -> None:
            found[debt] = await self._debt(debt)

        async with trio.open_nursery() as nursery:
            for debt in due:
                nursery.start_soon(ask, debt)
        return DebtListDocument(items=tuple(found[each] for each in due))

    def confirm(self, order: ConfirmOrder) -> ConfirmedDocument:
        """Sign that a payment has arrived. Raises LocalFault."""
        renter = self._feed_of(order.peer)
        if order.amount_micro <= 0:
            raise LocalFault("A payment is above zero.", "p2pnode earn confirm PEER '1.20 USD'")
        entry = self._settling.confirm(renter, Micros(order.amount_micro), order.money)
        debt = self._credit_line.debt(renter, order.money)
        assert debt is not None
        return ConfirmedDocument(half=entry.id.hex(), account=self._account(debt))

    def _owes(self, debt: Debt) -> bool:
        return self._side(debt) == "renter" and debt.due_micro > 0

    async def _debt(self, debt: Debt) -> DebtDocument:
        payout, signed, why = None, None, ""
        try:
            sealed, raw = await self._settling.reference(debt.owner, debt.money)
        except Refused as error:
            why = f"the owner refuses: {error.rule}"
            if error.rule == "payment.none":
                why = "the owner has not said how it is paid"
        except Unavailable as error:
            why = f"the owner cannot be reached: {error}"
        except trio.TooSlowError:
            why = "the owner cannot be reached: it does not answer"
        except PeerFault as fault:
            why = f"the owner's answer breaks the rule {fault.rule}"
        else:
            payout, signed = sealed.body.payout, raw.hex()
        return DebtDocument(
            own_feed=debt.renter.hex(),
            peer_feed=debt.owner.hex(),
            money=debt.money,
            due_micro=debt.due_micro,
            since_ms=debt.since_ms,
            late=self._credit_line.is_late(debt),
            reference=reference_of(debt.owner, debt.renter, debt.money),
            payout=payout,
            signed=signed,
            why=why,
        )

    def _account(self, debt: Debt) -> AccountDocument:
        return AccountDocument(
            side=self._side(debt),
            own_feed=self._own(debt).hex(),
            peer_feed=self._other(debt).hex(),
            money=debt.money,
            used_ms=debt.used_ms,
            agreed_micro=debt.agreed_micro,
            claimed_micro=debt.claimed_micro,
            paid_micro=debt.paid_micro,
            due_micro=debt.due_micro,
            since_ms=debt.since_ms,
            late=self._credit_line.is_late(debt),
            reference=reference_of(debt.owner, debt.renter, debt.money),
        )

    def _line(self, line: Line) -> LineDocument:
        return LineDocument(
            side=self._side(line),
            own_feed=self._own(line).hex(),
            peer_feed=self._other(line).hex(),
            money=line.money,
            at_ms=line.ts_ms,
            half=line.half.hex(),
            lease=None if line.lease is None else line.lease.hex(),
            used_ms=line.used_ms,
            amount_micro=line.amount_micro,
            paid_micro=line.paid_micro,
            claim="proved" if line.is_agreed else "claimed",
        )

    def _side(self, account: Debt | Line) -> Side:
        return "owner" if account.owner in self._settling.feeds else "renter"

    def _own(self, account: Debt | Line) -> PublicKey:
        return account.owner if self._side(account) == "owner" else account.renter

    def _other(self, account: Debt | Line) -> PublicKey:
        return account.renter if self._side(account) == "owner" else account.owner
