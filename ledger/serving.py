"""What one replica hands over when it is asked in a session of sync. SPEC.md section "Sync"."""

from collections.abc import Iterator
from typing import Final

from ledger.frontier import Frontier, HeadItem, id_at, tail
from ledger.ledger import Ledger
from ledger.limits import PUSH_MAX, RUN_MAX
from ledger.pulls import Ask
from ledger.sync_messages import Run, Want
from protocol.units import Digest, PublicKey

FRAMING: Final = 16
"""Of one byte string in a list, or of one run beside its feed and entries."""


def prove(
    frontier: Frontier, asked: tuple[Digest, ...], *, room: int
) -> tuple[tuple[bytes, ...], int]:
    """The evidence with these ids, as far as it is here and fits; and the room that is left."""
    proofs: list[bytes] = []
    for proof in asked:
        raw = frontier.proof(proof)
        if raw is None:
            continue  # One in fewer bytes has taken its place.
        if len(raw) + FRAMING > room:
            break
        proofs.append(raw)
        room -= len(raw) + FRAMING
    return tuple(proofs), room


def serve(
    ledger: Ledger, asks: tuple[Ask, ...], *, only: dict[PublicKey, None] | None, room: int
) -> tuple[tuple[Run, ...], int]:
    """The runs that answer these, as many as fit, and the room that is left.

    What is asked of another feed gets an empty one.
    """
    runs: list[Run] = []
    for ask in asks:
        found = _entries(ledger, ask) if only is None or ask.feed in only else iter(())
        run, room = _fill(found, room - len(ask.feed) - FRAMING)
        if run is None:
            break
        runs.append(Run(ask.feed, run))
    return tuple(runs), room


def follow_ups(ledger: Ledger, pairs: list[tuple[HeadItem, HeadItem]]) -> tuple[Want, ...]:
    """What peers with these heads, where we have those, would ask next, if it is but little.

    Who is far behind asks for everything: it may hold what follows its head, not judged yet.
    """
    return tuple(
        Want(theirs.feed, theirs.seq + 1, ours.seq + 1)
        for theirs, ours in pairs
        if not theirs.forked and not ours.forked and _is_behind(ledger, theirs, ours)
    )


def _is_behind(ledger: Ledger, theirs: HeadItem, ours: HeadItem) -> bool:
    """Whether what they have is what we have but for the last few."""
    if not 0 < ours.seq - theirs.seq <= PUSH_MAX:
        return False
    known = id_at(ledger, theirs.feed, theirs.seq)
    return known is not None and known[:16] == theirs.id16


def _entries(ledger: Ledger, ask: Ask) -> Iterator[bytes]:
    if isinstance(ask, Want):
        return ledger.entries(ask.feed, ask.first, min(ask.stop, ask.first + RUN_MAX))
    return (entry.raw for entry in tail(ledger, ask.feed, ask.first)[ask.skip :])


def _fill(found: Iterator[bytes], room: int) -> tuple[tuple[bytes, ...] | None, int]:
    """As many entries as fit, and the room that is left; None if not even the answer fits."""
    taken: list[bytes] = []
    for raw in found:
        if len(raw) + FRAMING > room:
            return tuple(taken) or None, room
        taken.append(raw)
        room -= len(raw) + FRAMING
    return (tuple(taken) if room >= 0 else None), room
