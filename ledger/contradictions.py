"""What an entry contradicts of others, on whichever branch. SPEC.md section 8.

Reads, never writes. Forks are found in `ledger.offences`, by place.
"""

from collections.abc import Iterable, Iterator

from msgspec import UNSET

from ledger.bodies import Accept, Body, Grant, Release, Statement, read_body
from ledger.capability_bodies import Capacity
from ledger.checkpoints import is_contradicted
from ledger.continuity_bodies import (
    AccountRow,
    Checkpoint,
    account_key,
    covers,
    row_keys,
    unit_key,
)
from ledger.entry import Entry
from ledger.entry_evidence import (
    aliases,
    prove_alias,
    prove_false_account,
    prove_false_checkpoint,
    prove_two_verdicts,
)
from ledger.fold import State
from ledger.message_evidence import prove_cosigned_twice
from ledger.offences import turns_with
from ledger.records import Records
from ledger.statements import contradicts, is_answer
from ledger.witness_bodies import Probe, cosigns_in
from protocol.codec import encode
from protocol.units import Digest


def contradictions_with(
    records: Records, state: State, entry: Entry, body: Body | None
) -> list[bytes]:
    """Evidence against the entry's author, or the witnesses that it shows to have signed twice.

    The entry may be stored and folded or not.

    Answers to challenges are not worked out again here: that is for who asked.
    """
    match body:
        case Grant() | Release():
            return turns_with(records, entry, body)
        case Statement():
            return list(_accounts_with(records, state, entry, body))
        case Capacity():
            return list(_aliases_with(records, state, entry, body))
        case Probe():
            return list(_verdicts_with(records, state, entry, body))
        case Accept():
            return list(_cosigns_with(state, body))
        case Checkpoint():
            return list(_checkpoint_with(records, state, entry, body))
        case _:
            return []


def stands_alone(body: Body | None) -> bool:
    """Whether entries that say such a thing contradict no other, whatever that says."""
    if isinstance(body, Accept):
        return body.cosigned is UNSET
    return not isinstance(body, Grant | Release | Statement | Capacity | Probe | Checkpoint)


def _accounts_with(
    records: Records, state: State, entry: Entry, body: Statement
) -> Iterator[bytes]:
    """A half is held to its neighbours: whatever falls anywhere falls between two of these."""
    halves = state.halves(entry.feed, body.peer, money=body.money, is_answer=is_answer(body))
    others = [half for half in halves if half.id != entry.id]
    below = [half for half in others if half.statement.ctr < body.ctr]
    same = [half for half in others if half.statement.ctr == body.ctr]
    above = [half for half in others if half.statement.ctr > body.ctr]
    # Halves with one counter may differ, so all that have the nearest one are neighbours.
    near_below = [half for half in below if half.statement.ctr == below[-1].statement.ctr]
    near_above = [half for half in above if half.statement.ctr == above[0].statement.ctr]
    for half in (*near_below, *same, *near_above):
        other = records.find(half.id)
        assert other is not None
        pair = [(body.ctr, entry.draft.hdr, entry), (half.statement.ctr, other.draft.hdr, other)]
        (_, _, first), (_, _, second) = sorted(pair, key=lambda each: each[:2])
        if _contradict(first, second):
            yield prove_false_account(first, second)


def _contradict(first: Entry, second: Entry) -> bool:
    one, other = read_body(first.draft), read_body(second.draft)
    assert isinstance(one, Statement)
    assert isinstance(other, Statement)
    return contradicts(one, other)


def _aliases_with(records: Records, state: State, entry: Entry, body: Capacity) -> Iterator[bytes]:
    ids = [
        named
        for each in body.units
        for named, unit in state.units_of_device(entry.feed, each.fingerprint).items()
        if unit != each.unit
    ]
    for other in _found(records, ids):
        if other.id != entry.id and aliases(read_body(other.draft), body):
            yield prove_alias(entry, other)


def _verdicts_with(records: Records, state: State, entry: Entry, body: Probe) -> Iterator[bytes]:
    found = state.probes(Digest(body.lease), body.period)
    ids = [
        probe
        for probe, said in found.items()
        if said.witness == entry.feed and said.verdict != body.verdict
    ]
    for other in _found(records, ids):
        yield prove_two_verdicts(entry, other)


def _cosigns_with(state: State, body: Accept) -> Iterator[bytes]:
    if body.cosigned is UNSET:
        return
    for witness, said, by in cosigns_in(body.cosigned, Digest(body.grant)):
        for other, other_by in state.cosigns(witness, said.owner, said.unit, said.ctr):
            if other.grant != said.grant:
                signed = (encode(said), by), (encode(other), other_by)
                yield prove_cosigned_twice(witness, *signed)


def _checkpoint_with(
    records: Records, state: State, entry: Entry, body: Checkpoint
) -> Iterator[bytes]:
    """The entries that rows name, those that rows should name, and the last one covered."""
    feed = entry.feed
    places = [body.upto, *(row.seq for row in body.units), *(row.seq for row in body.accounts)]
    near = [other for place in dict.fromkeys(places) for other in records.at(feed, place)]
    ids: list[Digest] = []
    for row in body.units:
        near += records.turns(feed, row.unit, row.ctr)
        near += records.turns(feed, row.unit, row.ctr + 1)
    told = [row.unit for row in body.units]
    for unit in state.units_of(feed):
        if covers(body, unit_key(unit)) and unit not in told:
            near += records.turns(feed, unit, 0)
    for account in body.accounts:
        ids += _halves_from(state, entry, account)
    ids += _left_out(state, entry, body)
    near += _found(records, ids)
    for other in {one.id: one for one in near}.values():
        if other.id != entry.id and is_contradicted(body, other, read_body(other.draft)):
            yield prove_false_checkpoint(entry, other)


def _halves_from(state: State, entry: Entry, row: AccountRow) -> list[Digest]:
    """The halves of this row's counter, and those of the next one."""
    halves = state.halves(entry.feed, row.peer, money=row.money, is_answer=row.side == 1)
    later = [half for half in halves if half.statement.ctr > row.ctr]
    next_ctr = later[0].statement.ctr if later else row.ctr
    return [half.id for half in halves if half.statement.ctr in (row.ctr, next_ctr)]


def _left_out(state: State, entry: Entry, body: Checkpoint) -> list[Digest]:
    """The first halves of accounts for which the checkpoint should have a row and has none."""
    told = list(row_keys(body))
    ids: list[Digest] = []
    for author, peer, money, answers in state.accounts_of(entry.feed):
        key = account_key(peer, money, 1 if answers else 0)
        if covers(body, key) and key not in told:
            ids.append(state.halves(author, peer, money=money, is_answer=answers)[0].id)
    return ids


def _found(records: Records, ids: Iterable[Digest]) -> list[Entry]:
    found = (records.find(each) for each in dict.fromkeys(ids))
    return [entry for entry in found if entry is not None]
