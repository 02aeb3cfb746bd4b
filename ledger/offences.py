"""What an entry proves together with those already here. SPEC.md section 8. Reads, never writes."""

from collections.abc import Iterable, Iterator

from ledger import keys
from ledger.bodies import Body, Grant, GrantTurn, Release, ReleaseTurn, read_body
from ledger.early_release import Freed, Leased, has_right, misnamed_turn
from ledger.entry import Entry
from ledger.evidence import check
from ledger.fork_evidence import FORK, prove_fork
from ledger.judging import Found
from ledger.records import Records
from ledger.unit_evidence import (
    BROKEN_CHAIN,
    EARLY_RELEASE,
    OVERLAP,
    SAME_COUNTER,
    prove_bad_turn,
    prove_broken_chain,
    prove_early_release,
    prove_same_counter,
    turn_key,
)
from ledger.units_chain import UnitEntry, breaks_chain, follows, is_sound_alone, turn_in
from protocol.units import Digest

Said = tuple[Entry, Body | None]
"""An entry and what it says."""


def forks_with(records: Records, entry: Entry) -> Iterator[Found]:
    """Evidence that the entry's author forked its feed. The entry may be stored or not."""
    feed, seq = entry.feed, entry.seq
    for place in (seq - 1, seq, seq + 1):
        for other in records.headers_at(feed, place):
            raw = prove_fork(entry, other)
            if raw is not None:
                yield Found(offender=feed, key=FORK, raw=raw, fork=min(seq, place))


def turns_with(records: Records, entry: Entry, body: UnitEntry) -> Iterator[Found]:
    """Evidence that the entry's author leased a unit twice, or broke its chain or a lease.

    The entry may be stored or not.
    """
    for turn in body.units:
        yield from _turn_with(records, entry, body, turn)
    yield from _releases_with(records, entry, body)


def _releases_with(records: Records, entry: Entry, body: UnitEntry) -> Iterator[Found]:
    """Evidence that the entry's author ended a lease without right."""
    if isinstance(body, Grant):
        lease = Leased(entry=entry, grant=body)
        counted = [
            one for turn in body.units for one in records.endings(entry.feed, turn.unit, turn.ctr)
        ]
        released = _of([*records.referrers(entry.id), *counted], entry)
        pairs = [(lease, Freed(entry=one, release=said)) for one, said in _releases(released)]
    else:
        freed = Freed(entry=entry, release=body)
        named = records.find(Digest(body.grant))
        counted = [
            one for turn in body.units for one in records.turns(entry.feed, turn.unit, turn.lctr)
        ]
        found = _of([*([] if named is None else [named]), *counted], entry)
        pairs = [(Leased(entry=one, grant=said), freed) for one, said in _grants(found)]
    for lease, freed in pairs:
        turn = misnamed_turn(lease, freed.release)
        if turn is not None or not has_right(lease, freed, None, records.net):
            key = turn_key(EARLY_RELEASE, turn or freed.release.units[0])
            raw = prove_early_release(lease.entry, freed.entry)
            yield Found(offender=entry.feed, key=key, raw=raw)


def _of(found: list[Entry], entry: Entry) -> list[Entry]:
    """Those by the author of this entry, each once."""
    return list({one.id: one for one in found if one.feed == entry.feed}.values())


def _grants(found: list[Entry]) -> Iterator[tuple[Entry, Grant]]:
    for one in found:
        body = read_body(one.draft)
        if isinstance(body, Grant):
            yield one, body


def _releases(found: list[Entry]) -> Iterator[tuple[Entry, Release]]:
    for one in found:
        body = read_body(one.draft)
        if isinstance(body, Release):
            yield one, body


def _turn_with(
    records: Records, entry: Entry, body: UnitEntry, turn: GrantTurn | ReleaseTurn
) -> Iterator[Found]:
    feed, unit, ctr = entry.feed, turn.unit, turn.ctr
    for other in records.turns(feed, unit, ctr):
        if other.id != entry.id:
            raw = prove_same_counter(unit, entry, other)
            yield Found(offender=feed, key=turn_key(SAME_COUNTER, turn), raw=raw)
    if not is_sound_alone(body, unit, entry.header.ts_ms):
        raw = prove_bad_turn(unit, entry)
        yield Found(offender=feed, key=turn_key(OVERLAP, turn), raw=raw)
    here = (entry, body)
    before = _said(records.turns(feed, unit, ctr - 1))
    after = _said(records.turns(feed, unit, ctr + 1))
    steps = [(other, here) for other in before] + [(here, other) for other in after]
    for first, second in steps:
        if not _is_step(first, second, unit):
            raw, key = prove_bad_turn(unit, first[0], second[0]), _key_of(OVERLAP, second, unit)
            yield Found(offender=feed, key=key, raw=raw)
    below = [other.id for other, _ in before]
    named = [] if ctr == 0 else records.at(feed, turn.gseq)
    steps += [(other, here) for other in _said(named) if other[0].id not in below]
    for first, second in steps:
        if breaks_chain(*first, second[0], _turn_of(second, unit)):
            raw, key = (
                prove_broken_chain(unit, first[0], second[0]),
                _key_of(BROKEN_CHAIN, second, unit),
            )
            yield Found(offender=feed, key=key, raw=raw)


def _said(found: list[Entry]) -> list[Said]:
    return [(one, read_body(one.draft)) for one in found]


def _key_of(family: bytes, said: Said, unit: bytes) -> bytes:
    return turn_key(family, _turn_of(said, unit))


def _turn_of(said: Said, unit: bytes) -> GrantTurn | ReleaseTurn:
    body = said[1]
    assert isinstance(body, Grant | Release)
    turn = turn_in(body, unit)
    assert turn is not None
    return turn


def _is_step(first: Said, second: Said, unit: bytes) -> bool:
    entry, body = second
    assert isinstance(body, Grant | Release)
    return follows(_turn_of(first, unit).open, body, unit, entry.header.ts_ms)


def news_in(records: Records, found: Iterable[Found]) -> dict[bytes, Found]:
    """What is to be written of it, by its key in the store: for each offence the least.

    An author can give a thousand pairs for one offence in a few bytes each, so none is checked.
    """
    least: dict[bytes, Found] = {}
    for one in found:
        key = keys.offence(one.offender, one.key)
        known = least.get(key)
        if known is None or one.order < known.order:
            least[key] = one
    return {key: one for key, one in least.items() if _is_news(records, key, one)}


def _is_news(records: Records, key: bytes, one: Found) -> bool:
    held = records.store.get(key)
    if held is None:
        return True
    fork = None if one.fork is None else check(held, records.net).seq
    return one.order < Found(offender=one.offender, key=one.key, raw=held, fork=fork).order
