"""Keeps strangers off the GPUs that their owner uses: no new leases there, and bronze yields."""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final, Literal

import trio

from ledger.fold import Lease
from p2pnode.cabinet import RECORD_BYTES_MAX
from p2pnode.config import Gpu as GpuChoice
from p2pnode.execution.vram_peak import note_peak
from p2pnode.execution.whose import is_ours
from p2pnode.gpus import GpuUse
from p2pnode.matching.detector import Bounds, Detector
from p2pnode.matching.provider import Provider
from p2pnode.ports import Ports
from protocol.codec import Wire, decode, encode
from protocol.errors import LocalFault, Unavailable
from protocol.units import Digest, Mebibytes, Millis

log = logging.getLogger(__name__)

LOOK_S: Final = 3
"""With the second in which changes are gathered, the network hears of one within five."""
WHY: Final = "the owner uses this GPU itself"
_USE: Final = "owner/use"

Mode = Literal["auto", "never", "now"]
"""`auto`: as it is seen. `never`: whatever is seen. `now`: all GPUs, whatever is seen."""


class UseRecord(Wire, frozen=True, kw_only=True):
    """What the owner has said, where it is not `auto`."""

    mode: Mode


TakeBack = Callable[[Lease, Millis, str], Millis | None]
"""take_back(lease, not before, why): notice is given to a bronze lease."""


class OwnUse:
    """Owns the detector; tells the provider which units are in use."""

    def __init__(
        self,
        provider: Provider,
        choice: GpuChoice,
        ports: Ports,
        *,
        look: Callable[[], Awaitable[None]],
        leases: Callable[[], list[Lease]],
        take_back: TakeBack,
    ) -> None:
        """`look` looks at which GPUs are fit at all; `leases` are ours that are not over."""
        self._look = look
        self._provider = provider
        self._probe = ports.probe
        self._leases = leases
        self._take_back = take_back
        self._cabinet = ports.cabinet
        self._clock = ports.clock
        bounds = Bounds(
            load_ppm=choice.used_above, after_ms=choice.used_after, idle_ms=choice.idle_after
        )
        self.detector: Final = Detector(bounds)
        self._told: dict[Digest, None] = {}
        raw = self._cabinet.get(_USE)
        self._usual: Mode = "auto" if choice.yield_to_me else "never"
        self.mode: Mode = (
            self._usual if raw is None else decode(raw, UseRecord, size_max=RECORD_BYTES_MAX).mode
        )

    def set_mode(self, mode: Mode) -> None:
        """From now on, also after a restart."""
        self._cabinet.put(_USE, encode(UseRecord(mode=mode)))
        self.mode = mode
        self._act()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look now and then until cancelled."""
        self._act()
        task_status.started()
        while True:
            try:
                await self._look()
            except LocalFault as fault:
                log.warning("GPUs not written down", extra={"why": str(fault)})
            try:
                for use in await self._probe.use():
                    self.detector.note(use.unit, self._foreign_ppm(use), self._clock.now())
                    self._note_memory(use)
            except Unavailable as error:
                log.info("use of the GPUs not seen", extra={"why": str(error)})
            self._act()
            await trio.sleep(LOOK_S)

    def _foreign_ppm(self, use: GpuUse) -> int:
        """The load of others than our jobs: all of it where no job of ours may run."""
        if not any(lease for lease in self._open() if _has(lease, use.unit)):
            return use.load_ppm
        if use.processes is None:
            return 0
        return sum(ppm for pid, ppm in use.processes if not is_ours(pid))

    def _note_memory(self, use: GpuUse) -> None:
        """Keep the most that a lease's job was seen to hold; a disk that fails costs only that."""
        held = sum(mib for pid, mib in use.memory or () if is_ours(pid))
        for lease in self._open() if held else ():
            if _has(lease, use.unit):
                with suppress(LocalFault):
                    note_peak(self._cabinet, lease.id, Mebibytes(held))

    def _act(self) -> None:
        units = [unit for shelf in self._provider.shelves for unit in shelf.units]
        seen = self.detector.in_use
        in_use = {
            "auto": frozenset(unit for unit in units if unit in seen),
            "never": frozenset[bytes](),
            "now": frozenset(units),
        }[self.mode]
        posting = self._provider.posting
        if in_use != posting.in_use:
            log.info("own use has changed", extra={"units": [unit.hex() for unit in in_use]})
            self._provider.post(replace(posting, in_use=in_use))
        for lease in self._open() if in_use else ():
            is_bronze = lease.request.tier == "bronze" and lease.reason is None
            if is_bronze and lease.id not in self._told and any(_has(lease, u) for u in in_use):
                self._yield(lease)

    def _yield(self, lease: Lease) -> None:
        try:
            self._take_back(lease, self._clock.now(), WHY)
            self._told[lease.id] = None
        except LocalFault as fault:
            log.warning("bronze not taken back", extra={"lease": lease.id.hex(), "why": fault.what})

    def _open(self) -> list[Lease]:
        now = self._clock.now()
        return [lease for lease in self._leases() if lease.request.start_ms <= now < lease.ended_ms]


def _has(lease: Lease, unit: bytes) -> bool:
    return any(turn.unit == unit for turn in lease.request.units)
