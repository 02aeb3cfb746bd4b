"""What two replicas say to each other on a stream of sync. SPEC.md section "Sync"."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType, structs

from ledger.frontier import HeadItem
from ledger.limits import ENTRY_BYTES_MAX, EVIDENCE_BYTES_MAX, ONLY_MAX, WANTS_MAX
from ledger.ranges import Part
from protocol.codec import Extensions, Hash, Id16, Key, Network, UInt, Wire


class SyncHello(Wire, frozen=True, kw_only=True):
    """The first frame of either side: all that two replicas with equal sets need to say."""

    v: Literal[1] = 1
    net: Network
    uuid: Id16
    """Of the speaker's store: for versions that remember what a peer had."""
    feeds: UInt
    root: Hash
    """Of the heads; where `only` narrows them, of those."""
    proofs: Hash
    """Of the ids of evidence, likewise."""
    only: Annotated[tuple[Key, ...], Meta(max_length=ONLY_MAX)] | UnsetType = UNSET
    """The only feeds that the speaker wants to talk about."""
    x: Extensions = UNSET


class Want(Wire, frozen=True, array_like=True):
    """Asks for the main chain of a feed from `first` up to but not including `stop`."""

    feed: Key
    first: UInt
    stop: UInt


class Tail(Wire, frozen=True, array_like=True):
    """Asks for all branches of a forked feed from `first` on, without the `skip` first entries."""

    feed: Key
    first: UInt
    skip: UInt


class Run(Wire, frozen=True, array_like=True):
    """Answers a Want or a Tail: the entries that follow, as many as fit. None: there are none."""

    feed: Key
    entries: tuple[Annotated[bytes, Meta(max_length=ENTRY_BYTES_MAX)], ...]


class Turn(Wire, frozen=True, kw_only=True):
    """Every other frame. It answers all that the last one asked, as far as it fits, and asks."""

    heads: Part[HeadItem] | UnsetType = UNSET
    offences: Part[Hash] | UnsetType = UNSET
    proofs: tuple[Annotated[bytes, Meta(max_length=EVIDENCE_BYTES_MAX)], ...] | UnsetType = UNSET
    """Evidence that was asked for."""
    runs: tuple[Run, ...] | UnsetType = UNSET
    accuse: Annotated[tuple[Hash, ...], Meta(max_length=WANTS_MAX)] | UnsetType = UNSET
    """Ids of evidence asked for."""
    wants: Annotated[tuple[Want, ...], Meta(max_length=WANTS_MAX)] | UnsetType = UNSET
    tails: Annotated[tuple[Tail, ...], Meta(max_length=WANTS_MAX)] | UnsetType = UNSET
    x: Extensions = UNSET


def is_empty(turn: Turn) -> bool:
    """Whether the turn says nothing that this version knows."""
    return structs.replace(turn, x=UNSET) == Turn()
