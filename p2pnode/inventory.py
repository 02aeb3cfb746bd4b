"""Which GPUs of this host are fit to be let, as the driver tells it again and again."""

import logging
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import trio

from p2pnode.execution.gpu import GpuProbe
from p2pnode.execution.nvml_probe import FULL, NO_DRIVER
from p2pnode.execution.stopping import STOP_GRACE_MS
from p2pnode.gpus import Gpu
from p2pnode.lookout import Lookout
from p2pnode.matching.provider import Provider, shelves_of
from protocol.errors import LocalFault, Unavailable
from protocol.units import Mebibytes

log = logging.getLogger(__name__)

LEAP_MIB: Final = 1_024
ENDING_S: Final = 2 * STOP_GRACE_MS / 1_000
"""A job that is asked to end has this long to let go of its memory."""
LASTED_S: Final = 60
"""Memory that comes free in less than leaps is news only after so long: each change is an advert
to everybody."""


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
        self._more: dict[bytes, tuple[float, Mebibytes]] = {}
        """Since when a GPU has had a little more than is shown, and the least of it since then."""
        self._let_s: dict[bytes, float] = {}
        """When a GPU was last seen to be let."""
        self._fit: tuple[Gpu, ...] | None = None
        self.problems: tuple[str, ...] = ()
        """Why GPUs that may be there are not offered, one sentence each."""

    def device_of(self, unit: bytes) -> str:
        """How CUDA names a unit; empty for one that does not exist or was never seen."""
        return self._known[unit].device if unit in self._known else ""

    async def look(self) -> None:
        """Offer what is fit now. Raises LocalFault if what is new cannot be written down."""
        try:
            found = await self._probe.read()
            # A host without any GPU has none that is broken.
            problems = tuple(each for each in self._probe.problems if each != NO_DRIVER)
        except Unavailable as error:
            # A job that starts on a GPU whose driver does not answer would fail.
            found, problems = (), (str(error),)
        settled = [self._settled(gpu) for gpu in found]
        problems += tuple(f"{gpu.device}: {FULL}" for gpu in settled if not gpu.vram)
        for problem in set(problems) - set(self.problems):
            log.warning("GPU not offered", extra={"why": problem})
        self.problems = problems
        fit = tuple(gpu for gpu in settled if gpu.vram)
        if fit == self._fit:
            return
        try:
            if any(gpu.unit not in self._known for gpu in fit):
                self._declare(fit)
        except LocalFault:
            self._offer(tuple(gpu for gpu in fit if gpu.unit in self._known))
            raise
        self._offer(fit)

    def _offer(self, fit: tuple[Gpu, ...]) -> None:
        self._fit = fit
        self._known.update((gpu.unit, gpu) for gpu in fit)
        shelves = shelves_of(fit)
        self._provider.stock(shelves)
        self._lookout.stock(shelves)

    def _settled(self, gpu: Gpu) -> Gpu:
        """The GPU with the memory that others than our jobs leave, without every up and down."""
        before, left = self._known.get(gpu.unit), gpu.vram
        if self._may_have_job(gpu.unit):
            if gpu.beside is not None:
                left = gpu.beside
            elif before is not None:
                left = before.vram
        if before is not None:
            left = self._steady(gpu.unit, before.vram, left)
        return replace(gpu, vram=left, beside=None)

    def _may_have_job(self, unit: bytes) -> bool:
        """Whether a job of ours may be on it, also one that is being ended after its lease."""
        now_s = trio.current_time()
        if self._is_let(unit):
            self._let_s[unit] = now_s
        return now_s - self._let_s.get(unit, -math.inf) < ENDING_S

    def _steady(self, unit: bytes, shown: Mebibytes, left: Mebibytes) -> Mebibytes:
        """Less counts at once, and so does much more; a little more once it has lasted."""
        if not shown < left < shown + LEAP_MIB:
            self._more.pop(unit, None)
            return left
        since_s, least = self._more.get(unit, (trio.current_time(), left))
        least = min(least, left)
        if trio.current_time() - since_s < LASTED_S:
            self._more[unit] = (since_s, least)
            return shown
        del self._more[unit]
        return least
