"""What an entry contradicts of others, on whichever branch. SPEC.md section 8.

Reads, never writes. Forks are found in `ledger.offences`, by place.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from msgspec import UNSET

from ledger.bodies import Accept, Body, Grant, Release, Statement, read_body
from ledger.capability_bodies import Capacity
from ledger.checkpoints import is_contradicted, row_of_half
from ledger.continuity_bodies import (
    AccountRow,
    Checkpoint,
    account_key,
    covers,
    unit_key,
)
from ledger.entry import Entry
from ledger.entry_evidence import (
    alias_key,
    false_account_key,
    false_checkpoint_key,
    prove_alias,
    prove_false_account,
    prove_false_checkpoint,
    prove_two_verdicts,
    two_verdicts_key,
)
from ledger.fold import Half, State
from ledger.judging import Found
from ledger.message_evidence import cosigned_twice_key, prove_cosigned_twice
from ledger.offences import turns_with
from ledger.records import Records
from ledger.statements import contradicts, is_answer
from ledger.witness_bodies import Probe, cosigns_in
from protocol.codec import encode
from protocol.units import Digest

Place = tuple[int, Digest]
"""Where an entry stands in its feed, and its id."""


def contradictions_with(
    records: Records, state: State, entry: Entry, body: Body | None
) -> Iterator[Found]:
    """Evidence against the entry's author, or the witnesses that it shows to have signed twice.

    The entry may be stored and folded or not.

    Answers to challenges are not worked out again here: that is for who asked.
    """
    match body:
        case Grant() | Release():
            return turns_with(records, entry, body)
        case Statement():
            return _accounts_with(records, state, entry, body)
        case Capacity():
            return _aliases_with(records, state, entry, body)
        case Probe():
            return _verdicts_with(records, state, entry, body)
        case Accept():
            return _cosigns_with(state, body)
        case Checkpoint():
            return _checkpoint_with(records, state, entry, body)
        case _:
            return iter(())


def stands_alone(body: Body | None) -> bool:
    """Whether entries that say such a thing contradict no other, whatever that says."""
    if isinstance(body, Accept):
        return body.cosigned is UNSET
    return not isinstance(body, Grant | Release | Statement | Capacity | Probe | Checkpoint)


def _accounts_with(
    records: Records, state: State, entry: Entry, body: Statement
) -> Iterator[Found]:
    """A half is held to its neighbours: whatever falls anywhere falls between two of these."""
    halves = state.halves(entry.feed, body.peer, money=body.money, is_answer=is_answer(body))
    for half in _near(halves, body.ctr):
        said = half.statement
        lower, higher = (said, body) if said.ctr < body.ctr else (body, said)
        # The fold says what each half says, so only those that are evidence are read.
        if half.id == entry.id or not contradicts(lower, higher):
            continue
        other = records.find(half.id)
        assert other is not None
        pair = [(body.ctr, entry.draft.hdr, entry), (said.ctr, other.draft.hdr, other)]
        (_, _, first), (_, _, second) = sorted(pair, key=lambda each: each[:2])
        raw = prove_false_account(first, second)
        yield Found(offender=entry.feed, key=false_account_key(higher), raw=raw)


def _near(halves: list[Half], ctr: int) -> list[Half]:
    """Those with this counter, with the nearest one below, and with the nearest one above.

    Halves with one counter may differ, so all that have it are neighbours.
    """
    first, stop = bisect_left(halves, ctr, key=_ctr), bisect_right(halves, ctr, key=_ctr)
    if first > 0:
        first = bisect_left(halves, _ctr(halves[first - 1]), key=_ctr)
    if stop < len(halves):
        stop = bisect_right(halves, _ctr(halves[stop]), key=_ctr)
    return halves[first:stop]


def _ctr(half: Half) -> int:
    return half.statement.ctr


def _aliases_with(records: Records, state: State, entry: Entry, body: Capacity) -> Iterator[Found]:
    shared: dict[Digest, bytes] = {}
    """The least device to which another entry and this one give two units, by that entry."""
    for each in sorted(body.units, key=lambda each: each.fingerprint):
        for named, unit in state.units_of_device(entry.feed, each.fingerprint).items():
            if unit != each.unit and named != entry.id:
                shared.setdefault(named, each.fingerprint)
    for other in _found(records, shared):
        key = alias_key(shared[other.id])
        yield Found(offender=entry.feed, key=key, raw=prove_alias(entry, other))


def _verdicts_with(records: Records, state: State, entry: Entry, body: Probe) -> Iterator[Found]:
    found = state.probes(Digest(body.lease), body.period)
    ids = [
        probe
        for probe, said in found.items()
        if said.witness == entry.feed and said.verdict != body.verdict
    ]
    for other in _found(records, ids):
        raw = prove_two_verdicts(entry, other)
        yield Found(offender=entry.feed, key=two_verdicts_key(body), raw=raw)


def _cosigns_with(state: State, body: Accept) -> Iterator[Found]:
    if body.cosigned is UNSET:
        return
    for witness, said, by in cosigns_in(body.cosigned, Digest(body.grant)):
        signed = encode(said), by
        for other, other_by in state.cosigns(witness, said.owner, said.unit, said.ctr):
            if other.grant != said.grant:
                raw = prove_cosigned_twice(witness, signed, (encode(other), other_by))
                yield Found(offender=witness, key=cosigned_twice_key(said), raw=raw)


def _checkpoint_with(
    records: Records, state: State, entry: Entry, body: Checkpoint
) -> Iterator[Found]:
    """What is wrong in one checkpoint is one offence, so one entry is shown: the first by place."""
    lies = [
        *_lies_near(records, entry, body),
        *_lies_of_units(records, state, entry, body),
        *_lies_of_accounts(state, entry, body),
    ]
    for other in _found(records, [min(lies)[1]] if lies else []):
        raw = prove_false_checkpoint(entry, other)
        yield Found(offender=entry.feed, key=false_checkpoint_key(entry), raw=raw)


def _lies_near(records: Records, entry: Entry, body: Checkpoint) -> list[Place]:
    """Of the entries that rows name, the next ones of their units, and the last one covered."""
    feed = entry.feed
    places = [body.upto, *(row.seq for row in body.units), *(row.seq for row in body.accounts)]
    near = [other for place in dict.fromkeys(places) for other in records.at(feed, place)]
    for row in body.units:
        near += records.turns(feed, row.unit, row.ctr)
        near += records.turns(feed, row.unit, row.ctr + 1)
    return _lies_among(near, entry, body)


def _lies_of_units(
    records: Records, state: State, entry: Entry, body: Checkpoint
) -> Iterator[Place]:
    """Of the units for which the checkpoint should have a row and has none."""
    told = dict.fromkeys(row.unit for row in body.units)
    for unit in state.units_of(entry.feed):
        if unit in told or not covers(body, unit_key(unit)):
            continue
        newest = state.turn(entry.feed, unit)
        if newest is not None and newest.seq <= body.upto:
            yield newest.seq, newest.id
        else:
            yield from _lies_among(records.turns(entry.feed, unit, 0), entry, body)


def _lies_among(found: list[Entry], entry: Entry, body: Checkpoint) -> list[Place]:
    return [
        (other.seq, other.id)
        for other in {one.id: one for one in found}.values()
        if other.id != entry.id and is_contradicted(body, other, read_body(other.draft))
    ]


def _lies_of_accounts(state: State, entry: Entry, body: Checkpoint) -> Iterator[Place]:
    """Of the halves behind what the rows say, and of accounts that have none and should.

    The fold says what each half says, so none is read.
    """
    rows: dict[bytes, AccountRow] = {
        account_key(row.peer, row.money, row.side): row for row in body.accounts
    }
    for author, peer, money, answers in state.accounts_of(entry.feed):
        key = account_key(peer, money, 1 if answers else 0)
        if not covers(body, key):
            continue
        row = rows.get(key)
        halves = state.halves(author, peer, money=money, is_answer=answers)
        first = 0 if row is None else bisect_left(halves, row.ctr, key=_ctr)
        for half in halves[first:]:
            is_below = half.seq <= body.upto
            if is_below and row_of_half(half.statement, half.seq, half.id) != row:
                yield half.seq, half.id


def _found(records: Records, ids: Iterable[Digest]) -> list[Entry]:
    found = (records.find(each) for each in dict.fromkeys(ids))
    return [entry for entry in found if entry is not None]
