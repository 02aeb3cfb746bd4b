"""Entries about one unit of one owner, with small whole numbers for time: what the model is of.

The bodies are the shipping ones, so that the shipping rules can judge them. There are no
signatures: whatever stands here was written by the owner.
"""

from dataclasses import dataclass
from functools import cache
from typing import Final

from msgspec import UNSET

from ledger.bodies import Grant, GrantTurn, Release, ReleaseTurn
from ledger.intervals import Interval, Open
from ledger.units_chain import turn_in
from protocol.units import Digest, Millis, Signature

UNIT: Final = b"the-only-unit-01"
NOBODY: Final = Digest(b"\xff" * 32)
"""An id that no entry has."""
NO_ID: Final = Digest(bytes(32))
CONSENT: Final = Signature(b"c" * 64)
"""Stands for a consent that is the renter's; a false one counts as none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an entry says that it stands in the unit's chain."""

    ctr: int
    gseq: int
    gprev: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Granting:
    """What a GRANT does."""

    ts: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Releasing:
    """What a RELEASE does: `grant` and `lctr` should name one lease, and need not."""

    ts: int
    at: int
    grant: Digest
    lctr: int
    reason: str = "unpaid"


Act = Granting | Releasing


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """An entry of the feed; one without a body is about something else."""

    id: Digest
    seq: int
    prev: Digest
    ts: int
    body: Grant | Release | None

    @property
    def turn(self) -> GrantTurn | ReleaseTurn:
        """The unit's part, which must be there."""
        assert self.body is not None
        found = turn_in(self.body, UNIT)
        assert found is not None
        return found


Chain = tuple[ModelEntry, ...]
"""Of a feed, from entry 1 on. Entry 0 is the same in all and about no unit."""

_ids: Final[dict[tuple[object, ...], Digest]] = {}


def entry_after(chain: Chain, ts: int, body: Grant | Release | None) -> ModelEntry:
    """The entry that comes next; equal ones have equal ids, as with a digest."""
    prev = chain[-1].id if chain else NO_ID
    content = (len(chain) + 1, prev, ts, body)
    found = _ids.setdefault(content, Digest((len(_ids) + 1).to_bytes(32, "big")))
    return ModelEntry(id=found, seq=len(chain) + 1, prev=prev, ts=ts, body=body)


def body_of(act: Act, place: Place, open_after: Open) -> Grant | Release:
    """The body that says all that."""
    if isinstance(act, Granting):
        granted = GrantTurn(UNIT, place.ctr, place.gseq, place.gprev, open_after)
        start, end = Millis(act.start), Millis(act.end)
        return Grant(units=(granted,), start_ms=start, end_ms=end, request=b"")
    released = ReleaseTurn(UNIT, place.ctr, place.gseq, place.gprev, open_after, act.lctr)
    return Release(
        units=(released,),
        grant=act.grant,
        at_ms=Millis(act.at),
        reason=act.reason,  # type: ignore[arg-type]
        consent=CONSENT if act.reason == "consent" else UNSET,
    )


def grants(chain: Chain) -> list[ModelEntry]:
    """The GRANTs of the chain."""
    return [entry for entry in chain if isinstance(entry.body, Grant)]


@cache
def intervals(ctr_max: int, after: int, end_max: int) -> tuple[Interval, ...]:
    """All intervals that may be open: not empty, not over, of no later counter."""
    return tuple(
        Interval(Millis(start), Millis(end), ctr)
        for start in range(end_max)
        for end in range(max(start, after) + 1, end_max + 1)
        for ctr in range(ctr_max + 1)
    )


@cache
def opens(ctr: int, ts: int, end_max: int) -> tuple[Open, ...]:
    """All that a turn may say is open: up to two intervals, and three where they are disjoint.

    This much is judged with the entry itself (rule `turn.open`).
    """
    ordered = sorted(intervals(ctr, ts, end_max))
    found: list[Open] = [()]
    found += [(one,) for one in ordered]
    for first, one in enumerate(ordered):
        for second, other in enumerate(ordered[first + 1 :], first + 1):
            found.append((one, other))
            if one.end_ms <= other.start_ms:
                found += [
                    (one, other, third)
                    for third in ordered[second + 1 :]
                    if other.end_ms <= third.start_ms
                ]
    return tuple(found)


@cache
def opens_of(act: Act, ctr: int, end_max: int) -> tuple[Open, ...]:
    """Those of them that this act may bear: a GRANT must list its own (rule `grant.open`)."""
    found = opens(ctr, act.ts, end_max)
    if isinstance(act, Releasing):
        return found
    own = Interval(Millis(act.start), Millis(act.end), ctr)
    return tuple(each for each in found if own in each)


@cache
def grantings(end_max: int, ts_min: int = 0) -> tuple[Granting, ...]:
    """All GRANTs that start no earlier than they are written (rule `grant.interval`)."""
    return tuple(
        Granting(ts=ts, start=start, end=end)
        for ts in range(ts_min, end_max)
        for start in range(ts, end_max)
        for end in range(start + 1, end_max + 1)
    )
