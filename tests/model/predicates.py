"""What proves an offence, over the model's entries: A1, A2, A4 to A7.

A5 is judged by the ledger's own rules. A6 and A7 are stated here once more, so that they can be
weakened; `test_same_rules` holds them against the ledger's own.
"""

from dataclasses import dataclass, replace
from functools import cache
from itertools import permutations

from msgspec import UNSET

from ledger.bodies import Grant
from ledger.intervals import Open
from ledger.units_chain import follows, is_sound_alone
from protocol.units import Millis
from tests.model.model_entries import (
    NO_ID,
    UNIT,
    Act,
    Chain,
    Granting,
    ModelEntry,
    Place,
    Releasing,
    body_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What entries carry and what is asked; each may be left out, to see that it is needed."""

    release_has_open: bool = True
    release_has_lctr: bool = True
    has_gseq: bool = True
    has_time: bool = True
    has_headers: bool = True
    """Whether A1 and A2 are asked; without them only the unit's own entries are looked at."""


ALL = Rules()


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Of all leases of a model."""

    notice: int = 1
    lapse: int = 1
    is_bronze: bool = True
    has_job: bool = False


TERMS = Terms()
NO_TICK = -1
"""The owner has signed no tick of the lease."""


# A6 and A7.


def is_at(place: Place, entry: ModelEntry) -> bool:
    """A6: whether the entry at a turn's `gseq` is what the turn says: that id, one counter less."""
    if entry.body is None or entry.id != place.gprev:
        return False
    return entry.turn.ctr == place.ctr - 1


def is_linked(before: ModelEntry, place: Place, ts: int, rules: Rules) -> bool:
    """A6: whether a turn one counter later names this entry, and is not earlier."""
    return place.gprev == before.id and (ts >= before.ts or not rules.has_time)


def is_named_once(grant: ModelEntry, release: Releasing) -> bool:
    """A7: whether a RELEASE means this GRANT by one of its two names only."""
    return (release.grant == grant.id) != (release.lctr == grant.turn.ctr)


def is_right(grant: ModelEntry, release: Releasing, tick: int, terms: Terms = TERMS) -> bool:
    """A7: whether the owner might end this lease so.

    `tick` is the latest time that a tick of the lease covers which the owner has signed.
    """
    assert isinstance(grant.body, Grant)
    if release.at >= grant.body.end_ms or release.reason == "consent":
        return True
    match release.reason:
        case "preempted":
            is_in_time = release.at >= release.ts + terms.notice
            return terms.is_bronze and is_in_time and tick <= release.at
        case "lapsed":
            is_in_time = grant.body.start_ms + terms.lapse <= release.at <= release.ts
            return not terms.has_job and is_in_time and tick == NO_TICK
        case "unpaid":
            return tick <= release.at
        case _:
            return False


# All together.


def accuses_place(entry: ModelEntry, place: Place, ts: int, rules: Rules) -> bool:
    """Whether A4 or A6 is proved by this entry and a turn with that place and time."""
    is_at_gseq = rules.has_gseq and place.ctr > 0 and place.gseq == entry.seq
    if entry.body is None:
        return is_at_gseq
    ctr = entry.turn.ctr
    return (
        ctr == place.ctr
        or (is_at_gseq and not is_at(place, entry))
        or (ctr == place.ctr - 1 and not is_linked(entry, place, ts, rules))
    )


def accuses_release(grant: ModelEntry, release: Releasing, tick: int, rules: Rules) -> bool:
    """Whether A7 is proved by this GRANT and this RELEASE."""
    if rules.release_has_lctr and is_named_once(grant, release):
        return True
    return release.grant == grant.id and not is_right(grant, release, tick)


def accuses_open(before: ModelEntry | None, act: Act, turn: tuple[int, Open], rules: Rules) -> bool:
    """Whether A5 is proved by a turn with this counter and these intervals, after `before`."""
    ctr, after = turn
    if isinstance(act, Releasing) and not rules.release_has_open:
        return False
    known: Open | None = None
    if before is not None and (rules.release_has_open or isinstance(before.body, Grant)):
        known = before.turn.open
    if isinstance(act, Releasing) and not rules.release_has_lctr:
        # Nobody can tell which lease it ends, so each must be thought possible.
        return all(
            _is_open_wrong(known, replace(act, lctr=each), ctr, after) for each in range(ctr)
        )
    return _is_open_wrong(known, act, ctr, after)


@cache
def _is_open_wrong(before: Open | None, act: Act, ctr: int, after: Open) -> bool:
    body = body_of(act, Place(ctr=ctr, gseq=0, gprev=NO_ID), after)
    if not is_sound_alone(body, UNIT, Millis(act.ts)):
        return True
    return before is not None and not follows(before, body, UNIT, Millis(act.ts))


def accuses_headers(one: ModelEntry, other: ModelEntry) -> bool:
    """A1 and A2."""
    if one.seq == other.seq:
        return one.id != other.id
    first, second = sorted((one, other), key=lambda entry: entry.seq)
    return second.seq == first.seq + 1 and second.prev != first.id


def is_accused(entries: Chain, tick: int, rules: Rules = ALL) -> bool:
    """Whether some entry or some pair of these proves an offence, in whatever order they are."""
    about = [entry for entry in entries if entry.body is not None]
    if any(accuses_open(None, act_of(each), _turn(each), rules) for each in about):
        return True
    return any(accuses_pair(*pair, tick, rules) for pair in permutations(entries, 2))


def accuses_pair(one: ModelEntry, other: ModelEntry, tick: int, rules: Rules) -> bool:
    """Whether the first, with what the second is about or where it stands, proves an offence."""
    if rules.has_headers and accuses_headers(one, other):
        return True
    if other.body is None:
        return False
    act, turn = act_of(other), other.turn
    if accuses_place(one, Place(ctr=turn.ctr, gseq=turn.gseq, gprev=turn.gprev), other.ts, rules):
        return True
    if one.body is None:
        return False
    if one.turn.ctr == turn.ctr - 1 and accuses_open(one, act, _turn(other), rules):
        return True
    if not isinstance(act, Releasing) or not isinstance(one.body, Grant):
        return False
    return accuses_release(one, act, tick, rules)


def _turn(entry: ModelEntry) -> tuple[int, Open]:
    return entry.turn.ctr, entry.turn.open


def act_of(entry: ModelEntry) -> Act:
    """What this entry does."""
    body = entry.body
    if isinstance(body, Grant):
        return Granting(ts=entry.ts, start=body.start_ms, end=body.end_ms)
    assert body is not None
    reason = body.reason if body.consent is UNSET else "consent"
    lctr = body.units[0].lctr
    return Releasing(ts=entry.ts, at=body.at_ms, grant=body.grant, lctr=lctr, reason=reason)
