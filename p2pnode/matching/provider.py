"""Tells the network what we offer: on change, at a steady heartbeat, and when we leave."""

import logging
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeVar

import trio
from msgspec import UNSET, UnsetType

from p2pnode.clock import WallClock
from p2pnode.gpus import Gpu
from p2pnode.matching.strategies import Asks, share_of
from p2pnode.matching.timetable import ALWAYS, DAY_SLOTS, Timetable
from protocol.advert import (
    Advert,
    Host,
    Isolation,
    Surcharge,
    Tier,
    TierAsk,
    WorkloadPolicy,
    device_mark,
    price_for,
)
from protocol.auction import Rfq
from protocol.errors import Unavailable
from protocol.genesis import Genesis, net_of
from protocol.gpu_class import gpu_class
from protocol.signing import Signer, digest
from protocol.units import Mebibytes, Micros, Millis, MillisSpan
from protocol.wire import pack

T = TypeVar("T")
log = logging.getLogger(__name__)

COALESCE_S: Final = 1
"""Changes within a second travel as one advert, so that a busy owner cannot flood the mesh."""
SPREAD: Final = (0.5, 1.0)
"""Parts of the heartbeat between which each pause is drawn; COALESCE_S comes on top."""
TOLD_KEPT_MAX: Final = 1_024
"""Adverts that we remember having sent: minutes of a busy owner with many groups."""
RETRY_S_MIN: Final = 1.0
"""What could not be announced is announced again soon, then later, at the latest at a heartbeat."""
FAREWELL_S: Final = 2
"""A node that stops gives its withdrawal this long to leave."""

Announce = Callable[[Advert, bytes], Awaitable[None]]
"""announce(advert, sealed): hand it to the network. Raises Unavailable if nothing takes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf:
    """Alike GPUs that are offered together."""

    group: bytes
    model: str
    vram: Mebibytes
    source: Literal["nvml", "simulated"]
    units: tuple[bytes, ...]
    driver: str = ""
    """Version; empty where none is known."""
    compute: tuple[int, int] | None = None
    devices: tuple[str, ...] = ()
    """What the real ones of them call themselves."""
    surcharges: tuple[Surcharge, ...] = ()
    """As the last advert said them."""


def shelves_of(gpus: tuple[Gpu, ...]) -> tuple[Shelf, ...]:
    """The GPUs grouped by what a renter can tell apart.

    A group is named by model and rank in memory, so that no more groups come about than there are
    GPUs, however much of their memory others take and leave.
    """
    alike: dict[tuple[str, Mebibytes, Literal["nvml", "simulated"]], list[Gpu]] = {}
    for gpu in gpus:
        alike.setdefault((gpu.model, gpu.vram, gpu.source), []).append(gpu)
    ranks = {
        (model, vram, source): sum(
            (model, source) == (other, of) and more > vram for other, more, of in alike
        )
        for model, vram, source in alike
    }
    return tuple(
        Shelf(
            group=digest("unit-group", f"{source}/{ranks[model, vram, source]}/{model}".encode())[
                :16
            ],
            model=model,
            vram=vram,
            source=source,
            units=tuple(gpu.unit for gpu in members),
            driver=members[0].driver,
            compute=members[0].compute,
            devices=tuple(gpu.device for gpu in members if gpu.device),
        )
        for (model, vram, source), members in sorted(alike.items(), key=lambda pair: pair[0])
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Posting:
    """What an owner has decided about its offer."""

    ask: Micros | None
    """The silver price per GPU-hour, of which other tiers are a share; None offers nothing."""
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
    """Of the charge for a whole gold lease, let off if we fail its job; 0: nothing."""
    asks: Asks = field(default_factory=dict)
    """Prices that groups and tiers have instead."""
    floors: Mapping[Tier, Micros] = field(default_factory=dict)
    """Least prices of leases that are in no window with a floor of its own."""
    timetable: Timetable = ALWAYS
    paused: bool = False
    """Nothing is offered until the owner says otherwise."""
    in_use: frozenset[bytes] = frozenset()
    """Units that the owner uses itself."""
    policy: WorkloadPolicy | None = None
    """What of the owner's rules adverts tell."""
    down_kbit_s: int | None = None
    """As the owner declares it; None is not told."""
    up_kbit_s: int | None = None

    def ask_of(self, group: bytes, tier: Tier) -> Micros | None:
        """The price per GPU-hour of a tier of this group; None if it is not offered."""
        if self.ask is None or tier not in self.tiers:
            return None
        own = self.asks.get(group, {}).get(tier)
        return share_of(self.ask, tier) if own is None else own


