"""When a change of price reached a node, out of what was posted and what the books remember."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A price that an owner was told to ask; no two changes have the same one."""

    owner: int
    ask_micro: int
    posted_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Travel:
    """One change and one node other than its owner's."""

    node: int
    took_ms: float | None
    """From the posting to the book; None if neither it nor a later one of the owner came."""
    is_superseded: bool
    """Whether a later one of the owner came in its place."""


def travels(changes: list[Change], books: dict[int, list[dict[str, Any]]]) -> list[Travel]:
    """Every pair of a change and a node that is not its owner.

    `changes` in the order of posting; `books` has the arrivals of each node.
    """
    place_of = {change.ask_micro: place for place, change in enumerate(changes)}
    found = []
    for node, arrivals in books.items():
        seen = [
            (place_of[arrival["ask_micro"]], arrival["taken_ms"])
            for arrival in arrivals
            if arrival["ask_micro"] in place_of
        ]
        for place, change in enumerate(changes):
            if change.owner != node:
                found.append(_travel(node, place, changes, seen))
    return found


def _travel(node: int, place: int, changes: list[Change], seen: list[tuple[int, int]]) -> Travel:
    change = changes[place]
    as_new = [
        (taken_ms, other)
        for other, taken_ms in seen
        if other >= place and changes[other].owner == change.owner
    ]
    if not as_new:
        return Travel(node=node, took_ms=None, is_superseded=False)
    taken_ms, other = min(as_new)
    return Travel(node=node, took_ms=taken_ms - change.posted_ms, is_superseded=other != place)
