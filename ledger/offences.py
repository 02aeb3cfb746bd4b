"""What an entry proves together with those already here. SPEC.md section 8. Reads, never writes."""

from ledger import keys
from ledger.bodies import Body, Grant, GrantTurn, Release, ReleaseTurn, read_body
from ledger.entry import Entry
from ledger.evidence import Offence, check, prove_bad_turn, prove_fork, prove_same_counter
from ledger.records import Records
from ledger.units_chain import UnitEntry, follows, is_sound_alone


def forks_with(records: Records, entry: Entry) -> list[bytes]:
    """Evidence that the entry's author forked its feed. The entry may be stored or not."""
    feed, seq = entry.feed, entry.seq
    near = [other for place in (seq - 1, seq, seq + 1) for other in records.at(feed, place)]
    proofs = (prove_fork(entry, other) for other in near)
    return [raw for raw in proofs if raw is not None]


def turns_with(records: Records, entry: Entry, body: Body | None) -> list[bytes]:
    """Evidence that the entry's author leased a unit twice. The entry may be stored or not."""
    if not isinstance(body, Grant | Release):
        return []
    return [raw for turn in body.units for raw in _turn_with(records, entry, body, turn)]


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
    before = [(other, entry) for other in records.turns(feed, unit, ctr - 1)]
    after = [(entry, other) for other in records.turns(feed, unit, ctr + 1)]
    return proofs + [
        prove_bad_turn(unit, first, second)
        for first, second in before + after
        if not _is_step(first, second, unit)
    ]


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
