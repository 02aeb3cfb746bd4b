"""An owner and a renter with leases behind them, written by real ledgers."""

import random

from ledger.bodies import Statement
from ledger.guard import MemoryGuard
from ledger.ledger import Ledger
from ledger.store import MemoryStore
from protocol.lease import charge
from protocol.units import Digest, Micros, Millis, MillisSpan, PublicKey
from tests.make_evidence import changed
from tests.make_ledger import (
    HOUR,
    OWNER,
    RENTER,
    STRANGER,
    UNIT,
    UNIT2,
    at,
    consent_of,
    lease_request,
    ledger,
    opened_ledger,
    sealed,
)


class Market:
    """An owner and a renter with many leases behind them, and a replica of both."""

    def __init__(self, seed: int = 1) -> None:
        self.dice = random.Random(seed)
        self.owner, self.renter = opened_ledger(OWNER), opened_ledger(RENTER)
        self.store, self.guard = MemoryStore(), MemoryGuard()
        self.here = ledger(STRANGER, store=self.store, guard=self.guard)
        self.now = 0
        self.nonce = 0

    def lease(self, *, is_settled: bool = True, witnesses: tuple[PublicKey, ...] = ()) -> Digest:
        """One lease of an hour from now on, accepted, given back early, and billed."""
        unit = self.dice.choice([UNIT, UNIT2])
        turn = self.owner.state.turn(OWNER.public, unit)
        ctr = 0 if turn is None else turn.ctr + 1
        self.nonce += 1
        request = lease_request(
            ((unit, ctr),),
            start=self.now,
            end=self.now + HOUR,
            nonce=self.nonce,
            issued=self.now,
            witnesses=witnesses,
            quorum=2 if witnesses else 0,
        )
        granted = self.owner.grant(sealed(request), at(self.now))
        share(self.owner, self.renter)
        self.renter.accept(granted.id, at(self.now))
        self.now += HOUR // 2
        self.owner.release(
            granted.id,
            at(self.now),
            at_ms=at(self.now),
            reason="consent",
            consent=consent_of(granted.id, unit, ctr, self.now),
        )
        if is_settled:
            self.bill(granted.id)
        self.now += HOUR
        return granted.id

    def bill(self, lease: Digest) -> None:
        last = self.owner.state.last_half(OWNER.public, RENTER.public, money="USD")
        used = MillisSpan((0 if last is None else last.statement.used_ms) + HOUR // 2)
        amount = charge(used, Micros(250_000))
        body = Statement(
            peer=RENTER.public,
            ctr=1 if last is None else last.statement.ctr + 1,
            used_ms=used,
            amount_micro=amount,
            money="USD",
            lease=lease,
        )
        half = self.owner.append(body, at(self.now))
        answer = changed(body, peer=OWNER.public, half=half.id)
        self.renter.append(answer, at(self.now))

    def publish(self) -> None:
        for source in (self.owner, self.renter):
            share(source, self.here)

    def reopened(self) -> Ledger:
        """The replica as it is at its next start."""
        return ledger(STRANGER, store=self.store, guard=self.guard)

    def day(self) -> Millis:
        """An instant before which all leases so far are over."""
        return at(self.now)


def share(source: Ledger, target: Ledger) -> None:
    for head in source.heads():
        for raw in source.entries(head.feed, 0, head.seq + 1):
            target.ingest(raw)
