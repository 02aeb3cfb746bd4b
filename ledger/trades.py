"""What two peers agree on, what one claims alone, and what an owner has at risk. SPEC.md 14.3.

Read off the fold; the same from the same set of entries. Judges nobody.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ledger.fold import Account, Half, Lease, State
from ledger.statements import paid_of
from protocol.lease import charge
from protocol.rules import Bundle
from protocol.units import Digest, Micros, MillisSpan, PublicKey

WORTHLESS: Final = "TEST"
"""Money of test networks: nothing of it is ever claimed, owed or at risk."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Trade:
    """By how much an account grew when both sides had signed it."""

    money: str
    owner: PublicKey
    renter: PublicKey
    epoch: int
    """In which the later half was written."""
    halves: tuple[Digest, Digest]
    """Ids of the owner's half and of the renter's."""
    amount_micro: int
    used_ms: int


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Claim:
    """A half of an owner that its renter has not answered."""

    money: str
    owner: PublicKey
    renter: PublicKey
    epoch: int
    half: Digest
    amount_micro: int
    """More than was agreed or claimed before."""
    lease: bytes
    """Id of the GRANT that it is about; empty if it names none."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Owed:
    """What both have signed and the owner has not got, by its own word."""

    money: str
    owner: PublicKey
    renter: PublicKey
    epoch: int
    """Since which the oldest part of it is due."""
    half: Digest
    """The owner's last one that both agree on."""
    amount_micro: int


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Risk:
    """What an owner has granted and nothing was stated of yet."""

    money: str
    owner: PublicKey
    renter: PublicKey
    lease: Digest
    amount_micro: int
    """The price of the time up to the lease's end."""
    epoch: int
    """In which the lease ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All of these in a set of entries, sorted, each once."""

    trades: tuple[Trade, ...] = ()
    claims: tuple[Claim, ...] = ()
    risks: tuple[Risk, ...] = ()
    owed: tuple[Owed, ...] = ()

    def merged(self, other: "Facts") -> "Facts":
        """The union of both."""
        return Facts(
            trades=tuple(sorted(dict.fromkeys(self.trades + other.trades))),
            claims=tuple(sorted(dict.fromkeys(self.claims + other.claims))),
            risks=tuple(sorted(dict.fromkeys(self.risks + other.risks))),
            owed=tuple(sorted(dict.fromkeys(self.owed + other.owed))),
        )


def facts_of(state: State, *, bundles: Mapping[bytes, Bundle], home: Bundle) -> Facts:
    """The facts in these entries; `home` says how long an epoch is.

    A half that names a bundle unknown here is read, so that the numbers stay cumulative, and
    counts nothing: who cannot be judged cannot earn.
    """
    trades: list[Trade] = []
    claims: list[Claim] = []
    owed: list[Owed] = []
    for account in state.accounts():
        if not account[3]:
            books = _Books(state, account, bundles, home)
            trades += books.trades()
            if account[2] != WORTHLESS:
                claims += books.claims()
                owed += books.owed()
    # Of its own leases alone: nobody makes another's risk go away.
    stated = {(half.author, half.statement.lease): None for half in _owners_halves(state)}
    open_leases = (
        each
        for each in state.leases()
        if (each.owner, each.id) not in stated and each.request.money != WORTHLESS
    )
    return Facts(
        trades=tuple(sorted(trades)),
        claims=tuple(sorted(claims)),
        risks=tuple(sorted(_risk(lease, home) for lease in open_leases)),
        owed=tuple(sorted(owed)),
    )


def _owners_halves(state: State) -> list[Half]:
    return [
        half
        for author, peer, money, is_answer in state.accounts()
        if not is_answer
        for half in state.halves(author, peer, money=money)
    ]


def _risk(lease: Lease, home: Bundle) -> Risk:
    request = lease.request
    span = max(0, lease.ended_ms - request.start_ms) * len(request.units)
    return Risk(
        money=request.money,
        owner=lease.owner,
        renter=lease.renter,
        lease=lease.id,
        amount_micro=charge(MillisSpan(span), Micros(request.micro_per_gpu_hour)),
        epoch=lease.ended_ms // home.epoch_ms,
    )