def stated_host(shelf: Shelf, posting: Posting) -> Host:
    """What an advert says of the node beside its GPUs: all that is known, and nothing else."""
    return Host(
        cpus=posting.cpus,
        memory_mib=posting.memory_mib or UNSET,
        disk_mib=posting.disk_mib or UNSET,
        down_kbit_s=UNSET if posting.down_kbit_s is None else posting.down_kbit_s,
        up_kbit_s=UNSET if posting.up_kbit_s is None else posting.up_kbit_s,
        driver=shelf.driver or UNSET,
        compute=UNSET if shelf.compute is None else shelf.compute,
    )


def _nothing() -> None:
    """Of what an advert may leave out."""


def _none(_group: bytes, _free: int) -> tuple[Surcharge, ...]:
    return ()


def _stated(value: T | None) -> T | UnsetType:
    return UNSET if value is None else value


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
        images: Callable[[], bytes | None] = _nothing,
        place: Callable[[], bytes | None] = _nothing,
        surcharges: Callable[[bytes, int], tuple[Surcharge, ...]] = _none,
    ) -> None:
        """`images`: the filter of those that are here; `place`: our coordinate.

        `surcharges(group, free)`: what is added for jobs that leave pieces.
        """
        self._surcharges = surcharges
        self._images = images
        self._place = place
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
        self._told: OrderedDict[tuple[bytes, int], Advert] = OrderedDict()
        self._sealed: dict[bytes, bytes] = {}
        self._shelves: tuple[Shelf, ...] = ()
        self._gone: dict[bytes, Shelf] = {}
        """Groups that we have no more, until they are withdrawn."""
        self._changed = trio.Event()
        self.posting = posting
        self.failed = 0
        """Adverts that nothing took."""

    @property
    def shelves(self) -> tuple[Shelf, ...]:
        """What we have, offered or not."""
        return self._shelves

    @property
    def use(self) -> dict[bytes, tuple[int, int]]:
        """How many units of each group are leased now, and of how many; not those in own use."""
        found = {}
        for shelf in self._shelves:
            units = self._unused(shelf)
            found[shelf.group] = (len(units) - self._free_of(units), len(units))
        return found

    def _unused(self, shelf: Shelf) -> tuple[bytes, ...]:
        """The units that their owner does not use itself."""
        return tuple(unit for unit in shelf.units if unit not in self.posting.in_use)

    def stock(self, shelves: tuple[Shelf, ...]) -> None:
        """Offer these from now on, and no others."""
        groups = {shelf.group for shelf in shelves}
        had = {**self._gone, **{shelf.group: shelf for shelf in self._shelves}}
        self._gone = {group: shelf for group, shelf in had.items() if group not in groups}
        self._shelves = shelves
        self._changed.set()

    def is_simulated(self) -> bool:
        """Whether any of it does not exist."""
        return any(shelf.source == "simulated" for shelf in self._shelves)

    def refresh(self) -> None:
        """What is free has changed: tell the network soon."""
        self._changed.set()

    def post(self, posting: Posting) -> None:
        """Offer on these terms from now on; what is leased already keeps its own."""
        if posting != self.posting:
            self.posting = posting
            self._changed.set()

    def set_ask(self, ask: Micros) -> None:
        """Change the posted price alone, until there is a new posting."""
        self.post(replace(self.posting, ask=ask, asks={}))

    def told(self, rfq: Rfq) -> Micros | None:
        """The ask in the advert that a request is based on; None if it is not known any more."""
        if rfq.incarnation != self._incarnation:
            return None
        advert = self._told.get((rfq.group, rfq.seq))
        ask = None if advert is None else price_for(advert, rfq.tier, rfq.need.gpus)
        return None if ask is None else Micros(ask)

    def newest(self, group: bytes) -> bytes | None:
        """The last advert of a group that we have announced, sealed."""
        return self._sealed.get(group)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Announce until cancelled, then withdraw."""
        try:
            self._changed = trio.Event()
            retry_s = await self._try_all(0)
            task_status.started()
            while True:
                await trio.sleep(COALESCE_S)
                # Owners that a power cut has started together would else all speak together.
                rest_s = self.posting.heartbeat_s * self._rng.uniform(*SPREAD)
                with trio.move_on_after(min(rest_s, retry_s or rest_s)):
                    await self._changed.wait()
                self._changed = trio.Event()
                retry_s = await self._try_all(retry_s)
        finally:
            with trio.move_on_after(FAREWELL_S, shield=True):
                await self._announce_all("withdrawn")

    async def _try_all(self, retry_s: float) -> float:
        """Announce; 0 if all of it was taken, else how long to wait before the next attempt."""
        failed = self.failed
        await self._announce_all("open")
        return 0 if failed == self.failed else max(RETRY_S_MIN, 2 * retry_s)

    async def _announce_all(self, state: Literal["open", "withdrawn"]) -> None:
        if self.posting.ask is None:
            return
        for group, shelf in list(self._gone.items()):
            if await self._announce_one(shelf, "withdrawn") and group in self._gone:
                del self._gone[group]
        is_open = state == "open" and not self.posting.paused
        for shelf in self._shelves:
            await self._announce_one(self._priced(shelf), "open" if is_open else "withdrawn")

    async def _announce_one(self, shelf: Shelf, state: Literal["open", "withdrawn"]) -> bool:
        """Whether the network took it."""
        advert = self._advert(shelf, state)
        sealed = pack(advert, signer=self._signer, net=self._net)
        self._told[shelf.group, advert.seq] = advert
        while len(self._told) > TOLD_KEPT_MAX:
            self._told.popitem(last=False)
        self._sealed[shelf.group] = sealed
        try:
            await self._announce(advert, sealed)
        except Unavailable as error:
            self.failed += 1
            log.info("an advert was not published", extra={"why": str(error)})
            return False
        return True

    def _priced(self, shelf: Shelf) -> Shelf:
        """The shelf with what is added for each size of job from now on."""
        added = self._surcharges(shelf.group, self._free_of(shelf.units))
        priced = replace(shelf, surcharges=added if len(shelf.units) > 1 else ())
        self._shelves = tuple(
            priced if each.group == shelf.group else each for each in self._shelves
        )
        return priced

    def _advert(self, shelf: Shelf, state: Literal["open", "withdrawn"]) -> Advert:
        now = self._clock.now()
        posting = self.posting
        hours = posting.timetable
        until = hours.open_until(now)
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
            free=self._free_of(self._unused(shelf)),
            tiers=tuple(_tier_ask(posting, shelf, tier) for tier in posting.tiers),
            money=posting.money,
            isolation=posting.isolation,
            region=posting.region,
            addresses=self._addresses(),
            coordinate=_stated(self._place()),
            images=_stated(self._images()),
            open_until_ms=UNSET if until is None else until,
            host=stated_host(shelf, posting),
            lease_ms_min=posting.lease_ms_min,
            lease_ms_max=posting.lease_ms_max,
            surcharges=shelf.surcharges or UNSET,
            policy=_stated(posting.policy),
            devices=tuple(sorted(device_mark(each, self._net) for each in shelf.devices)) or UNSET,
            calendar=(
                hours.slots(now).to_bytes(DAY_SLOTS // 8, "little") if hours.is_bounded else UNSET
            ),
        )


def _tier_ask(posting: Posting, shelf: Shelf, tier: Tier) -> TierAsk:
    ask = posting.ask_of(shelf.group, tier)
    if tier == "gold":
        return TierAsk(tier=tier, remedy_ppm=posting.remedy_ppm or UNSET)
    if ask is None:
        return TierAsk(tier=tier)
    return TierAsk(tier=tier, micro_per_gpu_hour=ask)
