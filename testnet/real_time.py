"""The time that real processes live in, for whoever starts, watches or kills some."""

import time


def now_s() -> float:
    """Seconds since some moment in the past."""
    return time.monotonic()  # noqa: TID251 - real processes live in real time


def sleep(wait_s: float) -> None:
    """Let them go on for so long."""
    time.sleep(wait_s)  # noqa: TID251 - real processes live in real time
