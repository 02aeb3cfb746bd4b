"""An honest network's history: owners and renters lease to each other, hour after hour.

Everything is signed by keys that follow from numbers. Of each kind of entry there are as many as
leases of four hours have, so the mean size is an honest network's.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from msgspec import UNSET

from ledger.bodies import (
    Accept,
    Grant,
    GrantTurn,
    Release,
    ReleaseTurn,
    Statement,
    consent_bytes,
)
from ledger.entry import NO_ENTRY, Entry
from ledger.intervals import Interval
from protocol.lease import LeaseRequest, Terms, UnitTurn, digest_of_terms
from protocol.signing import digest
from protocol.units import Digest, Micros, Millis, MillisSpan, NetId
from protocol.wire import pack
from testnet.bench.feeds import NOW, Feed, genesis, signer

PAIRS: Final = 24
"""Of an owner and a renter who deal with each other for good."""
HOURS: Final = 4
HOUR_MS: Final = 3_600_000
FIRST_AUTHOR: Final = 5_000
PRICE_MICRO: Final = 250_000
TERMS: Final = digest_of_terms(Terms(isolation="container"))


@dataclass(slots=True)
class Pair:
    """One unit of an owner, leased to one renter again and again."""

    owner: Feed
    renter: Feed
    unit: bytes
    now: Millis = NOW
    turns: int = 0
    last_turn: tuple[int, bytes] = (0, NO_ENTRY)
    """Place and id of the unit's last entry."""
    halves: int = 0

    def lease(self) -> Iterator[Entry]:
        """One lease from its GRANT to the RELEASE by the renter's consent, a minute early."""
        start, end = self.now, Millis(self.now + HOURS * HOUR_MS)
        grant = self._granted(start, end)
        yield grant
        yield self.renter.add(Accept(grant=grant.id), self.now)
        for _ in range(HOURS):
            self.now = Millis(self.now + HOUR_MS - 15_000)
            yield from self._halves(grant.id)
        yield self._released(grant.id)
        self.now = Millis(end + 1)

    def _granted(self, start: Millis, end: Millis) -> Entry:
        request = LeaseRequest(
            owner=self.owner.by.public,
            bid=digest("bid", self.unit + self.turns.to_bytes(8, "big")),
            units=(UnitTurn(unit=self.unit, ctr=self.turns),),
            start_ms=start,
            end_ms=end,
            tier="silver",
            micro_per_gpu_hour=Micros(PRICE_MICRO),
            money="USD",
            period_ms=MillisSpan(60_000),
            notice_ms=MillisSpan(0),
            lapse_ms=MillisSpan(60_000),
            terms=TERMS,
            job=digest("job", self.unit + self.turns.to_bytes(8, "big")),
            nonce=self.turns.to_bytes(16, "big"),
            issued_ms=start,
            not_after_ms=Millis(start + 10_000),
        )
        seq, before = self.last_turn
        held = (Interval(start, end, self.turns),)
        turn = GrantTurn(self.unit, self.turns, seq, Digest(before), held)
        raw = pack(request, signer=self.renter.by, net=self.owner.net)
        body = Grant(units=(turn,), start_ms=start, end_ms=end, request=raw)
        return self._turned(self.owner.add(body, start))

    def _released(self, grant: Digest) -> Entry:
        seq, before = self.last_turn
        lease = self.turns - 1
        turn = ReleaseTurn(self.unit, self.turns, seq, Digest(before), (), lease)
        said = consent_bytes(grant, ((self.unit, lease),), self.now)
        consent = self.renter.by.sign("release-consent", self.owner.net, said)
        body = Release(
            units=(turn,), grant=grant, at_ms=self.now, reason="consent", consent=consent
        )
        return self._turned(self.owner.add(body, self.now))

    def _turned(self, entry: Entry) -> Entry:
        self.turns += 1
        self.last_turn = (entry.seq, entry.id)
        return entry

    def _halves(self, lease: Digest) -> Iterator[Entry]:
        """An hour's account by the owner, and the renter's answer to it."""
        self.halves += 1
        used = MillisSpan(self.halves * (HOUR_MS - 15_000))
        tick = digest("tick", used.to_bytes(8, "big"))

        def half(of: Feed, of_whom: Feed, answered: Entry | None) -> Entry:
            body = Statement(
                peer=of_whom.by.public,
                ctr=self.halves,
                used_ms=used,
                amount_micro=Micros(self.halves * PRICE_MICRO),
                money="USD",
                lease=lease,
                tick=tick,
                half=UNSET if answered is None else answered.id,
            )
            return of.add(body, self.now)

        first = half(self.owner, self.renter, None)
        yield first
        yield half(self.renter, self.owner, first)


def history(net: NetId, count: int) -> Iterator[Entry]:
    """`count` entries in an order in which each can be taken; the last lease may still run."""
    pairs = [_pair(number, net) for number in range(PAIRS)]
    written = _written(pairs, net)
    for _ in range(count):
        yield next(written)


def _pair(number: int, net: NetId) -> Pair:
    owner, renter = (signer(FIRST_AUTHOR + 2 * number + side) for side in (0, 1))
    unit = digest("unit", owner.public)[:16]
    return Pair(owner=Feed(owner, net=net), renter=Feed(renter, net=net), unit=unit)


def _written(pairs: list[Pair], net: NetId) -> Iterator[Entry]:
    for pair in pairs:
        for one in (pair.owner, pair.renter):
            yield one.add(genesis(one.by, net))
    while True:
        for pair in pairs:
            yield from pair.lease()
