from hypothesis import given
from hypothesis import strategies as st

from ledger.intervals import Interval, Open
from ledger.units_chain import (
    Turn,
    apply,
    cut,
    follows,
    is_disjoint,
    is_sound_alone,
    next_place,
    opened,
    overlaps,
    turn_in,
    turns_of,
)
from protocol.units import Digest, Millis
from tests.make_ledger import HOUR, UNIT, UNIT2, Feed, at, grant, release, statement, turn_of
from tests.make_ledger import OWNER as BY


def interval(start: int, end: int, ctr: int = 0) -> Interval:
    return Interval(Millis(start), Millis(end), ctr)


OPEN = st.lists(
    st.builds(
        lambda start, length, ctr: interval(start, start + length, ctr),
        st.integers(1, 30),
        st.integers(1, 10),
        st.integers(0, 9),
    ),
    max_size=6,
).map(lambda found: tuple(sorted(found)))


def minutes(intervals: Open) -> list[int]:
    return [ms for each in intervals for ms in range(each.start_ms, each.end_ms)]


@given(OPEN)
def test_disjoint_is_no_instant_twice(intervals: Open) -> None:
    taken = minutes(intervals)
    assert is_disjoint(intervals) == (len(taken) == len(set(taken)))


@given(OPEN, st.integers(1, 40), st.integers(1, 10))
def test_overlap_is_an_instant_in_common(intervals: Open, start: int, length: int) -> None:
    wanted = range(start, start + length)
    assert overlaps(intervals, Millis(start), Millis(start + length)) == any(
        ms in wanted for ms in minutes(intervals)
    )


@given(OPEN, st.integers(1, 40), st.integers(1, 10), st.integers(0, 40))
def test_a_grant_adds_what_is_not_over(intervals: Open, start: int, length: int, ts: int) -> None:
    new = interval(start, start + length, 10)
    after = opened(intervals, new, Millis(ts))
    assert list(after) == sorted(each for each in (*intervals, new) if each.end_ms > ts)


@given(OPEN, st.integers(0, 9), st.integers(1, 40), st.integers(0, 40))
def test_a_release_only_shortens(intervals: Open, lctr: int, at_ms: int, ts: int) -> None:
    after = cut(intervals, lctr, Millis(at_ms), Millis(ts))
    assert list(after) == sorted(after)
    assert all(each.end_ms > max(ts, each.start_ms) for each in after)
    assert [each for each in after if each.ctr != lctr] == [
        each for each in intervals if each.ctr != lctr and each.end_ms > ts
    ]
    assert all(each.end_ms <= at_ms for each in after if each.ctr == lctr)
    assert set(minutes(after)) <= set(minutes(intervals))


def test_touching_intervals_are_disjoint() -> None:
    assert is_disjoint((interval(1, 5), interval(5, 9)))
    assert not overlaps((interval(1, 5),), Millis(5), Millis(9))
    assert not is_disjoint((interval(1, 6), interval(5, 9)))


def test_turns_follow_each_other() -> None:
    assert next_place(None).ctr == 0
    assert next_place(None).gprev == bytes(32)
    place = next_place(Turn(ctr=3, seq=9, id=Digest(b"i" * 32), open=()))
    assert (place.ctr, place.gseq, place.gprev) == (4, 9, b"i" * 32)


def test_a_grant_and_its_release_are_applied() -> None:
    feed = Feed(BY)
    feed.open()
    body = grant()
    granted = feed.add(body)
    assert (
        apply((), body, UNIT, at(0))
        == body.units[0].open
        == (Interval(at(1_000), at(1_000 + HOUR), 0),)
    )
    end = release(turn_of(granted, body), granted, at_ms=2_000)
    assert end.units[0].open == (Interval(at(1_000), at(2_000), 0),)
    assert follows(body.units[0].open, end, UNIT, at(0))
    assert not follows((), end, UNIT, at(0))
    assert not follows((), end, UNIT2, at(0))
    assert is_sound_alone(end, UNIT, at(0))
    assert turns_of(end) == end.units
    assert turns_of(statement()) == ()
    assert turns_of(None) == ()
    assert turn_in(end, UNIT2) is None


def test_a_first_entry_that_lists_more_than_its_own_interval_is_unsound() -> None:
    more = grant(opens=((500, 600, 0), (1_000, 1_000 + HOUR, 0)))
    assert not is_sound_alone(more, UNIT, at(0))
