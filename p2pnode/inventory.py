"""Which GPUs of this host are fit to be let, as the driver tells it again and again."""

import logging
from collections.abc import Callable
from dataclasses import replace

from p2pnode.execution.gpu import GpuProbe
from p2pnode.gpus import Gpu
from p2pnode.lookout import Lookout
from p2pnode.matching.provider import Provider, shelves_of
from protocol.errors import Unavailable

log = logging.getLogger(__name__)


class Inventory:
    """Puts on the shelves what is fit. A GPU that is lost, or full of others' data, is not."""

    def __init__(
        self,
        probe: GpuProbe,
        provider: Provider,
        lookout: Lookout,
        *,
        declare: Callable[[tuple[Gpu, ...]], None],
        is_let: Callable[[bytes], bool],
    ) -> None:
        """`declare` writes what GPUs we have; `is_let`: a job of ours may run on this unit."""
        self._probe = probe
        self._provider = provider
        self._lookout = lookout
        self._declare = declare
        self._is_let = is_let
        self._known: dict[bytes, Gpu] = {}
        self._fit: tuple[Gpu, ...] | None = None
        self.problems: tuple[str, ...] = ()
        """Why GPUs that may be there are not offered, one sentence each."""

    def device_of(self, unit: bytes) -> str:
        """How CUDA names a unit; empty for one that does not exist or was never seen."""
        return self._known[unit].device if unit in self._known else ""

    async def look(self) -> None:
        """Offer what is fit now. Raises LocalFault if what is new cannot be written down."""
        try:
            found, problems = await self._probe.read(), self._probe.problems
        except Unavailable as error:
            # A job that starts on a GPU whose driver does not answer would fail.
            found, problems = (), (str(error),)
        for problem in set(problems) - set(self.problems):
            log.warning("GPU not offered", extra={"why": problem})
        self.problems = problems
        fit = tuple(self._settled(gpu) for gpu in found)
        if fit == self._fit:
            return
        if any(gpu.unit not in self._known for gpu in fit):
            self._declare(fit)
        self._fit = fit
        self._known.update((gpu.unit, gpu) for gpu in fit)
        shelves = shelves_of(fit)
        self._provider.stock(shelves)
        self._lookout.stock(shelves)

    def _settled(self, gpu: Gpu) -> Gpu:
        """The GPU with the memory that others leave, which is not seen while a job of ours runs."""
        before = self._known.get(gpu.unit)
        if before is None or not self._is_let(gpu.unit):
            return gpu
        return replace(gpu, vram=before.vram)
