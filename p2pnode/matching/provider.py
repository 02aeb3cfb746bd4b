"""Tells the network what we offer: on change, at a steady heartbeat, and when we leave."""

import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final, Literal

import trio

from p2pnode.clock import WallClock
from p2pnode.gpus import Gpu
from protocol.advert import Advert, Isolation, Tier, TierAsk
from protocol.genesis import Genesis, net_of
from protocol.gpu_class import gpu_class
from protocol.signing import Signer, digest
from protocol.units import Mebibytes, Micros, Millis, MillisSpan
from protocol.wire import pack

log = logging.getLogger(__name__)

COALESCE_S: Final = 1
"""Changes within a second travel as one advert, so that a busy owner cannot flood the mesh."""
SPREAD: Final = (0.5, 1.0)
"""Parts of the heartbeat between which each pause is drawn; COALESCE_S comes on top."""
FAREWELL_S: Final = 2
"""A node that stops gives its withdrawal this long to leave."""

Announce = Callable[[Advert, bytes], Awaitable[None]]
"""announce(advert, sealed): hand it to the network."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf:
    """Alike GPUs that are offered together."""

    group: bytes
    model: str
    vram: Mebibytes
    source: Literal["nvml", "simulated"]
    units: tuple[bytes, ...]


def shelves_of(gpus: tuple[Gpu, ...]) -> tuple[Shelf, ...]:
    """The GPUs grouped by what a renter can tell apart."""
    units: dict[tuple[str, Mebibytes, Literal["nvml", "simulated"]], list[bytes]] = {}
    for gpu in gpus:
        units.setdefault((gpu.model, gpu.vram, gpu.source), []).append(gpu.unit)
    return tuple(
        Shelf(
            group=digest("unit-group", f"{source}/{vram}/{model}".encode())[:16],
            model=model,
            vram=vram,
            source=source,
            units=tuple(members),
        )
        for (model, vram, source), members in sorted(units.items())
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Posting:
    """What an owner has decided about its offer."""

    ask: Micros | None
    """Posted price per GPU-hour; None offers nothing."""
    money: str
    tiers: tuple[Tier, ...]
    region: str
    isolation: Isolation
    lease_ms_min: MillisSpan
    lease_ms_max: MillisSpan
    period_ms: MillisSpan
    """Between two ticks of a lease."""
    cpus: int
    memory_mib: int
    disk_mib: int
    heartbeat_s: float
    remedy_ppm: int = 100_000
    """Of the charge for a whole gold lease, let off if we fail its job; 0: no gold."""


class Provider:
    """Owns what we offer; the only maker of our adverts."""

    def __init__(
        self,
        *,
        signer: Signer,
        certificate: bytes,
        genesis: Genesis,
        incarnation: int,
        posting: Posting,
        addresses: Callable[[], tuple[str, ...]],
        free_of: Callable[[tuple[bytes, ...]], int],
        announce: Announce,
        rng: random.Random,
        clock: WallClock,
    ) -> None:
        self._signer = signer
        self._certificate = certificate
        self._genesis = genesis
        self._net = net_of(genesis)
        self._incarnation = incarnation
        self._addresses = addresses
        self._free_of = free_of
        self._announce = announce
        self._rng = rng
        self._clock = clock
        self._seq = 0
        self._shelves: tuple[Shelf, ...] = ()
        self._changed = trio.Event()
        self.posting = posting

    @property
    def shelves(self) -> tuple[Shelf, ...]:
        """What we have, offered or not."""
        return self._shelves

    def stock(self, shelves: tuple[Shelf, ...]) -> None:
        """Offer these from now on."""
        self._shelves = shelves
        self._changed.set()

    def is_simulated(self) -> bool:
        """Whether any of it does not exist."""
        return any(shelf.source == "simulated" for shelf in self._shelves)

    def refresh(self) -> None:
        """What is free has changed: tell the network soon."""
        self._changed.set()

    def set_ask(self, ask: Micros) -> None:
        """Change the posted price; what is leased already keeps its own."""
        self.posting = replace(self.posting, ask=ask)
        self._changed.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Announce until cancelled, then withdraw."""
        try:
            self._changed = trio.Event()
            await self._announce_all("open")
            task_status.started()
            while True:
                await trio.sleep(COALESCE_S)
                # Owners that a power cut has started together would else all speak together.
                with trio.move_on_after(self.posting.heartbeat_s * self._rng.uniform(*SPREAD)):
                    await self._changed.wait()
                self._changed = trio.Event()
                await self._announce_all("open")
        finally:
            with trio.move_on_after(FAREWELL_S, shield=True):
                await self._announce_all("withdrawn")

    async def _announce_all(self, state: Literal["open", "withdrawn"]) -> None:
        for shelf in self._shelves:
            if self.posting.ask is None:
                continue
            advert = self._advert(shelf, state, self.posting.ask)
            await self._announce(advert, pack(advert, signer=self._signer, net=self._net))

    def _advert(self, shelf: Shelf, state: Literal["open", "withdrawn"], ask: Micros) -> Advert:
        now = self._clock.now()
        posting = self.posting
        self._seq += 1
        return Advert(
            certificate=self._certificate,
            group=shelf.group,
            incarnation=self._incarnation,
            seq=self._seq,
            state=state,
            issued_ms=now,
            not_after_ms=Millis(now + self._genesis.bounds.advert_life_ms),
            gpu=shelf.source,
            model=shelf.model,
            gpu_class=gpu_class(shelf.vram),
            vram_mib=shelf.vram,
            units=len(shelf.units),
            free=self._free_of(shelf.units),
            tiers=tuple(
                TierAsk(tier=tier) if tier == "gold" else TierAsk(tier=tier, micro_per_gpu_hour=ask)
                for tier in posting.tiers
            ),
            money=posting.money,
            isolation=posting.isolation,
            region=posting.region,
            addresses=self._addresses(),
            lease_ms_min=posting.lease_ms_min,
            lease_ms_max=posting.lease_ms_max,
        )
