"""An account goes on in another feed: what its root key says of the one that ended. SPEC.md 3."""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from ledger.bodies import Genesis, read_body
from ledger.continuity_bodies import (
    SUCCESSOR_DOMAIN,
    Successor,
    SuccessorUnit,
    successor_bytes,
)
from ledger.entry import read_entry
from ledger.fold import State
from ledger.limits import SUCCESSOR_UNITS_MAX
from protocol.certificate import certificate_known
from protocol.signing import Signer
from protocol.units import Millis, NetId, PublicKey, Signature

_UNSIGNED: Final = Signature(bytes(64))


def end_of(state: State, feed: PublicKey, *, head: int) -> int:
    """From which place on the feed is to give its author nothing: its fork, or all after `head`."""
    fork = state.fork_of(feed)
    return head + 1 if fork is None else fork


def successors(
    state: State,
    *,
    certificate: bytes,
    ended: int,
    into: PublicKey,
    root: Signer,
    net: NetId,
    at: Millis,
) -> list[Successor]:
    """What the feed `into` has to say at its begin; `certificate` is that of the feed that ended.

    More than one if it has many units. `root` is the key of the account.
    """
    old = certificate_known(certificate).feed
    turns = ((unit, state.turn(old, unit)) for unit in state.units_of(old))
    units = [SuccessorUnit(unit, turn.ctr, turn.id, turn.open) for unit, turn in turns if turn]
    parts = [units[n : n + SUCCESSOR_UNITS_MAX] for n in range(0, len(units), SUCCESSOR_UNITS_MAX)]
    return [
        _sealed(
            Successor(
                certificate=certificate, ended=ended, at_ms=at, units=tuple(part), by=_UNSIGNED
            ),
            into,
            root,
            net,
        )
        for part in parts or [[]]
    ]


def carried_on(entries: Iterable[bytes], net: NetId) -> list[PublicKey]:
    """The feeds whose account a feed carries on, of which these are the entries from the first."""
    found: dict[PublicKey, None] = {}
    for raw in entries:
        match read_body(read_entry(raw, net).draft):
            case Genesis():
                pass
            case Successor() as said:
                found[certificate_known(said.certificate).feed] = None
            case _:
                break
    return list(found)


def _sealed(said: Successor, into: PublicKey, root: Signer, net: NetId) -> Successor:
    return replace(said, by=root.sign(SUCCESSOR_DOMAIN, net, successor_bytes(said, into)))
