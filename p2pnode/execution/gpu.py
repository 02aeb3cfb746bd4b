"""What GPUs this host has. `nvml_probe` reads real ones, `SimulatedProbe` is for test networks."""

from typing import Protocol

import trio

from p2pnode.gpus import Gpu, GpuUse, SimulatedGpus
from protocol.signing import digest
from protocol.units import PublicKey


class GpuProbe(Protocol):
    """Finds the GPUs of this host."""

    @property
    def problems(self) -> tuple[str, ...]:
        """Why GPUs that may be there were left out of the last reading, one sentence each."""

    async def read(self) -> tuple[Gpu, ...]:
        """The GPUs that work now, in a stable order. Raises Unavailable if none can be asked."""

    async def use(self) -> tuple[GpuUse, ...]:
        """What they do now, as far as they tell. Raises Unavailable if none can be asked."""


class SimulatedProbe:
    """See GpuProbe. Only in networks whose genesis says test."""

    def __init__(self, feed: PublicKey, gpus: tuple[SimulatedGpus, ...]) -> None:
        self._feed = feed
        self._gpus = gpus
        self.problems: tuple[str, ...] = ()

    async def read(self) -> tuple[Gpu, ...]:
        alike = [kind for kind in self._gpus for _ in range(kind.count)]
        return tuple(
            Gpu(
                unit=digest("simulated-unit", self._feed + index.to_bytes(4, "big"))[:16],
                model=kind.model,
                vram=kind.vram,
                source="simulated",
                driver=kind.driver,
                compute=kind.compute,
            )
            for index, kind in enumerate(alike)
        )

    async def use(self) -> tuple[GpuUse, ...]:
        """See GpuProbe. What does not exist is used by nobody."""
        await trio.lowlevel.checkpoint()
        return ()
