"""Holds what owners have sealed to us against what stands in their feeds: evidence A7 and A16.

Only we have these ticks, so nobody else can find it. A contradiction goes into the ledger, from
where it reaches everybody.
"""

import logging
from collections.abc import Callable

from ledger.bodies import Grant, Release, read_body
from ledger.early_release import Freed, Leased, has_right
from ledger.entry import Entry, read_entry
from ledger.ledger import Ledger
from ledger.message_evidence import prove_false_time
from ledger.unit_evidence import prove_early_release
from p2pnode.accounts import CosignedTick
from protocol.tick import Tick
from protocol.units import Digest
from protocol.wire import unpack

log = logging.getLogger(__name__)


class Watch:
    """Looks at each entry of an owner of ours as it comes, and at each tick before we sign it."""

    def __init__(self, ledger: Ledger, ticks: Callable[[Digest], CosignedTick | None]) -> None:
        """`ticks` gives the last tick of a lease that we have co-signed."""
        self._ledger = ledger
        self._ticks = ticks

    def look_at_tick(self, raw: bytes) -> bool:
        """Whether the tick fits its owner's feed as it is here; if not, its owner is accused."""
        sealed = unpack(raw, self._ledger.net, Tick)
        height = sealed.body.head_seq
        for near in self._ledger.entries(sealed.signer, height, height + 2):
            entry = read_entry(near, self._ledger.net)
            if _is_false(sealed.body, entry):
                self._accuse(prove_false_time(raw, entry))
                return False
        return True

    def look_at_entry(self, entry: Entry) -> None:
        """An entry that has become its feed's head."""
        body = read_body(entry.draft)
        for lease in self._ledger.state.leases_of(entry.feed, self._ledger.feed):
            last = self._ticks(lease)
            if last is None:
                continue
            raw = last.tick
            tick = unpack(raw, self._ledger.net, Tick).body
            if _is_false(tick, entry):
                self._accuse(prove_false_time(raw, entry))
            if isinstance(body, Release) and body.grant == lease:
                self._look_at_release(entry, body, raw)

    def _look_at_release(self, entry: Entry, body: Release, raw: bytes) -> None:
        granted = self._ledger.entry(Digest(body.grant))
        grant = None if granted is None else read_body(granted.draft)
        if granted is None or not isinstance(grant, Grant):
            return
        lease, freed = Leased(entry=granted, grant=grant), Freed(entry=entry, release=body)
        # Without the tick every replica judges it by itself.
        tick = unpack(raw, self._ledger.net, Tick).body
        if not has_right(lease, freed, tick, self._ledger.net):
            self._accuse(prove_early_release(granted, entry, raw))

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
