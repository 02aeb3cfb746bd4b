"""What a peer offers, signed, short-lived and gossiped. SPEC.md section 8."""

from itertools import pairwise
from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, UnsetType

from protocol.certificate import (
    Certificate,
    ReadCertificate,
    check_in_force,
    read_certificate,
)
from protocol.codec import (
    CurrencyCode,
    Extensions,
    Id16,
    Instant,
    Money,
    Name,
    Span,
    UInt,
    Wire,
)
from protocol.errors import PeerFault
from protocol.genesis import Genesis
from protocol.gpu_class import GpuClass, gpu_class
from protocol.limits import (
    ADDRESSES_MAX,
    CERTIFICATE_BYTES_MAX,
    POLICY_REGIONS_MAX,
    SURCHARGES_MAX,
    UNITS_MAX,
)
from protocol.signing import digest
from protocol.units import Digest, Mebibytes, Millis, NetId, PublicKey

Tier = Literal["gold", "silver", "bronze"]
TIERS: Final[tuple[Tier, ...]] = ("gold", "silver", "bronze")

Isolation = Literal["process", "container", "hardened", "gvisor", "vm", "tee"]
"""How jobs are kept apart from the host, weakest first."""

MibCount = Annotated[int, Meta(ge=1, le=2**40)]
Region = Annotated[str, Meta(min_length=2, max_length=2, pattern=r"\A[A-Z]{2}\Z")]
Address = Annotated[str, Meta(min_length=2, max_length=128, pattern=r"\A/[!-~]+\Z")]
Listed = Literal["images", "networks", "renters"]
Addresses = Annotated[tuple[Address, ...], Meta(max_length=ADDRESSES_MAX)]
Units = Annotated[int, Meta(ge=0, le=UNITS_MAX)]
DeviceMark = Annotated[bytes, Meta(min_length=8, max_length=8)]
Bloom = Annotated[bytes, Meta(min_length=64, max_length=64)]
CALENDAR_SLOTS: Final = 288
CALENDAR_SLOT_MS: Final = 300_000
Calendar = Annotated[bytes, Meta(min_length=36, max_length=36)]


Share = Annotated[int, Meta(ge=1, le=1_000_000)]


class TierAsk(Wire, frozen=True, kw_only=True):
    """A tier that is offered; gold is quoted on request and carries no ask."""

    tier: Tier
    micro_per_gpu_hour: Money | UnsetType = UNSET
    remedy_ppm: Share | UnsetType = UNSET
    """Of gold: what is let off at least of the charge for the whole time if the host fails."""


class Surcharge(Wire, frozen=True, kw_only=True):
    """What is added for jobs of `units` GPUs or more, in millionths of the ask.

    Of several the last that the job reaches applies, alone.
    """

    units: Annotated[int, Meta(ge=1, le=UNITS_MAX)]
    ppm: UInt


Regions = Annotated[tuple[Region, ...], Meta(min_length=1, max_length=POLICY_REGIONS_MAX)]


class WorkloadPolicy(Wire, frozen=True, kw_only=True):
    """Whom and what the owner keeps out, as far as who seeks can tell by itself."""

    regions: Regions | UnsetType = UNSET
    """Renters of these alone are let in."""
    not_regions: Regions | UnsetType = UNSET
    """Renters of these are not."""
    only: Annotated[tuple[Listed, ...], Meta(min_length=1, max_length=3)] | UnsetType = UNSET
    """Of these the owner has lists of those that it lets in."""


class Host(Wire, frozen=True, kw_only=True):
    """What the node has beside its GPUs, in all, as the owner declares it; all of it optional."""

    cpus: UInt | UnsetType = UNSET
    memory_mib: MibCount | UnsetType = UNSET
    disk_mib: MibCount | UnsetType = UNSET
    down_kbit_s: UInt | UnsetType = UNSET
    up_kbit_s: UInt | UnsetType = UNSET
    driver: Name | UnsetType = UNSET
    compute: tuple[UInt, UInt] | UnsetType = UNSET
    """CUDA compute capability, (major, minor)."""


