"""What the node tells about jobs on several nodes, as JSON. See `documents`."""

from msgspec import Struct


class PoolDocument(Struct, frozen=True, kw_only=True):
    """One job on several nodes: all of its leases came together."""

    schema: str = "p2pnode.pool/1"
    id: str
    state: str
    """`matching`, `taking`, `running`, `degraded` (a node was lost and is looked for again),
    `done`, `failed`."""
    why: str
    created_ms: int
    jobs: tuple[str, ...]
    """By rank; `p2pnode job show` knows them once there are leases."""
    has_leases: bool
    money: str
    cost_micro: int
    """Co-signed so far, of all nodes."""


class PoolListDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode pool list`."""

    schema: str = "p2pnode.pool.list/1"
    items: tuple[PoolDocument, ...]
    left_out: int
