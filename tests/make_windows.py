"""Windows and instants for tests of owners' hours."""

from datetime import datetime
from typing import Any

from p2pnode.matching.timetable import Window
from protocol.units import Millis

BERLIN = "Europe/Berlin"


def at(text: str) -> Millis:
    """The instant that ISO 8601 says."""
    return Millis(round(datetime.fromisoformat(text).timestamp()) * 1_000)


def window(hours: str, **changes: Any) -> Window:
    return Window(**{"name": "w1", "hours": hours, "zone": BERLIN, **changes})
