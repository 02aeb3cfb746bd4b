"""Holds what owners have sealed to us against what stands in their feeds: evidence A7 and A16.

Only we have these ticks, so nobody else can find it. A contradiction goes into the ledger, from
where it reaches everybody.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from heapq import nlargest
from typing import Final

from ledger.bodies import Grant, Release, read_body
from ledger.early_release import Freed, Leased, has_right
from ledger.entry import Entry, read_entry
from ledger.ledger import Ledger
from ledger.message_evidence import prove_false_time
from ledger.unit_evidence import prove_early_release
from p2pnode.accounts import CosignedTick
from protocol.tick import Tick
from protocol.units import Digest, PublicKey
from protocol.wire import unpack

log = logging.getLogger(__name__)

OWNERS_MAX: Final = 1_024
"""Owners whose last tick is at hand; of others it is looked for among their newest leases."""
LEASES_MAX: Final = 8
"""Newest leases with an owner whose ticks are read, each in a sixth of a millisecond."""


@dataclass(frozen=True, slots=True)
class _Said:
    """A tick, and the bytes in which its owner sealed it."""

    tick: Tick
    raw: bytes


class Watch:
    """Looks at each entry of an owner of ours as it comes, and at each tick before we sign it."""

    def __init__(self, ledger: Ledger, ticks: Callable[[Digest], CosignedTick | None]) -> None:
        """`ticks` gives the last tick of a lease that we have co-signed."""
        self._ledger = ledger
        self._ticks = ticks
        self._last: dict[PublicKey, _Said | None] = {}
        """Of each owner the tick with the latest time: almost all that it writes comes after it."""

    def look_at_tick(self, raw: bytes) -> bool:
        """Whether the tick fits its owner's feed as it is here; if not, its owner is accused."""
        sealed = unpack(raw, self._ledger.net, Tick)
        height = sealed.body.head_seq
        for near in self._ledger.entries(sealed.signer, height, height + 2):
            entry = read_entry(near, self._ledger.net)
            if _is_false(sealed.body, entry):
                self._accuse(prove_false_time(raw, entry))
                return False
        last = self._last_of(sealed.signer)
        if last is None or last.tick.at_ms <= sealed.body.at_ms:
            self._keep(sealed.signer, _Said(sealed.body, raw))
        return True

    def look_at_entry(self, entry: Entry) -> None:
        """An entry that has become its feed's head."""
        last = self._last_of(entry.feed)
        if last is not None and _is_false(last.tick, entry):
            self._accuse(prove_false_time(last.raw, entry))
        body = read_body(entry.draft)
        if isinstance(body, Release):
            self._look_at_release(entry, body)

    def _last_of(self, owner: PublicKey) -> _Said | None:
        """The owner's tick with the latest time; after a start out of what we have co-signed."""
        if owner not in self._last and (leases := self._newest_with(owner)):
            ticks = [last.tick for lease in leases if (last := self._ticks(lease)) is not None]
            said = [_Said(unpack(raw, self._ledger.net, Tick).body, raw) for raw in ticks]
            self._keep(owner, max(said, key=lambda each: each.tick.at_ms, default=None))
        return self._last.get(owner)

    def _newest_with(self, owner: PublicKey) -> list[Digest]:
        found = [
            (granted.request.start_ms, lease)
            for lease in self._ledger.state.leases_of(owner, self._ledger.feed)
            if (granted := self._ledger.state.granted(lease)) is not None
        ]
        return [lease for _, lease in nlargest(LEASES_MAX, found)]

    def _keep(self, owner: PublicKey, said: _Said | None) -> None:
        self._last.pop(owner, None)
        self._last[owner] = said
        while len(self._last) > OWNERS_MAX:
            del self._last[next(iter(self._last))]

    def _look_at_release(self, entry: Entry, body: Release) -> None:
        lease = self._ledger.lease(Digest(body.grant))
        ours = (entry.feed, self._ledger.feed)
        if lease is None or (lease.owner, lease.renter) != ours:
            return
        granted, last = self._ledger.entry(lease.id), self._ticks(lease.id)
        grant = None if granted is None else read_body(granted.draft)
        # Without a tick every replica judges it by itself.
        if last is None or granted is None or not isinstance(grant, Grant):
            return
        tick = unpack(last.tick, self._ledger.net, Tick).body
        leased, freed = Leased(entry=granted, grant=grant), Freed(entry=entry, release=body)
        if not has_right(leased, freed, tick, self._ledger.net):
            self._accuse(prove_early_release(granted, entry, last.tick))

    def _accuse(self, raw: bytes) -> None:
        offence = self._ledger.accuse(raw)
        log.warning(
            "an owner contradicts what it sealed to us",
            extra={"rule": offence.rule, "owner": offence.offender.hex()},
        )


def _is_false(tick: Tick, entry: Entry) -> bool:
    """Whether this entry of the tick's author gives the lie to its time, as A16 has it."""
    seq, ts_ms = entry.seq, entry.header.ts_ms
    if seq <= tick.head_seq:
        return ts_ms > tick.at_ms
    return ts_ms < tick.at_ms
