"""Of two adverts of one group all peers keep the same one."""

from hypothesis import given
from hypothesis import strategies as st

from protocol.offers import OfferHead, group_key, root_of, supersedes
from tests.make import FEED, GROUP, STRANGER, UNITS

small = st.integers(0, 2)
heads: st.SearchStrategy[OfferHead] = st.tuples(
    st.just(GROUP), small, small, small.map(lambda byte: bytes([byte]) * 16)
)


@given(one=heads, two=heads, three=heads)
def test_supersedes_is_a_strict_total_order(
    one: OfferHead, two: OfferHead, three: OfferHead
) -> None:
    assert not supersedes(one, one)
    assert (one == two) + supersedes(one, two) + supersedes(two, one) == 1
    if supersedes(one, two) and supersedes(two, three):
        assert supersedes(one, three)


@given(arrived=st.lists(heads, min_size=1, max_size=6).flatmap(
    lambda found: st.tuples(st.just(found), st.permutations(found))
))  # fmt: skip
def test_the_newest_does_not_depend_on_the_order_of_arrival(
    arrived: tuple[list[OfferHead], list[OfferHead]],
) -> None:
    def kept(order: list[OfferHead]) -> OfferHead:
        newest = order[0]
        for head in order[1:]:
            newest = head if supersedes(head, newest) else newest
        return newest

    assert kept(arrived[0]) == kept(arrived[1])


def test_a_restarted_owner_supersedes_whatever_it_said_before() -> None:
    before: OfferHead = (GROUP, 3, 2**63 - 1, b"\xff" * 16)
    assert supersedes((GROUP, 4, 0, bytes(16)), before)


def test_a_group_key_names_one_group_of_one_feed() -> None:
    keys = {group_key(s.public, g) for s in (FEED, STRANGER) for g in (GROUP, UNITS[0])}
    assert len(keys) == 4
    assert all(len(key) == 16 for key in keys)


@given(one=st.lists(heads, max_size=3), two=st.lists(heads, max_size=3))
def test_roots_are_equal_for_equal_heads_only(one: list[OfferHead], two: list[OfferHead]) -> None:
    assert (root_of(one) == root_of(two)) == (one == two)
