"""Who is in a testnet: names, roles, GPUs and prices, before anything runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from protocol.errors import LocalFault

NODES_MAX: Final = 24
"""Real processes on two cores: beyond this heartbeats come late and nothing is measured."""

OWNER_NAMES: Final = (
    "alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan", "judy", "kim",
    "leo", "mallory", "nina", "oscar", "peggy", "quinn", "rupert", "sybil", "trent", "uma",
    "victor", "walter", "xena",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuKind:
    """A GPU that owners of a testnet pretend to have, and what it is worth."""

    model: str
    vram: str
    ask_micro: int
    """Per GPU-hour, of the first owner of this kind; each further one asks 2 % more."""


GPU_KINDS: Final = (
    GpuKind(model="RTX 4090", vram="24564MiB", ask_micro=300_000),
    GpuKind(model="H100 80GB", vram="81559MiB", ask_micro=1_900_000),
    GpuKind(model="L40S", vram="46068MiB", ask_micro=700_000),
    GpuKind(model="RTX 3090", vram="24576MiB", ask_micro=180_000),
)
REGIONS: Final = ("DE", "NL", "US", "FR", "JP", "CA")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """One node that will run."""

    index: int
    name: str
    home: Path
    roles: tuple[str, ...]
    gpu: GpuKind | None
    ask_micro: int
    region: str
    gossip: str = "auto"
    lost_after: str = "15s"
    period: str = "60s"
    engine: str = "process"
    docker_socket: str = "/var/run/docker.sock"
    primary: str = ""
    """The template of the node's own primary, if it has one."""
    seen_s: float | None = None
    """How long gossip is remembered, in experiments that cannot wait for so long."""

    def config_text(self, *, bootstrap: tuple[str, ...], heartbeat: str) -> str:
        """The node's config.toml."""
        lines = [
            "schema = 1",
            f'name = "{self.name}"',
            f"roles = [{_quoted(self.roles)}]",
            "[network]",
            'listen = ["/ip4/127.0.0.1/tcp/0"]',
            f"bootstrap = [{_quoted(bootstrap)}]",
            f'region = "{self.region}"',
            f'heartbeat = "{heartbeat}"',
            f'gossip = "{self.gossip}"',
            "[workloads]",
            f'engine = "{self.engine}"',
            f'docker_socket = "{self.docker_socket}"',
            "[renting]",
            f'lost_after = "{self.lost_after}"',
            "[primary]",
            f'template = "{self.primary}"',
        ]
        if self.gpu is not None:
            lines += [
                "[pricing]",
                f'period = "{self.period}"',
                f'ask = "{self.ask_micro // 10**6}.{self.ask_micro % 10**6:06} TEST/gpu-h"',
                "[[gpu.simulated]]",
                f'model = "{self.gpu.model}"',
                f'vram = "{self.gpu.vram}"',
                "count = 1",
            ]
        return "\n".join(lines) + "\n"


def plan_network(
    state: Path, *, nodes: int, renters: int, kinds: tuple[GpuKind, ...] = GPU_KINDS
) -> tuple[NodePlan, ...]:
    """`nodes` nodes, the last `renters` of them renters. Raises LocalFault for odd counts."""
    if not 1 <= nodes <= NODES_MAX:
        raise LocalFault(f"{nodes} nodes cannot run here as processes", f"--nodes 1 to {NODES_MAX}")
    owners = nodes - renters
    if renters < 0 or owners < 1:
        raise LocalFault(f"{renters} renters of {nodes} nodes leave no owner", "--renters 1")
    return tuple(
        _owner(state, index, kinds) if index < owners else _renter(state, index, index - owners + 1)
        for index in range(nodes)
    )


def _owner(state: Path, index: int, kinds: tuple[GpuKind, ...]) -> NodePlan:
    kind = kinds[index % len(kinds)]
    step = index // len(kinds)
    return NodePlan(
        index=index,
        name=OWNER_NAMES[index],
        home=state / f"n{index}",
        roles=("owner", "renter"),
        gpu=kind,
        ask_micro=kind.ask_micro + kind.ask_micro * 2 * step // 100,
        region=REGIONS[index % len(REGIONS)],
    )


def _renter(state: Path, index: int, number: int) -> NodePlan:
    return NodePlan(
        index=index,
        name=f"renter{number}",
        home=state / f"n{index}",
        roles=("renter",),
        gpu=None,
        ask_micro=0,
        region="DE",
    )


def _quoted(texts: tuple[str, ...]) -> str:
    return ", ".join(f'"{text}"' for text in texts)
