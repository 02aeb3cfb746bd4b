"""A unit's entries as a chain of their own: counters and open intervals. SPEC.md section 4. Pure.

The author builds its entries with these functions, and evidence A5 judges entries by them.
"""

from dataclasses import dataclass
from itertools import pairwise

from ledger.bodies import Body, Grant, GrantTurn, Release, ReleaseTurn
from ledger.entry import Entry
from ledger.intervals import Interval, Open
from protocol.units import Digest, Millis

UnitEntry = Grant | Release
"""What moves a unit's chain on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A unit's part of one entry, and where that entry is."""

    ctr: int
    seq: int
    id: Digest
    open: Open


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What the next entry of a unit must bear."""

    ctr: int
    gseq: int
    gprev: Digest


def apply(before: Open, body: UnitEntry, unit: bytes, ts_ms: Millis) -> Open:
    """The unit's open intervals after this entry, written at `ts_ms`.

    The result may be longer than an entry can carry.
    """
    turn = turn_in(body, unit)
    assert turn is not None
    if isinstance(body, Grant):
        return opened(before, Interval(body.start_ms, body.end_ms, turn.ctr), ts_ms)
    assert isinstance(turn, ReleaseTurn)
    return cut(before, turn.lctr, body.at_ms, ts_ms)


def opened(before: Open, interval: Interval, ts_ms: Millis) -> Open:
    """The intervals after a grant adds one."""
    return _outstanding((*before, interval), ts_ms)


def cut(before: Open, lctr: int, at_ms: Millis, ts_ms: Millis) -> Open:
    """The intervals after the lease with counter `lctr` ends at `at_ms`, if it has not before."""
    return _outstanding(
        tuple(
            Interval(each.start_ms, min(each.end_ms, at_ms), each.ctr) if each.ctr == lctr else each
            for each in before
        ),
        ts_ms,
    )


def _outstanding(intervals: Open, ts_ms: Millis) -> Open:
    return tuple(
        sorted(each for each in intervals if each.start_ms < each.end_ms and each.end_ms > ts_ms)
    )


def is_disjoint(intervals: Open) -> bool:
    """Whether no two of the intervals overlap; touching is not overlapping."""
    ordered = sorted(intervals)
    return all(one.end_ms <= other.start_ms for one, other in pairwise(ordered))


def follows(before: Open, body: UnitEntry, unit: bytes, ts_ms: Millis) -> bool:
    """Whether the entry says of the unit what it must say after `before`."""
    turn = turn_in(body, unit)
    return turn is not None and turn.open == apply(before, body, unit, ts_ms)


def breaks_chain(
    before: Entry, said: Body | None, after: Entry, turn: GrantTurn | ReleaseTurn
) -> bool:
    """Whether `after`, in which `turn` stands, names another predecessor than it has.

    `before` is an entry of the same feed that says `said`: the one at `gseq`, or one of the unit's
    with the counter below. Any other shows nothing.
    """
    earlier = turn_in(said, turn.unit) if isinstance(said, Grant | Release) else None
    is_below = earlier is not None and earlier.ctr + 1 == turn.ctr
    is_named = before.seq == turn.gseq
    if turn.ctr == 0 or not (is_below or is_named):
        return False
    is_linked = (
        is_below
        and is_named
        and before.id == turn.gprev
        and before.seq < after.seq
        and before.header.ts_ms <= after.header.ts_ms
    )
    return not is_linked


def is_sound_alone(body: UnitEntry, unit: bytes, ts_ms: Millis) -> bool:
    """Whether the entry's intervals of the unit are disjoint and, for its first entry, right."""
    turn = turn_in(body, unit)
    assert turn is not None
    return is_disjoint(turn.open) and (turn.ctr > 0 or follows((), body, unit, ts_ms))


def overlaps(intervals: Open, start_ms: Millis, end_ms: Millis) -> bool:
    """Whether [start, end) meets one of the intervals."""
    return any(start_ms < each.end_ms and each.start_ms < end_ms for each in intervals)


def next_place(turn: Turn | None) -> Place:
    """What a unit's next entry must bear after this turn; None: the unit has had none."""
    if turn is None:
        return Place(ctr=0, gseq=0, gprev=Digest(bytes(32)))
    return Place(ctr=turn.ctr + 1, gseq=turn.seq, gprev=turn.id)


def turns_of(body: Body | None) -> tuple[GrantTurn | ReleaseTurn, ...]:
    """The units that the entry moves on; none for most kinds."""
    return body.units if isinstance(body, Grant | Release) else ()


def turn_in(body: UnitEntry, unit: bytes) -> GrantTurn | ReleaseTurn | None:
    """This unit's part of the entry, if it has one."""
    return next((turn for turn in body.units if turn.unit == unit), None)
