"""Units that an exclusive bid keeps for one renter. Outlives a crash: to forget one is an offence.

An owner that grants such a turn to another renter meanwhile is proved to have broken its bid
(ledger/SPEC.md section 8, A8).
"""

from dataclasses import dataclass
from typing import Final

from p2pnode.cabinet import Cabinet
from protocol.auction import Bid
from protocol.codec import Hash, Id16, Instant, Key, UInt, Wire, decode, encode
from protocol.units import Digest, Millis, PublicKey
from protocol.wire import Sealed

UNITS_HELD_MAX: Final = 16
"""For one renter at once: two of the largest leases."""
IN_VAIN_MAX: Final = 6
"""Holds of one renter, one after the other, that ended without a lease."""
REST_MS: Final = 60_000
"""After so many in vain the renter gets plain bids only for this long."""
RENTERS_MAX: Final = 1_024
HOLD_BYTES_MAX: Final = 256


class _Hold(Wire, frozen=True, kw_only=True):
    """One unit that is kept."""

    unit: Id16
    ctr: UInt
    renter: Key
    bid: Hash
    until_ms: Instant


@dataclass(slots=True)
class _Trust:
    """How a renter has used its holds lately."""

    in_vain: int
    at_ms: Millis


class Holds:
    """Owns what is held. Raises LocalFault where our own disk fails."""

    def __init__(self, cabinet: Cabinet) -> None:
        self._cabinet = cabinet
        self._trust: dict[PublicKey, _Trust] = {}
        kept = (cabinet.get(name) for name in cabinet.names("holds"))
        holds = (decode(raw, _Hold, size_max=HOLD_BYTES_MAX) for raw in kept if raw is not None)
        self._held = {hold.unit: hold for hold in holds}

    def units(self, now: Millis) -> frozenset[bytes]:
        """What is kept at this moment, for whomever."""
        self._forget_over(now)
        return frozenset(self._held)

    def is_kept_from(self, bid: Sealed[Bid], now: Millis) -> bool:
        """Whether a unit of the bid is kept by another bid."""
        self._forget_over(now)
        kept = (self._held.get(turn.unit) for turn in bid.body.units)
        return any(hold is not None and hold.bid != bid.digest for hold in kept)

    def why_not(self, renter: PublicKey, gpus: int, now: Millis) -> str | None:
        """Why this renter gets no exclusive bid for so many units now; None if it does."""
        self._forget_over(now)
        held = sum(hold.renter == renter for hold in self._held.values())
        if held + gpus > UNITS_HELD_MAX:
            return f"holds {held} GPUs already"
        trust = self._trust.get(renter)
        if trust and trust.in_vain >= IN_VAIN_MAX and now < trust.at_ms + REST_MS:
            return f"the last {trust.in_vain} holds gave no lease"
        return None

    def keep(self, bid: Sealed[Bid]) -> None:
        """Durable on return; only then may the renter learn of the bid."""
        for turn in bid.body.units:
            hold = _Hold(
                unit=turn.unit,
                ctr=turn.ctr,
                renter=bid.body.renter,
                bid=bid.digest,
                until_ms=bid.body.valid_until_ms,
            )
            self._cabinet.put(_name(turn.unit), encode(hold))
            self._held[turn.unit] = hold

    def drop(self, bid: Digest, renter: PublicKey, now: Millis) -> bool:
        """The renter lets the units go; whether it held any by this bid."""
        own = [h for h in self._held.values() if h.bid == bid and h.renter == renter]
        self._let_go(own, now, in_vain=True)
        return bool(own)

    def granted(self, bid: Digest, now: Millis) -> None:
        """The bid has become a lease."""
        self._let_go([h for h in self._held.values() if h.bid == bid], now, in_vain=False)

    def _forget_over(self, now: Millis) -> None:
        self._let_go([h for h in self._held.values() if h.until_ms < now], now, in_vain=True)

    def _let_go(self, holds: list[_Hold], now: Millis, *, in_vain: bool) -> None:
        for hold in holds:
            self._cabinet.remove(_name(hold.unit))
            del self._held[hold.unit]
        for renter in {hold.renter for hold in holds}:
            before = self._trust.pop(renter, None)
            if in_vain:
                is_fresh = before is not None and now < before.at_ms + REST_MS
                count = before.in_vain if before is not None and is_fresh else 0
                self._trust[renter] = _Trust(count + 1, now)
        while len(self._trust) > RENTERS_MAX:
            del self._trust[next(iter(self._trust))]


def _name(unit: bytes) -> str:
    return f"holds/{unit.hex()}"
