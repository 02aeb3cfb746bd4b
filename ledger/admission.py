"""Which feeds of strangers a session of sync may bring. SPEC.md section 11.8."""

from typing import Final, Protocol

from ledger.frontier import Frontier
from protocol.units import PublicKey


class Pace(Protocol):
    """How many feeds of strangers one peer may still bring, where there is little room."""

    def take(self) -> bool:
        """Whether it may bring one more, which it then has."""

    def give_back(self) -> None:
        """One of them did not come."""


class _Unpaced:
    """See Pace. As many as there is room for."""

    def take(self) -> bool:
        return True

    def give_back(self) -> None:
        pass


UNPACED: Final[Pace] = _Unpaced()


class Admission:
    """What one session may ask for: all but strangers, these as far as there is room.

    A stranger is counted from when it is asked for, so that sessions side by side do not take
    more than there is room for.
    """

    def __init__(
        self, frontier: Frontier, *, named: dict[PublicKey, None] | None, pace: Pace
    ) -> None:
        """`named` are the feeds that we ask about by name; these are always taken."""
        self._frontier = frontier
        self._named = named or {}
        self._pace = pace
        self._admitted: dict[PublicKey, bool] = {}
        """The strangers that we have asked for; whether the peer's pace was asked, too."""

    def may_want(self, feed: PublicKey) -> bool:
        """Whether it makes sense to remember that the peer has something of this feed."""
        return feed in self._named or self._frontier.has_room_for(feed)

    def admit(self, feed: PublicKey) -> bool:
        """Whether the feed may be asked for now."""
        frontier = self._frontier
        if feed in self._named or feed in frontier.expected or not frontier.is_stranger(feed):
            return True
        if not frontier.has_room_for(feed):
            return False
        is_paced = frontier.is_crowded()
        if is_paced and not self._pace.take():
            return False
        self._admitted[feed] = is_paced
        frontier.expected[feed] = None
        return True

    def leave(self, feed: PublicKey) -> None:
        """Nothing more of this feed is asked for, whether something came or not."""
        is_paced = self._admitted.pop(feed, None)
        if is_paced is None:
            return
        self._frontier.expected.pop(feed, None)
        if is_paced and self._frontier.is_stranger(feed):
            self._pace.give_back()
