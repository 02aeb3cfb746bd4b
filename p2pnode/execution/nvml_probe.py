"""The GPUs that NVIDIA's driver reports. Only this module talks to NVML; it changes nothing there.

A GPU that is lost, split, unnamed or without memory is left out with a reason, the others stay.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pynvml
import trio

from p2pnode.gpus import Gpu, GpuUse
from protocol.errors import Unavailable
from protocol.signing import digest
from protocol.units import Mebibytes, PublicKey

READ_S_MAX: Final = 10
"""Starting the driver takes seconds on hosts that do not keep it loaded."""

FOREIGN_MIB: Final = 512
"""Memory that others may use of a GPU before its offer shrinks: a desktop, monitoring."""
STEP_MIB: Final = 256
"""What others leave is rounded down to this, so that their ups and downs are no news."""

PCI_DEVICES: Final = Path("/sys/bus/pci/devices")
_NVIDIA: Final = "0x10de"
_DISPLAY: Final = "0x03"
_MODEL_MAX: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    gpus: dict[str, Gpu]
    """By UUID, in the driver's order."""
    problems: tuple[str, ...]


class _Unfit(Exception):
    """A device that must not be offered; says why."""


class NvmlProbe:
    """See GpuProbe. `feed` salts the units, so that two accounts' units tell no common host.

    `vram` is what is free where others use much of the GPU, and so is less while a job of ours
    runs there: what was read before the job holds on.
    """

    def __init__(self, feed: PublicKey, *, pci: Path = PCI_DEVICES) -> None:
        self._feed = feed
        self._pci = pci
        self._hands = trio.CapacityLimiter(1)
        self._is_held = False
        self._seen: dict[str, int] = {}
        self.problems: tuple[str, ...] = ()
        """Why GPUs that may be there were left out of the last reading, one sentence each."""

    async def read(self) -> tuple[Gpu, ...]:
        # A thread that hangs in the driver keeps its token: no second one ever joins it.
        try:
            with trio.fail_after(READ_S_MAX):
                reading = await trio.to_thread.run_sync(
                    _read, self._feed, self._pci, limiter=self._hands, abandon_on_cancel=True
                )
        except trio.TooSlowError:
            self.problems = (f"NVML gave no answer within {READ_S_MAX} seconds",)
            raise Unavailable(self.problems[0]) from None
        except pynvml.NVMLError as error:
            self.problems = (f"NVML does not start: {error}",)
            raise Unavailable(self.problems[0]) from error
        self.problems = reading.problems
        return tuple(reading.gpus.values())

    async def use(self) -> tuple[GpuUse, ...]:
        """See GpuProbe. The driver stays loaded from the first look on."""
        try:
            with trio.fail_after(READ_S_MAX):
                return await trio.to_thread.run_sync(
                    self._look, limiter=self._hands, abandon_on_cancel=True
                )
        except trio.TooSlowError:
            raise Unavailable(f"NVML gave no answer within {READ_S_MAX} seconds") from None
        except pynvml.NVMLError as error:
            raise Unavailable(f"NVML does not tell: {error}") from error

    def _look(self) -> tuple[GpuUse, ...]:
        if not self._is_held:
            try:
                pynvml.nvmlInit()
            except pynvml.NVMLError_LibraryNotFound:
                return ()
            self._is_held = True
        try:
            found = (_look_at(self._feed, index, self._seen) for index in _indices())
            return tuple(use for use in found if use is not None)
        except pynvml.NVMLError:
            self._is_held = False
            pynvml.nvmlShutdown()
            raise


def _indices() -> range:
    return range(pynvml.nvmlDeviceGetCount())


def _look_at(feed: PublicKey, index: int, seen: dict[str, int]) -> GpuUse | None:
    """What one GPU does; `seen` has the time of the newest sample of each, by the driver."""
    try:
        device = pynvml.nvmlDeviceGetHandleByIndex(index)
        uuid: str = pynvml.nvmlDeviceGetUUID(device)
        load = int(pynvml.nvmlDeviceGetUtilizationRates(device).gpu)
        processes = _processes(device, uuid, seen)
    except (pynvml.NVMLError, UnicodeDecodeError):
        return None
    return GpuUse(unit=unit_of(feed, uuid), load_ppm=load * 10_000, processes=processes)


