"""All chains of one unit up to a bound: those of an honest owner, and those of one that lies.

A liar may write any counter, place, time, intervals and names. What has proved an offence proves it
whatever comes after, so only chains without evidence are continued.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import product

from ledger.bodies import Grant, Release
from ledger.intervals import Interval, Open
from ledger.units_chain import apply, is_disjoint, overlaps
from protocol.units import Digest, Millis
from tests.model.model_entries import (
    NO_ID,
    NOBODY,
    UNIT,
    Act,
    Chain,
    Granting,
    ModelEntry,
    Place,
    Releasing,
    body_of,
    entry_after,
    grantings,
    grants,
    opens_of,
)
from tests.model.predicates import (
    NO_TICK,
    Rules,
    accuses_open,
    accuses_place,
    accuses_release,
    is_right,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """How far a search goes."""

    entries: int
    """Of a chain, the last included."""
    end: int
    """Times are 0 to this."""
    is_ticked: bool = True
    """Whether the owner has signed ticks over all of each lease: then it cannot end one alone."""

    enough: int = 1_000_000
    """After so many escapes the search is over."""

    @property
    def tick(self) -> int:
        """The time up to which each lease is known to have run."""
        return self.end if self.is_ticked else NO_TICK


@dataclass(slots=True)
class Count:
    """What a search has met."""

    chains: int = 0
    """Of a liar, each with evidence in its last entry or without any."""
    conflicts: int = 0
    """Of these, how many end in a GRANT that looks sound and overlaps a lease that still runs."""
    clean: int = 0
    """Chains without evidence."""
    escapes: list[Chain] = field(default_factory=list)
    """Conflicts without evidence."""

    def __str__(self) -> str:
        return (
            f"{self.chains:,} chains, {self.clean:,} without evidence;"
            f" {self.conflicts:,} double leases, {len(self.escapes):,} without evidence"
        )


def effective_end(chain: Chain, grant: ModelEntry, tick: int) -> int:
    """Where the lease ends: as agreed, or where a RELEASE that names it has the right to end it."""
    assert isinstance(grant.body, Grant)
    ends = [grant.body.end_ms]
    for entry in chain:
        if isinstance(entry.body, Release) and entry.body.grant == grant.id:
            reason = entry.body.reason
            act = Releasing(ts=entry.ts, at=entry.body.at_ms, grant=grant.id, lctr=0, reason=reason)
            if is_right(grant, act, tick):
                ends.append(entry.body.at_ms)
    return min(ends)


def still_leased(chain: Chain, tick: int) -> Open:
    """The intervals that renters count on, whatever the owner says is open."""
    return tuple(
        Interval(entry.body.start_ms, Millis(effective_end(chain, entry, tick)), entry.turn.ctr)
        for entry in chain
        if isinstance(entry.body, Grant) and entry.body.start_ms < effective_end(chain, entry, tick)
    )


def lies(bound: Bound, rules: Rules) -> Count:
    """Every chain of an owner that may write anything, up to the bound."""
    count = Count()
    _lie(count, (), bound, rules)
    return count


def _lie(count: Count, chain: Chain, bound: Bound, rules: Rules) -> None:
    count.clean += 1
    if len(chain) == bound.entries or len(count.escapes) >= bound.enough:
        return
    for step in _next(count, chain, bound, rules):
        if step.is_conflict:
            count.escapes.append((*chain, step.entry(chain)))
        if len(chain) + 1 == bound.entries:
            count.clean += 1
        else:
            _lie(count, (*chain, step.entry(chain)), bound, rules)


def clean_chains(bound: Bound, rules: Rules) -> Iterator[Chain]:
    """The chains without evidence; also those in which an entry is about something else."""
    yield from _clean((), bound, rules)


def _clean(chain: Chain, bound: Bound, rules: Rules) -> Iterator[Chain]:
    yield chain
    if len(chain) == bound.entries:
        return
    steps = _next(Count(), chain, bound, rules)
    for entry in (entry_after(chain, 0, None), *(step.entry(chain) for step in steps)):
        yield from _clean((*chain, entry), bound, rules)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A next entry without evidence."""

    place: Place
    act: Act
    open: Open
    is_conflict: bool

    def entry(self, chain: Chain) -> ModelEntry:
        return entry_after(chain, self.act.ts, body_of(self.act, self.place, self.open))


def _next(count: Count, chain: Chain, bound: Bound, rules: Rules) -> Iterator[_Step]:
    """Every next entry without evidence; all of them are counted."""
    named = (*(entry.id for entry in grants(chain)), NOBODY)
    leased = still_leased(chain, bound.tick)
    for place in places(chain, bound.entries, rules):
        count.chains += _many(place.ctr, len(named), bound.end, rules)
        count.conflicts += sum(
            _sound(act, place.ctr, bound.end)
            for act in grantings(bound.end)
            if _is_conflict(leased, act)
        )
        if _is_placed_wrong(chain, place, bound.end, rules):
            continue
        for act in _acts(place.ctr, named, bound.end, rules):
            if _is_accused(chain, act, (place, bound.tick), rules):
                continue
            before = next((each for each in chain if _is_before(each, place)), None)
            is_conflict = _is_conflict(leased, act)
            for after in _opens(act, place.ctr, bound.end, rules):
                if not accuses_open(before, act, (place.ctr, after), rules):
                    yield _Step(place=place, act=act, open=after, is_conflict=is_conflict)


