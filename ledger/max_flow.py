"""How much can flow from one node of a graph to another: exact, in integers. Pure.

Shortest augmenting paths, each searched from both ends, so that of a large graph only the
neighbourhoods of the two are looked at. What is pushed stays, and lessens what can still flow.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from ledger.limits import FLOW_LOOKS_MAX
from protocol.units import PublicKey

Edge = tuple[PublicKey, PublicKey, int]
"""From, to, and how much may flow, at least 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Nodes by name, and arcs in pairs: arc `n ^ 1` is arc `n` turned round."""

    names: tuple[PublicKey, ...]
    index: dict[PublicKey, int]
    arcs: tuple[tuple[int, ...], ...]
    """Node -> the arcs that leave it."""
    heads: tuple[int, ...]
    """Arc -> the node that it leads to."""
    room: tuple[int, ...]
    """Arc -> how much may flow."""


def graph_of(edges: Iterable[Edge]) -> Graph:
    """The graph of these edges, in whatever order; of edges with the same ends the sum counts."""
    room: dict[tuple[PublicKey, PublicKey], list[int]] = {}
    for start, end, weight in edges:
        is_turned = end < start
        pair = (end, start) if is_turned else (start, end)
        room.setdefault(pair, [0, 0])[is_turned] += weight
    pairs = sorted(pair for pair, both in room.items() if any(both) and pair[0] != pair[1])
    names = sorted(dict.fromkeys(chain.from_iterable(pairs)))
    index = {name: n for n, name in enumerate(names)}
    arcs: list[list[int]] = [[] for _ in index]
    heads: list[int] = []
    for start, end in pairs:
        arcs[index[start]].append(len(heads))
        arcs[index[end]].append(len(heads) + 1)
        heads += (index[end], index[start])
    return Graph(
        names=tuple(names),
        index=index,
        arcs=tuple(map(tuple, arcs)),
        heads=tuple(heads),
        room=tuple(weight for pair in pairs for weight in room[pair]),
    )


class Flow:
    """What has been pushed through one graph. One owner.

    How much more can flow depends on what was pushed from where to where, and never on the ways
    that it took: so the order of nodes and edges changes nothing.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._room = list(graph.room)
        self._looks = FLOW_LOOKS_MAX

    def push(self, source: PublicKey, sink: PublicKey, most: int) -> int:
        """Pushes as much as can flow on, at most `most`, and returns how much that was.

        Nothing to a node that is not in the graph, nor from a node to itself. A search that takes
        FLOW_LOOKS_MAX looks at arcs in all is given up: what was pushed until then counts.
        """
        start, end = self._graph.index.get(source), self._graph.index.get(sink)
        if start is None or end is None or start == end:
            return 0
        pushed = 0
        while pushed < most and (path := self._path(start, end)):
            least = min(most - pushed, *(self._room[arc] for arc in path))
            for arc in path:
                self._room[arc] -= least
                self._room[arc ^ 1] += least
            pushed += least
        return pushed

    def close(self, name: PublicKey) -> None:
        """Nothing flows into this node any more."""
        node = self._graph.index.get(name)
        for arc in () if node is None else self._graph.arcs[node]:
            self._room[arc ^ 1] = 0

    def used(self) -> tuple[tuple[PublicKey, PublicKey], ...]:
        """The edges through which more flows one way than the other: one choice of ways."""
        names, heads, before = self._graph.names, self._graph.heads, self._graph.room
        return tuple(
            (names[heads[arc ^ 1]], names[heads[arc]])
            for arc in range(len(heads))
            if self._room[arc] < before[arc] and self._room[arc ^ 1] > before[arc ^ 1]
        )

    def _path(self, start: int, end: int) -> list[int]:
        """The arcs of a shortest way with room on it; empty if there is none."""
        before: dict[int, int] = {start: -1}
        after: dict[int, int] = {end: -1}
        ahead, behind = [start], [end]
        while ahead and behind and self._looks > 0:
            # The smaller frontier is moved on, which keeps both small.
            if len(ahead) <= len(behind):
                ahead, met = self._grown(ahead, before, after, against=0)
            else:
                behind, met = self._grown(behind, after, before, against=1)
            if met >= 0:
                return self._joined(before, after, met)
        return []

    def _grown(
        self, frontier: list[int], seen: dict[int, int], others: dict[int, int], *, against: int
    ) -> tuple[list[int], int]:
        """The nodes one step on, and the first that the other side has reached; -1 if none.

        `against` is 1 to go against the arcs, whose twins differ from them in the last bit, else 0.
        """
        arcs, heads, room = self._graph.arcs, self._graph.heads, self._room
        grown: list[int] = []
        for node in frontier:
            self._looks -= len(arcs[node])
            for arc in arcs[node]:
                other = heads[arc]
                if room[arc ^ against] and other not in seen:
                    seen[other] = arc ^ against
                    if other in others:
                        return grown, other
                    grown.append(other)
        return grown, -1

    def _joined(self, before: dict[int, int], after: dict[int, int], met: int) -> list[int]:
        heads = self._graph.heads
        path: list[int] = []
        node = met
        while (arc := before[node]) >= 0:
            path.append(arc)
            node = heads[arc ^ 1]
        path.reverse()
        node = met
        while (arc := after[node]) >= 0:
            path.append(arc)
            node = heads[arc]
        return path
