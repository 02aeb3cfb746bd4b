"""What an owner can learn from the requests that it saw. Pure."""

from collections import deque
from collections.abc import Iterable
from typing import Final, Literal

from msgspec import UNSET

from p2pnode.matching.journal import Note
from protocol.units import Micros, Millis, MillisSpan

Cause = Literal["price", "need", "busy", "closed", "policy", "reach", "expired"]
"""Why a request gave no work. `reach`: it came too late, or with another clock's time. `busy`: our
GPUs were leased, or others asked at the same time."""

_OF_REASON: Final[dict[str, Cause]] = {
    "SHAPE": "need",
    "TAKEN": "busy",
    "BUSY": "busy",
    "CLOSED": "closed",
    "POLICY": "policy",
    "PRICE_MOVED": "price",
    "STALE": "reach",
}
STALLED_MS: Final = MillisSpan(300_000)
"""Requests came in this time, and none was evaluated: something is wrong with us."""
BIDDER_STALLED: Final = "BIDDER_STALLED"
"""What an owner is alerted by then."""
GRACE_MS: Final = MillisSpan(10_000)
"""How long an answer may take before it is missed."""
CAME_MAX: Final = 1_024


def cause_of(note: Note) -> Cause | None:
    """Why it gave no work; None if it did, or may yet."""
    if note.result == "lost":
        return "price"
    if note.result == "expired":
        return "expired"
    if note.result == "refused" and note.reason is not UNSET:
        return _OF_REASON[note.reason]
    return None


def floor_of(notes: Iterable[Note], money: str) -> tuple[Micros, int] | None:
    """The ask that would have earned most from bids that were lost, and how many it would have won.

    It goes below each rival that it wins from, by that rival's ask in our book at the time; what
    rivals would then have asked is not known. None where no rival is.
    """
    rivals = sorted(
        note.rival_micro
        for note in notes
        if note.result == "lost"
        and note.money == money
        and note.ask_micro is not UNSET
        and note.rival_micro is not UNSET
        and 0 < note.rival_micro <= note.ask_micro
    )
    if not rivals:
        return None
    earned = [((rival - 1) * (len(rivals) - place), rival) for place, rival in enumerate(rivals)]
    best = max(earned)[1]
    return Micros(best - 1), sum(rival >= best for rival in rivals)


class Pulse:
    """Whether requests for quote are evaluated when they come."""

    def __init__(self) -> None:
        self._came: deque[Millis] = deque(maxlen=CAME_MAX)
        self._evaluated = Millis(0)

    def came(self, now: Millis) -> None:
        """A request has reached us."""
        self._came.append(now)

    def evaluated(self, now: Millis) -> None:
        """One was answered with a bid or a reason."""
        self._evaluated = now

    def stalled(self, now: Millis) -> str | None:
        """Why an owner should look at its node; None if it answers what it is asked."""
        lately = [at for at in self._came if self._evaluated < at and now - at <= STALLED_MS]
        if not lately or now - lately[0] < GRACE_MS or now - self._evaluated <= STALLED_MS:
            return None
        count = len(lately)
        return f"{count} requests for quote came in the last 5 minutes, and none was evaluated"
