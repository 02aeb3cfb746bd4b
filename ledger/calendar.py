"""GRANT and RELEASE bodies for our own units, built from the fold. SPEC.md section 4. Pure.

The owner is the only writer of its units' chains, so what the fold says here is the truth.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from msgspec import UNSET

from ledger.bodies import Body, Grant, GrantTurn, Reason, Release, ReleaseTurn, Statement
from ledger.fold import Lease, State
from ledger.intervals import Interval
from ledger.limits import OPEN_MAX
from ledger.statements import contradicts, is_answer
from ledger.units_chain import (
    Turn,
    cut,
    follows,
    is_disjoint,
    next_place,
    opened,
    overlaps,
    turns_of,
)
from protocol.errors import LocalFault, Unavailable
from protocol.lease import LeaseRequest, UnitTurn
from protocol.units import Millis, PublicKey, Signature

TurnOf = Callable[[bytes], Turn | None]
"""turn_of(unit): the newest entry of this unit of ours."""


def grant_of(turn_of: TurnOf, raw: bytes, request: LeaseRequest, *, ts_ms: Millis) -> Grant:
    """The GRANT that gives what `request`, sealed in `raw`, asks for.

    Raises Unavailable if a unit's counter has moved on, it is leased then, or has too many leases.
    """
    return Grant(
        units=tuple(_granted(turn_of, each, request, ts_ms) for each in request.units),
        start_ms=request.start_ms,
        end_ms=request.end_ms,
        request=raw,
        witnesses=request.witnesses,
        quorum=request.quorum,
    )


def _granted(turn_of: TurnOf, wanted: UnitTurn, request: LeaseRequest, ts_ms: Millis) -> GrantTurn:
    last = turn_of(wanted.unit)
    place = next_place(last)
    before = () if last is None else last.open
    name = wanted.unit.hex()
    if wanted.ctr != place.ctr:
        raise Unavailable(f"unit {name} has turn {place.ctr} next, not {wanted.ctr}")
    if overlaps(before, request.start_ms, request.end_ms):
        raise Unavailable(f"unit {name} is leased in that time")
    after = opened(before, Interval(request.start_ms, request.end_ms, place.ctr), ts_ms)
    if len(after) > OPEN_MAX:
        raise Unavailable(f"unit {name} has {OPEN_MAX} leases outstanding")
    return GrantTurn(wanted.unit, place.ctr, place.gseq, place.gprev, after)


def turns_after(
    state: State, ends: Iterable[tuple[Lease, Millis]], *, owner: PublicKey, ts_ms: Millis
) -> TurnOf:
    """The turns as they will be once a RELEASE has ended each of these leases of ours then.

    No entry is written yet, so ids and sequence numbers are those of the entries before.
    """
    moved: dict[bytes, Turn] = {}
    for lease, at_ms in ends:
        for each in lease.request.units:
            last = moved.get(each.unit) or state.turn(owner, each.unit)
            assert last is not None
            after = cut(last.open, each.ctr, at_ms, ts_ms)
            moved[each.unit] = replace(last, ctr=last.ctr + 1, open=after)
    return lambda unit: moved.get(unit) or state.turn(owner, unit)


def release_of(
    state: State,
    lease: Lease,
    *,
    ts_ms: Millis,
    at_ms: Millis,
    reason: Reason,
    consent: Signature | None = None,
) -> Release:
    """The RELEASE that ends the lease at `at_ms` on all its units."""
    turns = []
    for each in lease.request.units:
        last = state.turn(lease.owner, each.unit)
        assert last is not None
        place = next_place(last)
        after = cut(last.open, each.ctr, at_ms, ts_ms)
        turns.append(ReleaseTurn(each.unit, place.ctr, place.gseq, place.gprev, after, each.ctr))
    return Release(
        units=tuple(turns),
        grant=lease.id,
        at_ms=at_ms,
        reason=reason,
        consent=consent or UNSET,
    )


def check_innocent(state: State, body: Body, *, author: PublicKey, ts_ms: Millis) -> None:
    """Raises LocalFault if an entry of ours with this body would prove an offence."""
    for turn in turns_of(body):
        assert isinstance(body, Grant | Release)
        before = state.turn(author, turn.unit)
        place = next_place(before)
        if (
            (turn.ctr, turn.gseq, turn.gprev) != (place.ctr, place.gseq, place.gprev)
            or not is_disjoint(turn.open)
            or not follows(() if before is None else before.open, body, turn.unit, ts_ms)
        ):
            raise self_accusing(f"unit {turn.unit.hex()}")
    if isinstance(body, Statement):
        last_one = state.last_half(author, body.peer, money=body.money, is_answer=is_answer(body))
        last = None if last_one is None else last_one.statement
        if last is not None and (body.ctr <= last.ctr or contradicts(last, body)):
            raise self_accusing(f"our account with {body.peer.hex()[:16]}")


def self_accusing(about: str) -> LocalFault:
    """Why an entry of ours is not signed."""
    return LocalFault(
        f"The entry would contradict an earlier one of ours, about {about}.",
        "build it from the ledger as it is now",
    )