class _Books:
    """Both sides of one account, in which the author is owed."""

    def __init__(
        self, state: State, account: Account, bundles: Mapping[bytes, Bundle], home: Bundle
    ) -> None:
        self._owner, self._renter, self._money, _ = account
        self._known = bundles
        self._epoch_ms = home.epoch_ms
        stated = state.halves(self._owner, self._renter, money=self._money)
        answered = state.halves(self._renter, self._owner, money=self._money, is_answer=True)
        self._stated = in_force(state, stated)
        self._paid = max((paid_of(half.statement) for half in stated), default=Micros(0))
        self._agreed = agreed_pairs(self._stated, in_force(state, answered))

    def trades(self) -> list[Trade]:
        """The account's growth, pair by pair; a number that falls gives nothing."""
        trades: list[Trade] = []
        amount = used = 0
        for owners, renters in self._agreed:
            said = owners.statement
            if owners.rules in self._known and renters.rules in self._known:
                trades.append(
                    Trade(
                        money=self._money,
                        owner=self._owner,
                        renter=self._renter,
                        epoch=max(owners.ts_ms, renters.ts_ms) // self._epoch_ms,
                        halves=(owners.id, renters.id),
                        amount_micro=max(0, said.amount_micro - amount),
                        used_ms=max(0, said.used_ms - used),
                    )
                )
            amount, used = max(amount, said.amount_micro), max(used, said.used_ms)
        return trades

    def owed(self) -> list[Owed]:
        """What is due, in one piece."""
        unpaid = [pair for pair in self._agreed if pair[0].statement.amount_micro > self._paid]
        if not unpaid:
            return []
        most = max(owners.statement.amount_micro for owners, _ in unpaid)
        return [
            Owed(
                money=self._money,
                owner=self._owner,
                renter=self._renter,
                epoch=min(max(half.ts_ms for half in pair) for pair in unpaid) // self._epoch_ms,
                half=self._agreed[-1][0].id,
                amount_micro=most - self._paid,
            )
        ]

    def claims(self) -> list[Claim]:
        """The owner's halves after the last one that both have signed, if they raise its sum."""
        answered = self._agreed[-1][0].statement.ctr if self._agreed else -1
        amount = 0
        claims: list[Claim] = []
        for half in self._stated:
            said = half.statement
            grown = said.amount_micro - amount
            amount = max(amount, said.amount_micro)
            if said.ctr <= answered or grown <= 0:
                continue
            claims.append(
                Claim(
                    money=self._money,
                    owner=self._owner,
                    renter=self._renter,
                    epoch=half.ts_ms // self._epoch_ms,
                    half=half.id,
                    amount_micro=grown,
                    lease=said.lease if isinstance(said.lease, bytes) else b"",
                )
            )
        return claims


def in_force(state: State, halves: list[Half]) -> list[Half]:
    """Those below a fork whose counter their author has used once, on all its branches."""
    times: dict[int, int] = {}
    for half in halves:
        times[half.statement.ctr] = times.get(half.statement.ctr, 0) + 1
    return [
        half
        for half in halves
        if times[half.statement.ctr] == 1 and not state.is_forked(half.author, half.seq)
    ]


def agreed_pairs(stated: list[Half], answered: list[Half]) -> list[tuple[Half, Half]]:
    """The owner's halves with the renter's that say the same, by counter."""
    by_id = {half.id: half for half in stated}
    pairs: list[tuple[Half, Half]] = []
    for renters in answered:
        other = renters.statement.half
        owners = by_id.get(Digest(other)) if isinstance(other, bytes) else None
        if owners is not None and _is_same(owners, renters):
            pairs.append((owners, renters))
    return pairs


def _is_same(one: Half, other: Half) -> bool:
    first, second = one.statement, other.statement
    return (first.ctr, first.used_ms, first.amount_micro) == (
        second.ctr,
        second.used_ms,
        second.amount_micro,
    )
