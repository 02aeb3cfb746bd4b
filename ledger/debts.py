"""Who owes whom how much, what has been paid, and the lines of both sides' books. SPEC.md 14.7.

Read off the fold; the same from the same set of entries. Sums of different money never meet.
"""

from dataclasses import dataclass
from typing import NamedTuple

from msgspec import UNSET

from ledger.bodies import Statement
from ledger.fold import Account, Half, State
from ledger.statements import paid_of
from ledger.trades import agreed_pairs, in_force
from protocol.units import Digest, Micros, Millis, MillisSpan, PublicKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Debt:
    """One account, from either side. All sums are cumulative."""

    owner: PublicKey
    renter: PublicKey
    money: str
    used_ms: MillisSpan
    """GPU-milliseconds that both have signed."""
    agreed_micro: Micros
    """What both have signed: *proved*."""
    stated_micro: Micros
    """What the owner has stated below a fork: beyond `agreed_micro` it is *claimed*."""
    paid_micro: Micros
    """What has arrived by the owner's own word, on whichever branch."""
    since_ms: Millis | None
    """When both had signed the oldest part that is not paid; None if all is."""

    @property
    def due_micro(self) -> Micros:
        """What is owed now."""
        return Micros(max(0, self.agreed_micro - self.paid_micro))

    @property
    def claimed_micro(self) -> Micros:
        """What the owner claims besides, and the renter has not signed."""
        return Micros(max(0, self.stated_micro - self.agreed_micro))

    @property
    def owed_micro(self) -> Micros:
        """What the owner has stated, and is not paid."""
        return Micros(max(0, self.stated_micro - self.paid_micro))


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What one half of an owner added to its account.

    Where both have signed only a part of that, it makes two lines.
    """

    owner: PublicKey
    renter: PublicKey
    money: str
    ctr: int
    half: Digest
    ts_ms: Millis
    lease: Digest | None
    used_ms: int
    amount_micro: int
    paid_micro: int
    is_agreed: bool
    """Whether both have signed for this use and amount; what was paid is the owner's word alone."""


class _Growth(NamedTuple):
    used: int
    amount: int


def debts_of(state: State, feed: PublicKey) -> list[Debt]:
    """The accounts in which this feed is one side; by owner, renter and money."""
    return [_debt(state, account) for account in _accounts(state, feed)]


def debt_of(state: State, owner: PublicKey, renter: PublicKey, money: str) -> Debt | None:
    """What this renter owes this owner; None if the owner has never stated anything."""
    if not state.halves(owner, renter, money=money):
        return None
    return _debt(state, (owner, renter, money, False))


def lines_of(state: State, feed: PublicKey) -> list[Line]:
    """The lines of all accounts in which this feed is one side, oldest first.

    Those of an account add up to what `debts_of` says of it: the agreed ones to what is agreed, the
    others to what is claimed, and all to what is paid.
    """
    lines = [line for account in _accounts(state, feed) for line in _lines(state, account)]
    return sorted(lines, key=lambda line: (line.ts_ms, line.ctr, line.half))


def _accounts(state: State, feed: PublicKey) -> list[Account]:
    return [each for each in state.accounts() if feed in each[:2] and not each[3]]


def _stated(state: State, account: Account) -> list[Half]:
    owner, renter, money, _ = account
    return in_force(state, state.halves(owner, renter, money=money))


def _agreed(state: State, account: Account) -> list[tuple[Half, Half]]:
    """The owner's halves with answers that say the same: a renter owes on all its branches."""
    owner, renter, money, _ = account
    answers = state.halves(renter, owner, money=money, is_answer=True)
    return agreed_pairs(_stated(state, account), answers)


def _debt(state: State, account: Account) -> Debt:
    owner, renter, money, _ = account
    stated = [half.statement for half in _stated(state, account)]
    pairs = _agreed(state, account)
    agreed = [both[0].statement for both in pairs]
    told = [half.statement for half in state.halves(owner, renter, money=money)]
    paid = max((paid_of(each) for each in told), default=Micros(0))
    unpaid = [
        Millis(max(owners.ts_ms, renters.ts_ms))
        for owners, renters in pairs
        if owners.statement.amount_micro > paid
    ]
    return Debt(
        owner=owner,
        renter=renter,
        money=money,
        used_ms=max((each.used_ms for each in agreed), default=MillisSpan(0)),
        agreed_micro=max((each.amount_micro for each in agreed), default=Micros(0)),
        stated_micro=max((each.amount_micro for each in stated), default=Micros(0)),
        paid_micro=paid,
        since_ms=min(unpaid, default=None),
    )


def _lines(state: State, account: Account) -> list[Line]:
    owner, renter, money, _ = account
    debt = _debt(state, account)
    stated = {half.id: None for half in _stated(state, account)}
    signed = {owners.id: None for owners, _ in _agreed(state, account)}
    lines: list[Line] = []
    top = _Growth(0, 0)
    paid = 0
    for half in state.halves(owner, renter, money=money):
        said, arrived = half.statement, max(paid, paid_of(half.statement))
        parts: list[tuple[_Growth, bool]] = []
        if half.id in stated:
            new = _Growth(max(top.used, said.used_ms), max(top.amount, said.amount_micro))
            nothing = (_Growth(0, 0), half.id in signed)
            parts = _parts(top, new, agreed=_Growth(debt.used_ms, debt.agreed_micro)) or [nothing]
            top = new
        elif arrived > paid:
            # It gives its author nothing, but what it says against itself stands: SPEC.md 14.7.
            parts = [(_Growth(0, 0), False)]
        for growth, is_agreed in parts:
            lines.append(
                Line(
                    owner=owner,
                    renter=renter,
                    money=money,
                    ctr=said.ctr,
                    half=half.id,
                    ts_ms=half.ts_ms,
                    lease=_lease_of(said) if half.id in stated else None,
                    used_ms=growth.used,
                    amount_micro=growth.amount,
                    paid_micro=arrived - paid,
                    is_agreed=is_agreed,
                )
            )
            paid = arrived
    return lines


def _parts(before: _Growth, after: _Growth, *, agreed: _Growth) -> list[tuple[_Growth, bool]]:
    """What came up to `agreed`, and what beyond it; neither if it is nothing."""
    below = _Growth(
        min(after.used, agreed.used) - min(before.used, agreed.used),
        min(after.amount, agreed.amount) - min(before.amount, agreed.amount),
    )
    beyond = _Growth(
        after.used - before.used - below.used, after.amount - before.amount - below.amount
    )
    return [part for part in ((below, True), (beyond, False)) if any(part[0])]


def _lease_of(said: Statement) -> Digest | None:
    return None if said.lease is UNSET else Digest(said.lease)