def _processes(
    device: object, uuid: str, seen: dict[str, int]
) -> tuple[tuple[int, int], ...] | None:
    try:
        samples = pynvml.nvmlDeviceGetProcessUtilization(device, seen.get(uuid, 0))
    except pynvml.NVMLError_NotFound:
        return ()  # nobody has used it since
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
        return None
    newest: dict[int, tuple[int, int]] = {}
    for sample in samples:
        found = (int(sample.timeStamp), int(sample.smUtil))
        newest[int(sample.pid)] = max(found, newest.get(int(sample.pid), found))
    seen[uuid] = max((time for time, _ in newest.values()), default=seen.get(uuid, 0))
    return tuple((pid, share * 10_000) for pid, (_, share) in sorted(newest.items()))


def _read(feed: PublicKey, pci: Path) -> _Reading:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        return _Reading(gpus={}, problems=(_no_driver(pci),))
    try:
        return _read_all(feed)
    finally:
        pynvml.nvmlShutdown()


def _no_driver(pci: Path) -> str:
    if any(_is_nvidia_gpu(device) for device in sorted(pci.glob("*"))):
        return "no NVIDIA driver, though an NVIDIA GPU is on the PCI bus"
    return "no NVIDIA driver"


def _is_nvidia_gpu(device: Path) -> bool:
    try:
        vendor, kind = (device / "vendor").read_text(), (device / "class").read_text()
    except OSError:
        return False
    return vendor.strip() == _NVIDIA and kind.startswith(_DISPLAY)


def _read_all(feed: PublicKey) -> _Reading:
    gpus: dict[str, Gpu] = {}
    problems = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            uuid, gpu = _read_gpu(feed, index)
        except (pynvml.NVMLError, UnicodeDecodeError, _Unfit) as error:
            problems.append(f"GPU {index}: {error}")
        else:
            gpus[uuid] = gpu
    return _Reading(gpus=gpus, problems=tuple(problems))


def _read_gpu(feed: PublicKey, index: int) -> tuple[str, Gpu]:
    device = pynvml.nvmlDeviceGetHandleByIndex(index)
    uuid: str = pynvml.nvmlDeviceGetUUID(device)
    if not uuid:
        raise _Unfit("it reports no UUID")
    _check_health(device)
    return uuid, Gpu(
        unit=unit_of(feed, uuid),
        model=_model(device),
        vram=_usable_memory(device),
        source="nvml",
        driver=_driver(),
        compute=_compute(device),
        device=uuid,
    )


def unit_of(feed: PublicKey, uuid: str) -> bytes:
    """The 16 bytes that name the GPU with this UUID to the network, the same after each start."""
    return digest("nvml-unit", feed + uuid.encode())[:16]


def _check_health(device: object) -> None:
    try:
        split, _ = pynvml.nvmlDeviceGetMigMode(device)
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
        split = 0
    if split:
        raise _Unfit("it is split by MIG, which is not offered yet")
    try:
        broken: int = pynvml.nvmlDeviceGetTotalEccErrors(
            device, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
        )
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
        broken = 0
    if broken:
        raise _Unfit(f"its memory had {broken} errors that it could not correct: reset it")


def _model(device: object) -> str:
    model: str = pynvml.nvmlDeviceGetName(device).strip()
    if not model:
        raise _Unfit("it reports no model")
    if len(model) > _MODEL_MAX or not (model.isascii() and model.isprintable()):
        raise _Unfit(f"its model {model!a} cannot be shown on one short line")
    return model


def _driver() -> str:
    """Its version; empty where it does not say, or what no advert may carry."""
    try:
        version: str = pynvml.nvmlSystemGetDriverVersion().strip()
    except pynvml.NVMLError:
        return ""
    return version if version.isascii() and version.isprintable() and len(version) <= 64 else ""


def _compute(device: object) -> tuple[int, int] | None:
    try:
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(device)
    except pynvml.NVMLError:
        return None
    return int(major), int(minor)


def _usable_memory(device: object) -> Mebibytes:
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(device, version=pynvml.nvmlMemory_v2)
    except pynvml.NVMLError_FunctionNotFound:
        # Older drivers, which count what the driver itself reserves as used.
        memory = pynvml.nvmlDeviceGetMemoryInfo(device)
    total, used, free = (int(n) for n in (memory.total, memory.used, memory.free))
    if total < 2**20:
        raise _Unfit("it reports no memory")
    if used <= FOREIGN_MIB * 2**20:
        return Mebibytes(total // 2**20)
    left = min(free, total) // 2**20 // STEP_MIB * STEP_MIB
    if not left:
        raise _Unfit("other programs use all its memory")
    return Mebibytes(left)
