"""What an entry proves together with those already here. SPEC.md section 8. Reads, never writes."""

from collections.abc import Iterator

from ledger import keys
from ledger.bodies import Body, Grant, GrantTurn, Release, ReleaseTurn, read_body
from ledger.early_release import Freed, Leased, has_right, misnamed_turn
from ledger.entry import Entry
from ledger.evidence import check
from ledger.fork_evidence import prove_fork
from ledger.judging import Offence
from ledger.records import Records
from ledger.unit_evidence import (
    prove_bad_turn,
    prove_broken_chain,
    prove_early_release,
    prove_same_counter,
)
from ledger.units_chain import UnitEntry, breaks_chain, follows, is_sound_alone
from protocol.units import Digest


def forks_with(records: Records, entry: Entry) -> list[bytes]:
    """Evidence that the entry's author forked its feed. The entry may be stored or not."""
    feed, seq = entry.feed, entry.seq
    places = (seq - 1, seq, seq + 1)
    near = [other for place in places for other in records.headers_at(feed, place)]
    proofs = (prove_fork(entry, other) for other in near)
    return [raw for raw in proofs if raw is not None]


def turns_with(records: Records, entry: Entry, body: Body | None) -> list[bytes]:
    """Evidence that the entry's author leased a unit twice, or broke its chain or a lease.

    The entry may be stored or not.
    """
    if not isinstance(body, Grant | Release):
        return []
    proofs = [raw for turn in body.units for raw in _turn_with(records, entry, body, turn)]
    return proofs + releases_with(records, entry, body)


def releases_with(records: Records, entry: Entry, body: UnitEntry) -> list[bytes]:
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
    return [
        prove_early_release(lease.entry, freed.entry)
        for lease, freed in pairs
        if misnamed_turn(lease, freed.release) is not None
        or not has_right(lease, freed, None, records.net)
    ]


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
) -> list[bytes]:
    feed, unit, ctr = entry.feed, turn.unit, turn.ctr
    proofs = [
        prove_same_counter(unit, entry, other)
        for other in records.turns(feed, unit, ctr)
        if other.id != entry.id
    ]
    if not is_sound_alone(body, unit, entry.header.ts_ms):
        proofs.append(prove_bad_turn(unit, entry))
    before = records.turns(feed, unit, ctr - 1)
    after = records.turns(feed, unit, ctr + 1)
    steps = [(other, entry) for other in before] + [(entry, other) for other in after]
    proofs += [
        prove_bad_turn(unit, first, second)
        for first, second in steps
        if not _is_step(first, second, unit)
    ]
    named = [] if ctr == 0 else records.at(feed, turn.gseq)
    steps += [(other, entry) for other in named if other.id not in [one.id for one in before]]
    return proofs + [
        prove_broken_chain(unit, first, second)
        for first, second in steps
        if _is_broken(first, second, unit)
    ]


def _is_broken(first: Entry, second: Entry, unit: bytes) -> bool:
    after = read_body(second.draft)
    assert isinstance(after, Grant | Release)
    turn = next(turn for turn in after.units if turn.unit == unit)
    return breaks_chain(first, read_body(first.draft), second, turn)


def _is_step(first: Entry, second: Entry, unit: bytes) -> bool:
    one, other = read_body(first.draft), read_body(second.draft)
    assert isinstance(one, Grant | Release)
    assert isinstance(other, Grant | Release)
    before = next(turn.open for turn in one.units if turn.unit == unit)
    return follows(before, other, unit, second.header.ts_ms)


def batch_of_evidence(records: Records, proofs: list[bytes]) -> dict[bytes, bytes]:
    """What is written for these proofs: for each offence the least, the lowest fork first.

    Raises PeerFault if one of them proves nothing.
    """
    batch: dict[bytes, bytes] = {}
    for raw in proofs:
        offence = check(raw, records.net)
        key = keys.offence(offence.offender, offence.key)
        held = batch.get(key, records.store.get(key))
        if held is None or _order(offence, raw) < _order(check(held, records.net), held):
            batch[key] = raw
    return batch


def _order(offence: Offence, raw: bytes) -> tuple[int, bytes]:
    return (0 if offence.seq is None else offence.seq, raw)
