"""Rules of the host's clock."""

from p2pnode.clock import SystemClock
from protocol.units import Millis


def test_the_clock_never_runs_backwards() -> None:
    told = iter([5_000_000, 9_999_999, 3_000_000, 10_000_000])
    clock = SystemClock(lambda: next(told))
    assert [clock.now() for _ in range(4)] == [5, 9, 9, 10]


def test_the_clock_of_the_host_tells_milliseconds_since_1970() -> None:
    assert 1_700_000_000_000 < SystemClock().now() < 4_000_000_000_000


def test_the_clock_never_tells_less_than_was_told_in_an_earlier_life() -> None:
    clock = SystemClock(lambda: 5_000_000)
    clock.catch_up(Millis(7))
    assert clock.now() == 7
    clock.catch_up(Millis(3))
    assert clock.now() == 7
