"""A job on several nodes as the renter's node keeps it, until its nodes are jobs of their own."""

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, UnsetType

from p2pnode.cabinet import Cabinet
from p2pnode.jobs.jobfile import JobFile, TakingRecord
from protocol.codec import Instant, Wire, decode, encode
from protocol.limits import POOL_NODES_MAX

POOLFILE_BYTES_MAX: Final = 2_097_152

PoolState = Literal["matching", "taking", "granted", "failed"]
"""`matching`: nothing is leased. `taking`: requests are on their way, or their answers are.
`granted`: each node has its lease and is a job of its own. `failed`: see `why`."""


class PoolFile(Wire, frozen=True, kw_only=True):
    """All that must survive a crash of the renter's node."""

    v: Literal[1] = 1
    id: str
    created_ms: Instant
    give_up_ms: Instant
    members: Annotated[tuple[JobFile, ...], Meta(min_length=2, max_length=POOL_NODES_MAX)]
    """Each node's job as it was ordered; from `granted` on the jobs' own files count."""
    takings: tuple[TakingRecord, ...] = ()
    """From `taking` on: one for each member."""
    state: PoolState = "matching"
    why: str = ""
    is_cancelled: Literal["yes"] | UnsetType = UNSET


def save_pool(cabinet: Cabinet, file: PoolFile) -> None:
    """Durable on return. Raises LocalFault."""
    cabinet.put(f"pools/{file.id}", encode(file))


def load_pools(cabinet: Cabinet) -> list[PoolFile]:
    """All pools, in the order of their ids. Raises LocalFault or PeerFault."""
    raws = (cabinet.get(name) for name in cabinet.names("pools"))
    return [decode(raw, PoolFile, size_max=POOLFILE_BYTES_MAX) for raw in raws if raw is not None]