def places(chain: Chain, ctr_max: int, rules: Rules) -> Iterator[Place]:
    """All that the next turn may say of its place and keep to rule `turn.chain`."""
    yield Place(ctr=0, gseq=0, gprev=NO_ID)
    gseqs = range(1, len(chain) + 1) if rules.has_gseq else (0,)
    ids = [*(entry.id for entry in chain), NOBODY]
    for ctr, gseq, gprev in product(range(1, ctr_max + 1), gseqs, ids):
        yield Place(ctr=ctr, gseq=gseq, gprev=gprev)


@lru_cache(maxsize=64)
def _acts(ctr: int, named: tuple[Digest, ...], end: int, rules: Rules) -> tuple[Act, ...]:
    """All that a turn with this counter may do (rule `release.counter`)."""
    found: list[Act] = list(grantings(end))
    lctrs = range(ctr if rules.release_has_lctr else min(ctr, 1))
    times = range(end + 1)
    found += [
        Releasing(ts=ts, at=at, grant=grant, lctr=lctr, reason=reason)
        for ts, at, grant, lctr in product(times, times, named, lctrs)
        for reason in ("consent", "unpaid")
    ]
    return tuple(found)


@cache
def _many(ctr: int, named: int, end: int, rules: Rules) -> int:
    """How many entries there are with one place: all acts, each with all intervals."""
    acts = _acts(ctr, (NOBODY,) * named, end, rules)
    return sum(len(_opens(act, ctr, end, rules)) for act in acts)


@cache
def _opens(act: Act, ctr: int, end: int, rules: Rules) -> tuple[Open, ...]:
    is_bare = isinstance(act, Releasing) and not rules.release_has_open
    return ((),) if is_bare else opens_of(act, ctr, end)


@cache
def _sound(act: Act, ctr: int, end: int) -> int:
    """How many intervals a renter would take this GRANT with, if it saw nothing else."""
    return sum(is_disjoint(each) for each in opens_of(act, ctr, end))


def _is_conflict(leased: Open, act: Act) -> bool:
    """Whether a renter is granted what another one counts on."""
    return isinstance(act, Granting) and overlaps(leased, Millis(act.start), Millis(act.end))


def _is_before(entry: ModelEntry, place: Place) -> bool:
    return entry.body is not None and entry.turn.ctr == place.ctr - 1


def _is_placed_wrong(chain: Chain, place: Place, end: int, rules: Rules) -> bool:
    """Whether the place alone proves something, at whatever time."""
    # The turn after this one was written before it, so it names another one.
    is_late = any(each.body is not None and each.turn.ctr == place.ctr + 1 for each in chain)
    return is_late or any(accuses_place(each, place, end, rules) for each in chain)


def _is_accused(chain: Chain, act: Act, known: tuple[Place, int], rules: Rules) -> bool:
    place, tick = known
    if any(accuses_place(each, place, act.ts, rules) for each in chain):
        return True
    return isinstance(act, Releasing) and any(
        accuses_release(grant, act, tick, rules) for grant in grants(chain)
    )


def honest_chains(bound: Bound) -> Iterator[tuple[Chain, dict[Digest, int]]]:
    """Every chain of an honest owner, and the latest tick it may have signed of each lease."""
    yield from _honest((), (), bound)


def _honest(chain: Chain, opened: Open, bound: Bound) -> Iterator[tuple[Chain, dict[Digest, int]]]:
    yield chain, _ticks(chain)
    if len(chain) == bound.entries:
        return
    last_ts = chain[-1].ts if chain else 0
    unit = [entry for entry in chain if entry.body is not None]
    place = Place(ctr=0, gseq=0, gprev=NO_ID)
    if unit:
        place = Place(ctr=len(unit), gseq=unit[-1].seq, gprev=unit[-1].id)
    yield from _honest((*chain, entry_after(chain, last_ts, None)), opened, bound)
    for act in _honest_acts(chain, opened, bound.end, last_ts):
        after = apply(opened, body_of(act, place, ()), UNIT, Millis(act.ts))
        entry = entry_after(chain, act.ts, body_of(act, place, after))
        yield from _honest((*chain, entry), after, bound)


def _honest_acts(chain: Chain, opened: Open, end: int, ts_min: int) -> Iterator[Act]:
    for granting in grantings(end, ts_min):
        if not overlaps(opened, Millis(granting.start), Millis(granting.end)):
            yield granting
    for grant, ts, at in product(grants(chain), range(ts_min, end + 1), range(end + 1)):
        for reason in ("consent", "preempted", "lapsed", "unpaid", "end"):
            lctr = grant.turn.ctr
            act = Releasing(ts=ts, at=at, grant=grant.id, lctr=lctr, reason=reason)
            # Ticks up to where the lease ends are signed later, and only if none rules this out.
            if is_right(grant, act, NO_TICK):
                yield act


def _ticks(chain: Chain) -> dict[Digest, int]:
    """An honest owner signs none of a lease that lapsed, and none beyond the lease's end."""
    found: dict[Digest, int] = {}
    for grant in grants(chain):
        found[grant.id] = effective_end(chain, grant, NO_TICK)
        for entry in chain:
            body = entry.body
            if isinstance(body, Release) and (body.grant, body.reason) == (grant.id, "lapsed"):
                found[grant.id] = NO_TICK
    return found