class Advert(Wire, frozen=True, kw_only=True):
    """One unit group of one owner: alike GPUs that are priced and leased together."""

    v: Literal[1] = 1
    certificate: Annotated[bytes, Meta(max_length=CERTIFICATE_BYTES_MAX)]
    group: Id16
    incarnation: UInt
    """Grows with each start of the owner's node."""
    seq: UInt
    """Grows with each advert of one incarnation."""
    state: Literal["open", "withdrawn"]
    issued_ms: Instant
    not_after_ms: Instant
    gpu: Literal["nvml", "simulated"]
    model: Name
    gpu_class: UInt
    vram_mib: MibCount
    """Of each unit."""
    units: Units
    free: Units
    tiers: Annotated[tuple[TierAsk, ...], Meta(min_length=1, max_length=3)]
    money: CurrencyCode
    isolation: Isolation
    region: Region
    """ISO 3166 country, self-declared."""
    addresses: Addresses
    host: Host | UnsetType = UNSET
    open_until_ms: Instant | UnsetType = UNSET
    lease_ms_min: Span | UnsetType = UNSET
    lease_ms_max: Span | UnsetType = UNSET
    policy: WorkloadPolicy | UnsetType = UNSET
    calendar: Calendar | UnsetType = UNSET
    """The next 24 hours in slots of five minutes, one bit each, first slot in the lowest bit."""
    coordinate: Annotated[bytes, Meta(max_length=32)] | UnsetType = UNSET
    images: Bloom | UnsetType = UNSET
    data: Bloom | UnsetType = UNSET
    surcharges: (
        Annotated[tuple[Surcharge, ...], Meta(min_length=1, max_length=SURCHARGES_MAX)] | UnsetType
    ) = UNSET
    devices: (
        Annotated[tuple[DeviceMark, ...], Meta(min_length=1, max_length=UNITS_MAX)] | UnsetType
    ) = UNSET
    """Marks of real GPUs, rising: the same ones in the adverts of two owners contradict."""
    x: Extensions = UNSET


def check_advert(
    advert: Advert,
    *,
    signer: PublicKey,
    genesis: Genesis,
    net: NetId,
    now: Millis,
    read: ReadCertificate = read_certificate,
) -> Certificate:
    """The certificate under which this advert holds now.

    `read` may remember certificates that it has read before.
    Raises PeerFault with one of the rules `advert.*` or `certificate.*` of SPEC.md 8.2.
    """
    _check_time(advert, genesis, now)
    _check_content(advert, genesis)
    certificate = read(advert.certificate, net)
    if certificate.feed != signer:
        raise PeerFault("advert.signer")
    check_in_force(certificate, advert.issued_ms)
    check_in_force(certificate, now)
    return certificate


def _check_time(advert: Advert, genesis: Genesis, now: Millis) -> None:
    bounds = genesis.bounds
    if not 0 < advert.not_after_ms - advert.issued_ms <= bounds.advert_life_ms:
        raise PeerFault("advert.life")
    if advert.issued_ms > now + bounds.skew_ms:
        raise PeerFault("advert.future")
    if is_expired(advert, now):
        raise PeerFault("advert.expired")


def _check_content(advert: Advert, genesis: Genesis) -> None:
    if advert.gpu == "simulated" and not genesis.simulation_allowed:
        raise PeerFault("advert.simulated")
    if advert.free > advert.units:
        raise PeerFault("advert.free")
    if advert.gpu_class != gpu_class_of(advert):
        raise PeerFault("advert.class")
    offered = [ask.tier for ask in advert.tiers]
    if offered != [tier for tier in TIERS if tier in offered]:
        raise PeerFault("advert.tiers", "each at most once, gold before silver before bronze")
    for ask in advert.tiers:
        if (ask.tier == "gold") != (ask.micro_per_gpu_hour is UNSET):
            raise PeerFault("advert.ask", f"{ask.tier}")
        if ask.tier != "gold" and ask.remedy_ppm is not UNSET:
            raise PeerFault("advert.ask", f"a remedy at {ask.tier}")
    sizes = [] if advert.surcharges is UNSET else [s.units for s in advert.surcharges]
    if any(one >= other for one, other in pairwise(sizes)):
        raise PeerFault("advert.surcharges", "not in rising order of units")
    if advert.policy is not UNSET:
        _check_policy(advert.policy)
    devices = marks_in(advert)
    if len(devices) > advert.units:
        raise PeerFault("advert.devices", "more than units")
    if any(one >= other for one, other in pairwise(devices)):
        raise PeerFault("advert.devices", "not in rising order")


