"""Whether an owner may end a lease before its time. SPEC.md section 8, A7. Pure.

An owner asks this before it releases, and evidence A7 judges it by the same.
"""

from dataclasses import dataclass

from msgspec import UNSET

from ledger.bodies import Grant, Release, ReleaseTurn, requested
from ledger.entry import Entry
from ledger.validity import is_consented
from protocol.tick import Tick
from protocol.units import NetId


@dataclass(frozen=True, slots=True, kw_only=True)
class Leased:
    """A GRANT, and the entry that it is."""

    entry: Entry
    grant: Grant


@dataclass(frozen=True, slots=True, kw_only=True)
class Freed:
    """A RELEASE, and the entry that it is."""

    entry: Entry
    release: Release


def misnamed_turn(lease: Leased, release: Release) -> ReleaseTurn | None:
    """The part of the RELEASE that names the lease by its id or by its counter, but not by both."""
    counters = {turn.unit: turn.ctr for turn in lease.grant.units}
    is_named = release.grant == lease.entry.id
    for turn in release.units:
        if is_named != (counters.get(turn.unit) == turn.lctr):
            return turn
    return None


def has_right(lease: Leased, freed: Freed, tick: Tick | None, net: NetId) -> bool:
    """Whether the owner may end the lease so, as far as these show.

    `tick` is one that it sealed of the lease. Whatever ends another lease, or this one not before
    its time, it may.
    """
    release = freed.release
    if release.grant != lease.entry.id or release.at_ms >= lease.grant.end_ms:
        return True
    renter, request = requested(lease.grant)
    written_ms = freed.entry.header.ts_ms
    gpu_ms = max(0, release.at_ms - lease.grant.start_ms) * len(lease.grant.units)
    metered_later = tick is not None and tick.used_ms > gpu_ms
    match release.reason:
        case "consent":
            return is_consented(release, renter, net)
        case "preempted":
            is_warned = release.at_ms >= written_ms + request.notice_ms
            return request.tier == "bronze" and is_warned and not metered_later
        case "lapsed":
            due_ms = lease.grant.start_ms + request.lapse_ms
            is_in_time = due_ms <= release.at_ms <= written_ms
            return request.job is UNSET and is_in_time and tick is None
        case "unpaid":
            return not metered_later
        case "end":
            return False
