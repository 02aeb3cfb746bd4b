"""When news of an owner reached a node, out of what was posted and what the books remember."""

from dataclasses import dataclass
from typing import Any

Arrivals = list[dict[str, Any]]
"""What `/v1/offers/arrivals` tells, oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What an owner was told to do: to ask another price, or to offer nothing for a while.

    No two prices are the same, and an owner that has paused goes on before its next change.
    """

    owner: int
    ask_micro: int | None
    """None: to withdraw its offer."""
    posted_ms: int

    @property
    def is_withdrawal(self) -> bool:
        """Whether the offer was to leave every book."""
        return self.ask_micro is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Travel:
    """One change and one node other than its owner's."""

    node: int
    change: Change
    took_ms: float | None
    """From the posting to the book; None if neither it nor a later one of the owner came."""
    is_superseded: bool
    """Whether a later one of the owner came in its place."""


def travels(
    changes: list[Change], books: dict[int, Arrivals], offer_of: dict[int, str]
) -> list[Travel]:
    """Every pair of a change and a node that is not its owner.

    `changes` in the order of posting; `books` has the arrivals of each node, `offer_of` the key of
    each owner's offer. An owner's own book tells which of its adverts shows which change.
    """
    found = []
    for owner, key in offer_of.items():
        own = [change for change in changes if change.owner == owner]
        shown = _shown(own, _of_offer(books[owner], key))
        for node, arrivals in books.items():
            if node != owner:
                there = _of_offer(arrivals, key)
                found += [
                    _travel(change, place, shown=shown, there=there, node=node)
                    for place, change in enumerate(own)
                ]
    return found


def _of_offer(arrivals: Arrivals, key: str) -> Arrivals:
    return [arrival for arrival in arrivals if arrival["key"] == key]


def _shown(own: list[Change], adverts: Arrivals) -> dict[int, int]:
    """Number of each of the owner's adverts -> place of the newest of its changes that it shows."""
    prices = {change.ask_micro: place for place, change in enumerate(own)}
    shown = {}
    for advert in adverts:
        places = [prices.get(advert["ask_micro"], -1)]
        if advert["state"] == "withdrawn":
            places += [
                place
                for place, change in enumerate(own)
                if change.is_withdrawal and change.posted_ms <= advert["taken_ms"]
            ]
        shown[advert["seq"]] = max(places)
    return shown


def _travel(
    change: Change, place: int, *, shown: dict[int, int], there: Arrivals, node: int
) -> Travel:
    told = min((number for number, at in shown.items() if at >= place), default=None)
    came = (
        []
        if told is None
        else [(each["taken_ms"], each["seq"]) for each in there if each["seq"] >= told]
    )
    if not came:
        return Travel(node=node, change=change, took_ms=None, is_superseded=False)
    taken_ms, number = min(came)
    return Travel(
        node=node,
        change=change,
        took_ms=taken_ms - change.posted_ms,
        is_superseded=shown.get(number) != place,
    )
