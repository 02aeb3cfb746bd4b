"""How much can flow from one node of a graph to another: exact, in integers. Pure.

Shortest augmenting paths, each searched from both ends, so that of a large graph only the
neighbourhoods of the two are looked at. What is pushed stays, and lessens what can still flow.

Anybody can add nodes. Those that nothing reaches cost each arc of theirs two looks, once for all
pushes; what hangs on an edge of the source can use up the looks of that edge.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from ledger.limits import FLOW_EDGE_LOOKS_MAX, FLOW_LOOKS_MAX
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
        self._edge_looks: dict[int, int] = {}
        """Arc with which ways began -> the looks that these took."""
        self._source = -1
        self._lost = bytearray()
        """Node -> whether the source was found to reach it no more.

        It never does again: a push turns arcs round only between nodes that it reaches.
        """

    def push(self, source: PublicKey, sink: PublicKey, most: int) -> int:
        """Pushes as much as can flow on, at most `most`, and returns how much that was.

        Nothing to a node that is not in the graph, nor from a node to itself. An arc whose ways
        took more than FLOW_EDGE_LOOKS_MAX looks carries no more, and once all took FLOW_LOOKS_MAX
        nothing does: what was pushed until then counts. So later pushes get less, never more.
        """
        start, end = self._graph.index.get(source), self._graph.index.get(sink)
        if start is None or end is None or start == end:
            return 0
        if start != self._source:
            self._source, self._lost = start, bytearray(len(self._graph.names))
        pushed = 0
        while pushed < most and self._looks > 0 and not self._lost[end]:
            path, looks = self._path(start, end)
            if not path:
                break
            least = min(most - pushed, *(self._room[arc] for arc in path))
            for arc in path:
                self._room[arc] -= least
                self._room[arc ^ 1] += least
            pushed += least
            self._charge(path[0], looks)
        return pushed

    def _charge(self, arc: int, looks: int) -> None:
        self._looks -= looks
        self._edge_looks[arc] = self._edge_looks.get(arc, 0) + looks
        if self._edge_looks[arc] > FLOW_EDGE_LOOKS_MAX:
            self._room[arc] = 0

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

    def _path(self, start: int, end: int) -> tuple[list[int], int]:
        """The arcs of a shortest way with room on it, and how many looks it took.

        No arcs if there is none. Such a search costs no looks: what it found lost is not looked at
        again, and has at least half of the arcs that were looked at.
        """
        seen: tuple[dict[int, int], dict[int, int]] = {start: -1}, {end: -1}
        fronts = [[start], [end]]
        taken, due = [0, 0], [self._degree(front) for front in fronts]
        while fronts[0] and fronts[1]:
            # The end that looks at less is moved on, which keeps both small.
            side = int(taken[1] + due[1] < taken[0] + due[0])
            fronts[side], met, looks = self._grown(
                fronts[side], seen[side], seen[1 - side], against=side
            )
            taken[side] += looks
            if met >= 0:
                return self._joined(*seen, met), sum(taken)
            due[side] = self._degree(fronts[side])
        for node in seen[1]:
            self._lost[node] = 1
        return [], 0

    def _degree(self, nodes: list[int]) -> int:
        arcs = self._graph.arcs
        return sum(len(arcs[node]) for node in nodes)

    def _grown(
        self, frontier: list[int], seen: dict[int, int], others: dict[int, int], *, against: int
    ) -> tuple[list[int], int, int]:
        """The nodes one step on, the first that the other side has reached (-1: none), and looks.

        `against` is 1 to go against the arcs, whose twins differ from them in the last bit, else 0.
        """
        arcs, heads, room, lost = self._graph.arcs, self._graph.heads, self._room, self._lost
        grown: list[int] = []
        looks = 0
        for node in frontier:
            looks += len(arcs[node])
            for arc in arcs[node]:
                other = heads[arc]
                if room[arc ^ against] and other not in seen and not lost[other]:
                    seen[other] = arc ^ against
                    if other in others:
                        return grown, other, looks
                    grown.append(other)
        return grown, -1, looks

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
