"""A renter's answers to the halves of its owners, as far as it has co-signed what they state."""

import logging
from collections.abc import Callable
from typing import Final

from msgspec import UNSET

from ledger.bodies import Statement
from ledger.fold import Half, Lease, State
from ledger.ledger import Ledger
from ledger.statements import paid_of, stated_of
from p2pnode.clock import WallClock
from protocol.errors import LocalFault, PeerFault
from protocol.lease import charge
from protocol.tick import Tick
from protocol.units import Digest, PublicKey

log = logging.getLogger(__name__)

ANSWERS_MAX: Final = 16
"""To one question of an owner: an answer is an entry of ours, and all wait while it is written."""


class Answers:
    """Our halves of the accounts in which we owe."""

    def __init__(
        self, *, ledger: Ledger, signed: Callable[[Digest], Tick | None], clock: WallClock
    ) -> None:
        """`signed` is the last tick of a lease that we have co-signed."""
        self._ledger = ledger
        self._signed = signed
        self._clock = clock

    def answer_some(self, lease: Lease) -> bool:
        """Answer the owner's first halves that are here, as far as we have signed; if any."""
        for count in range(ANSWERS_MAX):
            first = self.next(lease)
            if first is None:
                return count > 0
            named = first.statement.lease
            tick = None if named is UNSET else self._signed(Digest(named))
            try:
                self.answer(first, lease, tick)
            except (PeerFault, LocalFault) as fault:
                # The answer can wait, say until we may sign again; the tick is co-signed already.
                log.info("bill not answered", extra={"half": first.id.hex(), "why": str(fault)})
                return count > 0
        return True

    def to(self, owners: Half, lease: Lease) -> Half | None:
        """Our half that answers this one, if there is one."""
        halves = halves_of(self._ledger.state, lease.renter, lease)
        return next((half for half in halves if half.statement.half == owners.id), None)

    def next(self, lease: Lease) -> Half | None:
        """The owner's half that is to be answered next."""
        answered = halves_of(self._ledger.state, lease.renter, lease)
        last = answered[-1].statement.ctr if answered else -1
        halves = halves_of(self._ledger.state, lease.owner, lease)
        return next((half for half in halves if half.statement.ctr > last), None)

    def answer(self, owners: Half, lease: Lease, tick: Tick | None) -> None:
        """Say the same. `tick` is the last one that we have co-signed of the lease it names.

        Raises PeerFault `statement.amount` if it is not what was co-signed.
        """
        self._check(owners, tick)
        said = owners.statement
        self._ledger.append(
            Statement(
                peer=lease.owner,
                ctr=said.ctr,
                used_ms=said.used_ms,
                amount_micro=said.amount_micro,
                money=said.money,
                lease=said.lease,
                tick=said.tick,
                half=owners.id,
                paid_micro=said.paid_micro,
            ),
            self._clock.now(),
        )

    def _check(self, half: Half, tick: Tick | None) -> None:
        """What the account states of a lease is what its use costs, and we have signed for the use.

        A half that names no lease says that more was paid, and nothing else.
        """
        said = half.statement
        account = self._ledger.state.halves(half.author, self._ledger.feed, money=said.money)
        upto = [each.statement for each in account if each.statement.ctr <= said.ctr]
        if said.lease is UNSET:
            used, amount, paid = (0, 0, 0) if len(upto) < 2 else _sums(upto[-2])
            is_agreed = _sums(said)[:2] == (used, amount) and paid_of(said) > paid
        else:
            used, amount = stated_of(upto, Digest(said.lease))
            lease = self._ledger.lease(Digest(said.lease))
            is_agreed = (
                tick is not None
                and lease is not None
                and 0 <= used <= tick.used_ms
                and amount == charge(used, lease.request.micro_per_gpu_hour)
            )
        if not is_agreed:
            raise PeerFault("statement.amount", "not what was co-signed")


def _sums(said: Statement) -> tuple[int, int, int]:
    return said.used_ms, said.amount_micro, paid_of(said)


def halves_of(state: State, author: PublicKey, lease: Lease) -> list[Half]:
    """The account of this side of the lease with the other one, in that role."""
    is_renter = author == lease.renter
    return state.halves(
        author,
        lease.owner if is_renter else lease.renter,
        money=lease.request.money,
        is_answer=is_renter,
    )


def is_confirmation(half: Half) -> bool:
    """Whether the half claims nothing new: it tells what has been paid."""
    return half.statement.lease is UNSET
