"""What the parts of a node call a GPU, and the host it is in. Plain data."""

from dataclasses import dataclass
from typing import Literal

from protocol.units import Mebibytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One leasable GPU."""

    unit: bytes
    """16 bytes that name it in adverts, bids and leases for as long as the owner has it."""
    model: str
    vram: Mebibytes
    """Free for a job: less than the card has where others use much of it."""
    source: Literal["nvml", "simulated"]
    beside: Mebibytes | None = None
    """The same if what may be jobs of ours were gone; None where the driver does not tell."""
    driver: str = ""
    """Version of the driver; empty where none is known."""
    compute: tuple[int, int] | None = None
    """CUDA compute capability."""
    device: str = ""
    """How CUDA names it; empty for a simulated one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """What a GPU does now."""

    unit: bytes
    load_ppm: int
    """Of all that runs on it."""
    processes: tuple[tuple[int, int], ...] | None
    """Each process and its share of the load; None where the driver does not tell."""
    memory: tuple[tuple[int, Mebibytes], ...] | None = None
    """Each process and what it holds of the GPU's memory, likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedGpus:
    """Some alike GPUs that do not exist."""

    model: str
    vram: Mebibytes
    count: int
    driver: str = ""
    compute: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """What comes with the GPUs."""

    cpus: int
    memory_mib: int
    disk_mib: int
    """Free for jobs when the node started."""
