"""Two sets compared by fingerprints: what is found, and at what cost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import ranges
from ledger.frontier import HeadItem, head_key, head_stamp
from ledger.ranges import Compare, Items, Part
from ledger.sync_messages import Turn
from protocol.codec import decode, encode
from protocol.limits import FRAME_BYTES_MAX
from protocol.units import PublicKey


def item(number: int, seq: int = 0) -> HeadItem:
    feed = number.to_bytes(32, "big")
    return HeadItem(PublicKey(feed), seq, feed[16:], 0)


def many(count: int, newer: dict[int, int]) -> Items[HeadItem]:
    items: Items[HeadItem] = Items()
    for number in range(count):
        head = item(number, newer.get(number, 0))
        items.put(head_key(head), head, head_stamp(head))
    return items


def compared(ours: Items[HeadItem], theirs: Items[HeadItem]) -> tuple[list[HeadItem], int, int]:
    """What the second side learns, in how many messages and bytes."""
    sides = [Compare(ours, head_key, is_first=True), Compare(theirs, head_key, is_first=False)]
    news: list[list[HeadItem]] = [[], []]
    sizes: list[int] = []
    turn = silent = 0
    while silent < len(sides):
        part, _ = sides[turn].give(65_536)
        silent = silent + 1 if part == Part() else 0
        raw = encode(Turn(heads=part))
        sizes.append(len(raw))
        turn = 1 - turn
        heads = decode(raw, Turn, size_max=FRAME_BYTES_MAX).heads
        assert isinstance(heads, Part)
        news[turn] += sides[turn].take(heads)
    told = sizes[: -len(sides)]
    return news[1], len(told), sum(told)


def test_ten_heads_of_ten_thousand_cost_kilobytes() -> None:
    newer = {number * 997: 5 for number in range(10)}
    none: dict[int, int] = {}
    for one, other in ((newer, none), (none, newer)):
        ours, theirs = many(10_000, one), many(10_000, other)
        news, count, size = compared(ours, theirs)
        assert sorted(head.feed for head in news) == [item(number).feed for number in newer]
        assert size <= 12_000
        assert count <= 4


@given(
    st.dictionaries(st.integers(0, 400), st.integers(1, 3)),
    st.dictionaries(st.integers(0, 400), st.integers(1, 3)),
    st.integers(0, 400),
    st.integers(0, 400),
)
def test_a_comparison_finds_all_that_differs_and_nothing_else(
    ours: dict[int, int], theirs: dict[int, int], count: int, other_count: int
) -> None:
    news, _, _ = compared(many(count, ours), many(other_count, theirs))
    wanted = {number: ours.get(number, 0) for number in range(count)}
    known = {number: theirs.get(number, 0) for number in range(other_count)}
    differing = [item(n, seq) for n, seq in wanted.items() if known.get(n) != seq]
    assert sorted(news, key=head_key) == sorted(differing, key=head_key)


def test_more_than_is_told_in_a_session_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "ITEMS_MAX", 40)
    ours, theirs = many(100, {}), many(0, {})
    news, _, _ = compared(ours, theirs)
    assert len(news) == 40
    for head in news:
        theirs.put(head_key(head), head, head_stamp(head))
    again, _, _ = compared(ours, theirs)
    assert len({*news, *again}) > 40
    everything = Part(others=tuple(item(number) for number in range(100)))
    hearer = Compare(many(0, {}), head_key, is_first=True)
    hearer.give(65_536)
    assert len(hearer.take(everything)) == 40
    assert hearer.take(Part(others=(item(100),))) == []
