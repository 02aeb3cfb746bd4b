"""How many bytes a node moves in an hour, over the last hour or as far as it goes back."""

from collections import deque
from collections.abc import Callable
from typing import Final

import trio

SAMPLE_S: Final = 60
SAMPLES_MAX: Final = 61
HOUR_S: Final = 3_600


class Traffic:
    """Totals once a minute, of the last hour."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque(maxlen=SAMPLES_MAX)

    def note(self, now_s: float, total: int) -> None:
        """The bytes moved since the start, as of now."""
        self._samples.append((now_s, total))

    async def run(self, bytes_moved: Callable[[], int]) -> None:
        """Note what has been moved, now and then, until cancelled."""
        while True:
            self.note(trio.current_time(), bytes_moved())
            await trio.sleep(SAMPLE_S)

    def per_hour(self, now_s: float, total: int) -> int:
        """Bytes for each hour, by what was moved since the oldest sample; 0 without one."""
        if not self._samples:
            return 0
        since_s, before = self._samples[0]
        span_s = now_s - since_s
        return round((total - before) * HOUR_S / span_s) if span_s > 0 else 0
