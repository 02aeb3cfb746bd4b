"""Who had bronze leases broken for it, and whether it took what it then got. Outlives a crash.

A lease that its renter does not accept lapses, and nobody owes anything; a bronze job was thrown
out for it all the same. Whoever does that again and again breaks no more for a while.
"""

from collections.abc import Callable
from typing import Final

from ledger.fold import Lease
from p2pnode.cabinet import Cabinet
from protocol.codec import Hash, Instant, Key, Wire, decode, encode
from protocol.units import Digest, Millis, PublicKey

IN_VAIN_MAX: Final = 2
"""Leases of one renter that broke bronze and were never accepted."""
REST_MS: Final = 3_600_000
"""After so many in vain the renter gets units that are free, and no others, for this long."""
WAITING_MAX: Final = 8
"""Leases of one renter that broke bronze and wait to be accepted, at once."""
KEPT_MAX: Final = 1_024
BREAK_BYTES_MAX: Final = 256


class _Break(Wire, frozen=True, kw_only=True):
    """One lease for which bronze was broken."""

    lease: Hash
    renter: Key
    at_ms: Instant


class Breaks:
    """Owns what is remembered. Raises LocalFault where our own disk fails.

    What became of a lease is in the ledger, and looked up there.
    """

    def __init__(self, cabinet: Cabinet, lease: Callable[[Digest], Lease | None]) -> None:
        self._cabinet = cabinet
        self._lease = lease
        kept = (cabinet.get(name) for name in cabinet.names("breaks"))
        breaks = (decode(raw, _Break, size_max=BREAK_BYTES_MAX) for raw in kept if raw is not None)
        ordered = sorted(breaks, key=lambda each: (each.at_ms, each.lease))
        self._kept = {each.lease: each for each in ordered}

    def note(self, lease: Digest, renter: PublicKey, now: Millis) -> None:
        """Bronze was broken for this lease of the renter. Durable on return."""
        self._forget(now)
        made = _Break(lease=lease, renter=renter, at_ms=now)
        self._cabinet.put(_name(lease), encode(made))
        self._kept[lease] = made
        while len(self._kept) > KEPT_MAX:
            self._drop(next(iter(self._kept)))

    def why_not(self, renter: PublicKey, now: Millis) -> str | None:
        """Why nothing is broken for this renter now; None if it may be."""
        self._forget(now)
        own = [each for each in self._kept.values() if each.renter == renter]
        in_vain = sum(self._is_over(each, now) for each in own)
        if in_vain >= IN_VAIN_MAX:
            return f"bronze was broken for {in_vain} leases that were not accepted"
        if len(own) - in_vain >= WAITING_MAX:
            return f"{len(own) - in_vain} leases that broke bronze are not accepted yet"
        return None

    def _is_over(self, each: _Break, now: Millis) -> bool:
        lease = self._lease(each.lease)
        return lease is None or lease.reason is not None or lease.ended_ms <= now

    def _forget(self, now: Millis) -> None:
        """What was accepted, and what is too long ago."""
        for each in list(self._kept.values()):
            lease = self._lease(each.lease)
            over_ms = each.at_ms if lease is None else max(each.at_ms, lease.ended_ms)
            is_old = self._is_over(each, now) and over_ms + REST_MS <= now
            if is_old or (lease is not None and lease.is_accepted):
                self._drop(each.lease)

    def _drop(self, lease: Digest) -> None:
        self._cabinet.remove(_name(lease))
        del self._kept[lease]


def _name(lease: Digest) -> str:
    return f"breaks/{lease.hex()}"
