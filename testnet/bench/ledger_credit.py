"""What it costs to see how much credit can flow through a network of trades."""

import random
from pathlib import Path
from typing import Final

from ledger.max_flow import Edge, Flow, graph_of
from protocol.units import PublicKey
from testnet.bench.report import at_most
from testnet.bench.timing import Measured, cpu_s, in_turn

NODES: Final = 10_000
EDGES: Final = 100_000
WEIGHT_MAX: Final = 1_000
FLOW_MS_MAX: Final = 50.0
FLOWS: Final = 10
"""Of one round: each between another two nodes."""
SEED: Final = 1


def measure_max_flow(_folder: Path, rounds: int) -> Measured:
    """All that can flow between two of 10,000 nodes with 100,000 random edges, not capped."""
    dice = random.Random(SEED)  # noqa: S311  dice are only dice
    edges: list[Edge] = [
        (_name(dice), _name(dice), dice.randint(1, WEIGHT_MAX)) for _ in range(EDGES)
    ]
    graph = graph_of(edges)
    flows: list[int] = []

    def flow() -> None:
        pairs = [(_name(dice), _name(dice)) for _ in range(FLOWS)]
        flows.extend(Flow(graph).push(*pair, WEIGHT_MAX * EDGES) for pair in pairs)

    us = in_turn(
        {
            "flow": lambda: cpu_s(flow, FLOWS),
            "graph": lambda: cpu_s(lambda: graph_of(edges), 1),
        },
        rounds,
    )
    assert any(flows)
    flow_ms = us.middle("flow") / 1_000
    return Measured(
        figures={"max_flow_cpu_ms": flow_ms, "graph_cpu_ms": us.middle("graph") / 1_000},
        bars=(at_most("max-flow, 1e4 nodes and 1e5 edges, CPU ms", flow_ms, FLOW_MS_MAX),),
    )


def _name(dice: random.Random) -> PublicKey:
    return PublicKey(dice.randrange(NODES).to_bytes(32, "big"))
