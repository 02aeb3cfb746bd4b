from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.limits import FLOW_LOOKS_MAX
from ledger.max_flow import Edge, Flow, graph_of
from tests.make_standing import peer

ALL = 10**30


def least_cut(edges: list[Edge], source: int, sink: int, nodes: int) -> int:
    """By trying every side that the source may be on."""
    others = [each for each in range(nodes) if each not in {source, sink}]
    sides = [
        {peer(each) for each in (source, *chosen)}
        for size in range(len(others) + 1)
        for chosen in combinations(others, size)
    ]
    return min(
        sum(weight for start, end, weight in edges if start in side and end not in side)
        for side in sides
    )


@st.composite
def edge_lists(draw: st.DrawFn) -> list[Edge]:
    node = st.integers(0, 6).map(peer)
    return draw(st.lists(st.tuples(node, node, st.integers(0, 20)), max_size=24))


@given(edge_lists())
def test_the_flow_is_the_least_cut(edges: list[Edge]) -> None:
    assert Flow(graph_of(edges)).push(peer(0), peer(1), ALL) == least_cut(edges, 0, 1, 7)


@given(edge_lists(), st.randoms(use_true_random=False), st.integers(0, 30), st.integers(0, 30))
def test_what_flows_after_a_push_does_not_depend_on_the_ways_it_took(
    edges: list[Edge], dice: object, first: int, second: int
) -> None:
    shuffled = list(edges)
    dice.shuffle(shuffled)  # type: ignore[attr-defined]
    renamed = [(peer(90 - start[-1]), peer(90 - end[-1]), weight) for start, end, weight in edges]
    told = []
    for each, name in ((edges, peer), (shuffled, peer), (renamed, lambda n: peer(90 - n))):
        flow = Flow(graph_of(each))
        told.append(
            [
                flow.push(name(0), name(end), most)
                for end, most in ((1, first), (2, second), (1, ALL), (3, ALL))
            ]
        )
    assert told[0] == told[1] == told[2]


@given(edge_lists(), st.integers(0, 30))
def test_what_is_pushed_to_one_and_then_to_another_fits_into_the_cut_of_both(
    edges: list[Edge], most: int
) -> None:
    flow = Flow(graph_of(edges))
    pushed = flow.push(peer(0), peer(1), most)
    both = pushed + flow.push(peer(0), peer(2), ALL)
    joined = [*edges, (peer(1), peer(7), most), (peer(2), peer(7), ALL)]
    assert both == least_cut(joined, 0, 7, 8)


def test_nothing_flows_to_strangers_nor_to_oneself() -> None:
    flow = Flow(graph_of([(peer(0), peer(1), 5)]))
    assert [flow.push(peer(0), peer(n), ALL) for n in (9, 0)] == [0, 0]
    assert flow.push(peer(9), peer(1), ALL) == 0


def test_nothing_flows_through_a_closed_node() -> None:
    edges = [(peer(0), peer(1), 5), (peer(1), peer(2), 5), (peer(0), peer(2), 1)]
    flow = Flow(graph_of(edges))
    flow.close(peer(1))
    assert flow.push(peer(0), peer(2), ALL) == 1


def test_the_ways_that_were_used_are_told() -> None:
    edges = [(peer(0), peer(1), 5), (peer(1), peer(2), 3), (peer(0), peer(3), 1)]
    flow = Flow(graph_of(edges))
    assert flow.push(peer(0), peer(2), ALL) == 3
    assert flow.used() == ((peer(0), peer(1)), (peer(1), peer(2)))


def test_a_search_without_end_is_given_up_and_what_was_pushed_counts() -> None:
    wide = 3_000
    edges = [(peer(0), peer(n), 1) for n in range(1, wide)]
    edges += [(peer(n), peer(wide), 1) for n in range(1, wide)]
    pushed = Flow(graph_of(edges)).push(peer(0), peer(wide), ALL)
    # Each way is one more look at all that leaves both ends.
    assert 0 < pushed < wide
    assert pushed <= FLOW_LOOKS_MAX // 1_000


@given(edge_lists(), st.lists(st.integers(0, 30), min_size=3, max_size=3), st.integers(0, 40))
def test_who_wastes_looks_never_makes_more_flow_to_whom_is_asked_last(
    edges: list[Edge], pushes: list[int], looks: int
) -> None:
    """Or what is at risk could be hidden from credit."""

    def last(looks: int) -> int:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("ledger.max_flow.FLOW_LOOKS_MAX", 4 * looks)
            patch.setattr("ledger.max_flow.FLOW_EDGE_LOOKS_MAX", looks)
            flow = Flow(graph_of(edges))
            for end, most in enumerate(pushes, 1):
                flow.push(peer(0), peer(end), most)
            return flow.push(peer(0), peer(4), ALL)

    assert last(looks) <= last(ALL)


class Counted(Flow):
    """Counts the looks of searches that find nothing."""

    in_vain = 0

    def _path(self, start: int, end: int) -> tuple[list[int], int]:
        self.looks = 0
        found = super()._path(start, end)
        self.in_vain += 0 if found[0] else self.looks
        return found

    def _grown(
        self, frontier: list[int], seen: dict[int, int], others: dict[int, int], *, against: int
    ) -> tuple[list[int], int, int]:
        grown = super()._grown(frontier, seen, others, against=against)
        self.looks += grown[2]
        return grown


@given(edge_lists(), st.integers(1, 30))
def test_searches_in_vain_look_twice_at_an_arc_at_most_however_many_there_are(
    edges: list[Edge], most: int
) -> None:
    graph = graph_of(edges)
    flow = Counted(graph)
    for end in [*range(1, 7), *range(1, 7)]:
        flow.push(peer(0), peer(end), most)
        flow.push(peer(0), peer(end), ALL)
    assert flow.in_vain <= 2 * len(graph.heads)


def test_a_hub_is_not_looked_through_for_each_of_those_that_nothing_reaches() -> None:
    edges = [(peer(0), peer(n), 1) for n in range(1, 300)]
    edges += [(peer(1), peer(n), 1) for n in range(300, 600)]
    flow = Counted(graph_of(edges))
    assert [flow.push(peer(0), peer(n), 1) for n in range(300, 600)] == [1] + [0] * 299
    assert flow.in_vain < 2_000
