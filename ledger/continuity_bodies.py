"""What carries a feed over what is no longer there: checkpoints, successors. SPEC.md section 3."""

from collections.abc import Iterator
from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, UnsetType, field

from ledger.intervals import Open
from ledger.limits import ROW_KEY_BYTES_MAX, SUCCESSOR_UNITS_MAX
from protocol.codec import (
    CurrencyCode,
    Hash,
    Id16,
    Instant,
    Key,
    Money,
    Seal,
    Span,
    UInt,
    Wire,
    encode,
)
from protocol.limits import CERTIFICATE_BYTES_MAX
from protocol.units import PublicKey

CHECKPOINT: Final = 60
SUCCESSOR: Final = 61
RULES_SIGNAL: Final = 70

SUCCESSOR_DOMAIN: Final = "successor"
"""Domain of the root key's signature over `successor_bytes`."""

Side = Literal[0, 1]
"""0 where the author is owed, 1 where it owes: whether its halves answer those of the peer."""
RowKey = Annotated[bytes, Meta(max_length=ROW_KEY_BYTES_MAX)]


class UnitRow(Wire, frozen=True, array_like=True):
    """A unit's newest turn, and where it stands."""

    unit: Id16
    ctr: UInt
    seq: UInt
    id: Hash
    open: Open


class AccountRow(Wire, frozen=True, array_like=True):
    """The author's newest half of an account, and where it stands."""

    peer: Key
    money: CurrencyCode
    side: Side
    ctr: UInt
    seq: UInt
    id: Hash
    used_ms: Span
    amount_micro: Money


class Checkpoint(Wire, frozen=True, kw_only=True):
    """What the author's entries up to one place add up to, for a range of units and accounts."""

    upto: UInt = field(name="0")
    upto_id: Hash = field(name="1")
    start: RowKey = field(name="2")
    """The rows are all whose key is from here ..."""
    stop: RowKey | UnsetType = field(default=UNSET, name="3")
    """... up to but not including this; absent: to the end."""
    units: tuple[UnitRow, ...] = field(name="4")
    accounts: tuple[AccountRow, ...] = field(name="5")


class SuccessorUnit(Wire, frozen=True, array_like=True):
    """A unit's last turn in the feed that ended."""

    unit: Id16
    ctr: UInt
    id: Hash
    open: Open


class Successor(Wire, frozen=True, kw_only=True):
    """This feed goes on where another of the same account ended; the root key says so."""

    certificate: Annotated[bytes, Meta(max_length=CERTIFICATE_BYTES_MAX)] = field(name="0")
    """Of the feed that ended."""
    ended: UInt = field(name="1")
    """From this place on the other feed gives its author nothing."""
    at_ms: Instant = field(name="2")
    units: Annotated[tuple[SuccessorUnit, ...], Meta(max_length=SUCCESSOR_UNITS_MAX)] = field(
        name="3"
    )
    by: Seal = field(name="4")
    """The root key's signature over `successor_bytes`."""


class RulesSignal(Wire, frozen=True, kw_only=True):
    """The author would judge by this bundle. To be counted by whoever wants to; it binds nobody."""

    bundle: Hash = field(name="0")


def unit_key(unit: bytes) -> bytes:
    """Where a unit is among the rows of a checkpoint."""
    return b"u" + unit


def account_key(peer: PublicKey, money: str, side: Side) -> bytes:
    """Where an account is among the rows of a checkpoint."""
    return b"a" + peer + bytes([side]) + money.encode("ascii")


def row_keys(checkpoint: Checkpoint) -> Iterator[bytes]:
    """The keys of all rows, accounts first, as they stand there."""
    for account in checkpoint.accounts:
        yield account_key(account.peer, account.money, account.side)
    for unit in checkpoint.units:
        yield unit_key(unit.unit)


def covers(checkpoint: Checkpoint, key: bytes) -> bool:
    """Whether the checkpoint says all there is to say of this unit or account."""
    return checkpoint.start <= key and (checkpoint.stop is UNSET or key < checkpoint.stop)


class SuccessorSaid(Wire, frozen=True, array_like=True):
    """What the root key signs: the new feed, and all that the entry says but the signature."""

    feed: Key
    certificate: bytes
    ended: UInt
    at_ms: Instant
    units: tuple[SuccessorUnit, ...]


def successor_bytes(said: Successor, feed: PublicKey) -> bytes:
    """The bytes under the root key's signature in an entry of `feed`."""
    return encode(SuccessorSaid(feed, said.certificate, said.ended, said.at_ms, said.units))