def _check_policy(policy: WorkloadPolicy) -> None:
    lists = [each for each in (policy.regions, policy.not_regions, policy.only) if each]
    if not lists:
        raise PeerFault("advert.policy", "an empty one")
    if any(one >= other for each in lists for one, other in pairwise(each)):
        raise PeerFault("advert.policy", "not in rising order")


def device_fingerprint(device: bytes, net: NetId) -> Digest:
    """Commits to what a device calls itself: the same for one device in one network. SPEC.md 8.8.

    Not readable, and of no use in another network.
    """
    return digest("hwid", net + device)


def device_mark(device: str, net: NetId) -> bytes:
    """What an advert says of a GPU with this UUID: a quarter of its fingerprint. SPEC.md 8.8."""
    return device_fingerprint(device.encode(), net)[:8]


def marks_in(advert: Advert) -> tuple[bytes, ...]:
    """The marks of the devices that it names; none where it names none."""
    return () if advert.devices is UNSET else advert.devices


def gpu_class_of(advert: Advert) -> GpuClass:
    """The class that the advert's VRAM belongs to."""
    return gpu_class(Mebibytes(advert.vram_mib))


def is_expired(advert: Advert, now: Millis) -> bool:
    """Whether the advert's time is over; at its last millisecond it still holds."""
    return now > advert.not_after_ms


def is_closed(advert: Advert, start: Millis, end: Millis) -> bool:
    """Whether the advert says that no lease can be from `start` to `end`. SPEC.md 8.1.

    What it does not tell is open. A slot at either end may be open in part: the owner knows.
    """
    until = advert.open_until_ms
    if until is not UNSET and start < until < end:
        return True
    if advert.calendar is UNSET:
        return False
    slots = int.from_bytes(advert.calendar, "little")
    origin = advert.issued_ms // CALENDAR_SLOT_MS
    low, low_whole = start // CALENDAR_SLOT_MS, -(-start // CALENDAR_SLOT_MS)
    high, high_whole = -(-end // CALENDAR_SLOT_MS), end // CALENDAR_SLOT_MS
    whole = range(max(0, low_whole - origin), min(CALENDAR_SLOTS, high_whole - origin))
    if any(not slots >> slot & 1 for slot in whole):
        return True
    # A short lease may have no whole slot; it may be in an open part of one only at a boundary.
    touched = range(low - origin, high - origin)
    is_told = 0 <= touched.start < touched.stop <= CALENDAR_SLOTS
    return is_told and not any(slots >> slot & 1 for slot in touched)


def keeps_out(advert: Advert, *, region: str | None, has_image: bool) -> str | None:
    """Why the owner refuses such a job whatever it pays, in a few words. SPEC.md 8.1.

    `region` is the renter's as it will tell it, None if it tells none. What the policy does not
    say is for the owner to answer.
    """
    policy = advert.policy
    if policy is UNSET:
        return None
    if policy.regions is not UNSET and region not in policy.regions:
        return f"renters of {', '.join(policy.regions)} only"
    if policy.not_regions is not UNSET and region in policy.not_regions:
        return f"no renters of {region}"
    if policy.only is not UNSET and "images" in policy.only and not has_image:
        return "jobs with an image of the owner's list only"
    return None


def ask_for(advert: Advert, tier: Tier) -> int | None:
    """The posted price per GPU-hour in micro-units for the tier; None if there is none."""
    for ask in advert.tiers:
        if ask.tier == tier and ask.micro_per_gpu_hour is not UNSET:
            return ask.micro_per_gpu_hour
    return None


def remedy_for(advert: Advert) -> int:
    """What part of a gold lease is let off at least if the host fails it, in millionths."""
    named = [ask.remedy_ppm for ask in advert.tiers if ask.remedy_ppm is not UNSET]
    return named[0] if named else 0


def price_for(advert: Advert, tier: Tier, gpus: int) -> int | None:
    """The ask for a job of so many GPUs, with the surcharge that it reaches. SPEC.md 8.1."""
    ask = ask_for(advert, tier)
    stated = () if advert.surcharges is UNSET else advert.surcharges
    return None if ask is None else surcharged(ask, stated, gpus)


def surcharged(ask_micro: int, surcharges: tuple[Surcharge, ...], gpus: int) -> int:
    """The ask with what is added for a job of so many GPUs, rounded up. SPEC.md 8.1."""
    ppm = 0
    for surcharge in surcharges:
        if surcharge.units <= gpus:
            ppm = surcharge.ppm
    return -(-ask_micro * (1_000_000 + ppm) // 1_000_000)
