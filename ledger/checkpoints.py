"""Whether a checkpoint says what the entries below it say. SPEC.md section 8, A15. Pure.

Every row names the entry that it was taken from, and a checkpoint covers a range of rows, so each
falsehood is shown by the checkpoint and one entry.
"""

from dataclasses import dataclass

from msgspec import UNSET

from ledger.bodies import Body, Statement
from ledger.continuity_bodies import (
    AccountRow,
    Checkpoint,
    Side,
    UnitRow,
    account_key,
    covers,
    unit_key,
)
from ledger.entry import Entry
from ledger.units_chain import turns_of
from protocol.units import Digest, Millis


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPart:
    """A CHECKPOINT as far as it says what it covers."""

    upto: int
    start: bytes
    stop: bytes | None
    ts_ms: Millis


def is_contradicted(checkpoint: Checkpoint, entry: Entry, body: Body | None) -> bool:
    """Whether this entry of the same feed gives the lie to the checkpoint."""
    if entry.seq > checkpoint.upto:
        return False
    if entry.seq == checkpoint.upto and entry.id != checkpoint.upto_id:
        return True
    return _units_differ(checkpoint, entry, body) or _accounts_differ(checkpoint, entry, body)


def unit_rows(entry: Entry, body: Body | None) -> list[UnitRow]:
    """What a checkpoint says of the entry's units, if none of them has moved on since."""
    return [UnitRow(turn.unit, turn.ctr, entry.seq, entry.id, turn.open) for turn in turns_of(body)]


def account_row(entry: Entry, body: Body | None) -> AccountRow | None:
    """What a checkpoint says of the entry's account, if that has not grown since."""
    return row_of_half(body, entry.seq, entry.id) if isinstance(body, Statement) else None


def row_of_half(said: Statement, seq: int, entry_id: Digest) -> AccountRow:
    """What a checkpoint says of the half that stands there."""
    side: Side = 0 if said.half is UNSET else 1
    return AccountRow(
        said.peer, said.money, side, said.ctr, seq, entry_id, said.used_ms, said.amount_micro
    )


def _units_differ(checkpoint: Checkpoint, entry: Entry, body: Body | None) -> bool:
    said = {row.unit: row for row in checkpoint.units}
    true = {row.unit: row for row in unit_rows(entry, body)}
    for unit, row in true.items():
        if not covers(checkpoint, unit_key(unit)):
            continue
        other = said.get(unit)
        if other is None or other.ctr < row.ctr or (other.ctr == row.ctr and other != row):
            return True
    return any(row.seq == entry.seq and true.get(row.unit) != row for row in checkpoint.units)


def _accounts_differ(checkpoint: Checkpoint, entry: Entry, body: Body | None) -> bool:
    true = account_row(entry, body)
    said = {account_key(row.peer, row.money, row.side): row for row in checkpoint.accounts}
    here = None if true is None else account_key(true.peer, true.money, true.side)
    if true is not None and here is not None and covers(checkpoint, here):
        other = said.get(here)
        if other is None or other.ctr < true.ctr or (other.ctr == true.ctr and other != true):
            return True
    return any(row.seq == entry.seq and row != true for row in checkpoint.accounts)
