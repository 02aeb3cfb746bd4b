"""Our own checkpoint: all that our entries add up to, in parts that fit. SPEC.md section 3.2. Pure.

Every row is taken from the entry that it names, by the same functions by which A15 judges it.
"""

from collections.abc import Iterator

from msgspec import UNSET, structs

from ledger.bodies import encode_body, read_body
from ledger.checkpoints import account_row, unit_rows
from ledger.continuity_bodies import (
    AccountRow,
    Checkpoint,
    UnitRow,
    account_key,
    unit_key,
)
from ledger.entry import Entry, Link
from ledger.fold import State
from ledger.limits import BODY_BYTES_MAX
from ledger.records import Records
from protocol.codec import encode
from protocol.units import PublicKey

Row = AccountRow | UnitRow


def sum_up(state: State, records: Records, feed: PublicKey, upto: Link) -> list[Checkpoint]:
    """The checkpoint of this feed up to its head, as one body or several."""
    rows = sorted(_rows(state, records, feed), key=_key)
    empty = Checkpoint(upto=upto.seq, upto_id=upto.id, start=b"", stop=UNSET, units=(), accounts=())
    parts = [list[Row]()]
    room = BODY_BYTES_MAX - len(encode_body(empty)) - 2 * len(unit_key(bytes(16))) - 64
    left = room
    for row in rows:
        size = len(encode(row))
        if size > left:
            parts.append([])
            left = room
        parts[-1].append(row)
        left -= size
    starts = [b"", *(_key(part[0]) for part in parts[1:])]
    stops = [*starts[1:], UNSET]
    return [
        structs.replace(
            empty,
            start=start,
            stop=stop,
            units=tuple(row for row in part if isinstance(row, UnitRow)),
            accounts=tuple(row for row in part if isinstance(row, AccountRow)),
        )
        for part, start, stop in zip(parts, starts, stops, strict=True)
    ]


def _key(row: Row) -> bytes:
    if isinstance(row, UnitRow):
        return unit_key(row.unit)
    return account_key(row.peer, row.money, row.side)


def _rows(state: State, records: Records, feed: PublicKey) -> Iterator[Row]:
    for unit in state.units_of(feed):
        turn = state.turn(feed, unit)
        assert turn is not None
        entry = _entry(records, feed, turn.seq)
        yield from (row for row in unit_rows(entry, read_body(entry.draft)) if row.unit == unit)
    for author, peer, money, answers in state.accounts_of(feed):
        half = state.last_half(author, peer, money=money, is_answer=answers)
        assert half is not None
        entry = _entry(records, feed, half.seq)
        row = account_row(entry, read_body(entry.draft))
        assert row is not None
        yield row


def _entry(records: Records, feed: PublicKey, seq: int) -> Entry:
    entry = records.entry(feed, seq)
    assert entry is not None, "what is ours is never pruned"
    return entry
