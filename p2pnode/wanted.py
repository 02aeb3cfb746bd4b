"""What a user asks for, as the market takes it: regions, CUDA versions and tiers put into terms."""

from dataclasses import replace
from typing import Final

from msgspec import UNSET, UnsetType

from p2pnode.api.wanted_documents import Constraints, JobOrder, OfferQuery
from p2pnode.config import Renting
from p2pnode.matching.drivers import compute_of, driver_for, version_of
from p2pnode.matching.headroom import HEADROOM_PPM, VramPlan
from p2pnode.matching.order import Choice, Order
from p2pnode.matching.preferences import preference_of
from p2pnode.matching.search import Wish
from p2pnode.regions import regions_of
from protocol.advert import Isolation
from protocol.answers import ISOLATIONS
from protocol.auction import Need
from protocol.codec import decode, encode
from protocol.errors import LocalFault, PeerFault
from protocol.limits import JOB_BYTES_MAX
from protocol.units import Micros, Millis, MillisSpan

MILLI: Final = 1_000


def need_of(wanted: Constraints, limits: JobOrder | None = None) -> Need:
    """What one node must have, also so that a job gets what its limits allow it.

    Raises LocalFault.
    """
    plan = plan_of(wanted)
    cpus, memory, disk = wanted.cpus_min, wanted.memory_mib_min, wanted.disk_mib_min
    if limits is not None:
        cpus = max(cpus, -(-limits.cpus_milli // MILLI))
        memory, disk = max(memory, limits.memory_mib), max(disk, limits.disk_mib)
    need = Need(
        gpus=wanted.gpus,
        vram_mib_min=max(1, wanted.vram_mib_min) if plan is None else plan.card_mib(),
        models=wanted.models or UNSET,
        regions=regions_of(wanted.regions) or UNSET,
        isolation_min=_isolation(wanted.isolation_min),
        cpus_min=cpus or UNSET,
        memory_mib_min=memory or UNSET,
        disk_mib_min=disk or UNSET,
        down_kbit_s_min=wanted.down_kbit_s_min or UNSET,
        up_kbit_s_min=wanted.up_kbit_s_min or UNSET,
        driver_min=_driver(wanted),
        compute_min=UNSET if wanted.compute_min is None else compute_of(wanted.compute_min),
    )
    try:
        return decode(encode(need), Need, size_max=JOB_BYTES_MAX)
    except PeerFault as fault:
        raise LocalFault(
            f"No node can be asked for this: {fault.detail}.", "see p2pnode run --help"
        ) from fault


def plan_of(wanted: Constraints) -> VramPlan | None:
    """What the job is expected to use of each GPU, if it says so. Raises LocalFault."""
    if not wanted.model_vram_mib:
        if wanted.headroom_ppm != HEADROOM_PPM:
            raise LocalFault("A headroom is left beside what a model needs.", "--model-vram 16GiB")
        return None
    if wanted.vram_mib_min > 1:
        raise LocalFault(
            "--vram is what each GPU must have, --model-vram what the model needs of it.", "use one"
        )
    plan = VramPlan(model_mib=wanted.model_vram_mib, headroom_ppm=wanted.headroom_ppm)
    try:
        return decode(encode(plan), VramPlan, size_max=JOB_BYTES_MAX)
    except PeerFault as fault:
        raise LocalFault(
            f"No card can be chosen by this: {fault.detail}.", "--model-vram 16GiB --headroom 20%"
        ) from fault


def choice_of(
    wanted: Constraints, renting: Renting, money: str, *, worth: tuple[int, int] = (0, 0)
) -> Choice:
    """What the renter chooses by; `worth`: what an hour and a millisecond are, in micro-units.

    Raises LocalFault.
    """
    for text in wanted.prefer:
        preference_of(text)
    choice = Choice(
        or_tiers=tuple(tier for tier in wanted.or_tiers if tier != wanted.tier),
        end_by_ms=UNSET if wanted.end_by_ms is None else Millis(wanted.end_by_ms),
        reliability_ppm_min=wanted.reliability_ppm_min or UNSET,
        rtt_ms_max=UNSET if wanted.rtt_ms_max is None else wanted.rtt_ms_max,
        prefer=wanted.prefer,
        rates=tuple(
            (rate.code, rate.worth.micros)
            for rate in renting.rates
            if rate.worth.code == money != rate.code
        ),
        plan=plan_of(wanted) or UNSET,
        delay_micro_per_hour=Micros(worth[0]),
        latency_micro_per_ms=Micros(worth[1]),
    )
    try:
        return decode(encode(choice), Choice, size_max=JOB_BYTES_MAX)
    except PeerFault as fault:
        raise LocalFault(f"This cannot be chosen by: {fault.detail}.") from fault


def wish_in(query: OfferQuery, renting: Renting, now: Millis) -> Wish:
    """What a search looks for. Raises LocalFault."""
    is_timed = query.time_ms is not None
    order = Order(
        need=need_of(query),
        tier=query.tier,
        span_ms=MillisSpan(query.time_ms or 0),
        notice_ms=MillisSpan(0),
        money=query.money or "",
        ask_max=None if query.ask_micro_max is None else Micros(query.ask_micro_max),
        total_max=None if query.total_micro_max is None else Micros(query.total_micro_max),
        job=None,
        choice=choice_of(query, renting, query.money or ""),
    )
    wish = order.wish(now if is_timed else None)
    return wish if query.money else replace(wish, money=None)


def _driver(wanted: Constraints) -> tuple[int, ...] | UnsetType:
    """The newer of the driver that is named and the one that CUDA needs."""
    named = None if wanted.driver_min is None else version_of(wanted.driver_min)
    if wanted.driver_min is not None and named is None:
        raise LocalFault(f"{wanted.driver_min[:20]!a} is no version.", "--driver 550.54.14")
    needed = None if wanted.cuda_min is None else driver_for(wanted.cuda_min)
    return max((each for each in (named, needed) if each is not None), default=UNSET)


def _isolation(text: str | None) -> Isolation | UnsetType:
    if text is None:
        return UNSET
    for each in ISOLATIONS:
        if each == text:
            return each
    raise LocalFault(f"{text[:20]!a} is no isolation.", f"one of {', '.join(ISOLATIONS)}")
