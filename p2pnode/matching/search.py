"""Which offers fit a wish, and how many fail for what. Relaxing a wish never loses a fit.

Each constraint is one row of FILTERS, by itself: an offer fits if it passes all of those that the
wish asks for. What an advert does not state satisfies no constraint.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from msgspec import UNSET, UnsetType

from p2pnode.matching.book import Offer
from p2pnode.matching.drivers import version_of
from p2pnode.matching.gpu_names import is_model
from p2pnode.matching.headroom import VramPlan
from p2pnode.matching.judging import HAZARD_PPM_PER_HOUR
from protocol.advert import Advert, Host, Isolation, Tier, ask_for, is_closed, price_for
from protocol.answers import ISOLATIONS
from protocol.auction import Need
from protocol.digest_filter import may_hold
from protocol.lease import charge
from protocol.units import Mebibytes, Micros, Millis, MillisSpan

T = TypeVar("T")
RATE_SCALE: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a renter looks for; what is None or empty asks for nothing."""

    gpus: int = 1
    """On one node."""
    vram_min: Mebibytes | None = None
    """Of each."""
    plan: VramPlan | None = None
    """From which that came; it says only what to type."""
    models: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    isolation_min: Isolation | None = None
    driver_min: tuple[int, ...] | None = None
    compute_min: tuple[int, int] | None = None
    cpus_min: int | None = None
    memory_mib_min: int | None = None
    disk_mib_min: int | None = None
    down_kbit_s_min: int | None = None
    up_kbit_s_min: int | None = None
    tier: Tier = "silver"
    or_tiers: tuple[Tier, ...] = ()
    """Others that will do."""
    money: str | None = None
    rates: tuple[tuple[str, int], ...] = ()
    """What one unit of another money is worth, in micro-units of `money`: pinned by the renter."""
    ask_max: Micros | None = None
    """Per GPU-hour."""
    total_max: Micros | None = None
    """For all GPUs over the whole of `during`."""
    during: tuple[Millis, Millis] | None = None
    """When it would be used; without, no constraint on time is judged."""
    end_by_ms: Millis | None = None
    slack_ms: int = 0
    """By how much later than `during` it may come to be asked for."""
    reliability_ppm_min: int | None = None
    rtt_ms_max: int | None = None
    image: bytes | None = None
    """SHA-256 of the one that the job names; only an owner that says what it has may lack it."""
    bronze_ppm: int = 0
    """By how much dearer bronze counts for its interruptions, where another tier does as well."""
    may_be_busy: bool = False
    """Also where all is leased: a better tier takes it back from bronze."""

    @property
    def tiers(self) -> tuple[Tier, ...]:
        """All that will do."""
        return (self.tier, *self.or_tiers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What we know of an offer's owner by ourselves; what is None we do not."""

    reliability_ppm: int | None = None
    rtt_ms: int | None = None
    hazard_ppm_per_hour: int = HAZARD_PPM_PER_HOUR
    """How often its bronze leases are interrupted; a guess until we have met it."""


NOTHING_KNOWN: Final = Known()
Fails = Callable[[Offer, Wish, Known], str | None]
"""The reason in a word, None if the offer passes."""


@dataclass(frozen=True, slots=True)
class Filter:
    """One constraint."""

    name: str
    fails: Fails
    asked: Callable[[Wish], Any]
    """What the wish asks for; None or empty: nothing."""


@dataclass(frozen=True, slots=True)
class Found:
    """The offers that fit, cheapest first, and for the others the first thing that fails."""

    fits: list[Offer] = field(default_factory=list)
    misfits: dict[str, int] = field(default_factory=dict)


KnownOf = Callable[[Offer], Known]


def nothing_known(_offer: Offer) -> Known:
    """Of whoever it is."""
    return NOTHING_KNOWN


def search(offers: Iterable[Offer], wish: Wish, known_of: KnownOf = nothing_known) -> Found:
    """Every offer is in exactly one place of the answer."""
    found = Found()
    asked = filters_of(wish)
    for offer in offers:
        why = _first(offer, wish, known_of(offer), asked)
        if why is None:
            found.fits.append(offer)
        else:
            found.misfits[why] = found.misfits.get(why, 0) + 1
    found.fits.sort(key=lambda offer: (ask_of(offer, wish) or 0, offer.head[0]))
    return found


def filters_of(wish: Wish) -> tuple[Filter, ...]:
    """Those of FILTERS that the wish asks for, in that order."""
    return tuple(each for each in FILTERS if each.asked(wish) not in {None, ()})


def misfit(offer: Offer, wish: Wish, known: Known = NOTHING_KNOWN) -> str | None:
    """The first reason for which the offer does not fit, in a word; None if it fits."""
    return _first(offer, wish, known, filters_of(wish))


def misfit_of(wish: Wish) -> Callable[[Offer, Known], str | None]:
    """`misfit` for one wish and many offers."""
    asked = filters_of(wish)
    return lambda offer, known: _first(offer, wish, known, asked)


def _first(offer: Offer, wish: Wish, known: Known, asked: tuple[Filter, ...]) -> str | None:
    for each in asked:
        if (why := each.fails(offer, wish, known)) is not None:
            return why
    return None


def wish_of(need: Need, tier: Tier, money: str | None) -> Wish:
    """What is needed of a node, as a filter of adverts."""
    return Wish(
        gpus=need.gpus,
        vram_min=Mebibytes(need.vram_mib_min),
        models=() if need.models is UNSET else need.models,
        regions=() if need.regions is UNSET else need.regions,
        isolation_min=_set(need.isolation_min),
        driver_min=_set(need.driver_min),
        compute_min=_set(need.compute_min),
        cpus_min=_set(need.cpus_min),
        memory_mib_min=_set(need.memory_mib_min),
        disk_mib_min=_set(need.disk_mib_min),
        down_kbit_s_min=_set(need.down_kbit_s_min),
        up_kbit_s_min=_set(need.up_kbit_s_min),
        tier=tier,
        money=money,
    )


def _set(value: T | UnsetType) -> T | None:
    return None if value is UNSET else value


def tier_of(offer: Offer, wish: Wish) -> Tier | None:
    """The tier in which the wish takes this offer: the cheapest that will do; None if none will.

    Of those within the limits, if any are. Gold has no ask, so that it is taken where nothing else
    will do, or is wanted first.
    """
    if not wish.or_tiers:
        return wish.tier if wish.tier in [ask.tier for ask in offer.advert.tiers] else None
    offered = [ask.tier for ask in offer.advert.tiers if ask.tier in wish.tiers]
    if wish.tier == "gold" in offered:
        return "gold"
    asks = [(ask_for(offer.advert, tier), tier) for tier in wish.tiers if tier in offered]
    priced = [(ask, tier) for ask, tier in asks if ask is not None]
    within = [pair for pair in priced if _is_within(offer, pair[1], wish)] or priced
    if not within:
        return next(iter(offered), None)
    return min(
        within,
        key=lambda pair: pair[0] * (RATE_SCALE + (wish.bronze_ppm if pair[1] == "bronze" else 0)),
    )[1]


def _is_within(offer: Offer, tier: Tier, wish: Wish) -> bool:
    """Whether this tier of the offer keeps the limits of price and total."""
    price = converted(
        Micros(price_for(offer.advert, tier, wish.gpus) or 0), offer.advert.money, wish
    )
    if price is None or (wish.ask_max is not None and price > wish.ask_max):
        return False
    return not _is_over(price, wish)


def _is_over(price: Micros, wish: Wish) -> bool:
    """Whether all of the time at this price is above the total."""
    if wish.total_max is None or wish.during is None:
        return False
    start, end = wish.during
    return charge(MillisSpan((end - start) * wish.gpus), price) > wish.total_max


def parts_of(wish: Wish) -> list[tuple[Wish, int]]:
    """Wishes for one tier in one money each, that all together let pass what this one does.

    Each with what a unit of its money is worth, in millionths. Limits on the whole, and what a
    renter knows by itself, are left to who judges the whole wish.
    """
    found = []
    for tier in wish.tiers:
        for money, rate in ((wish.money, RATE_SCALE), *wish.rates):
            if rate:
                most = None if wish.ask_max is None else wish.ask_max * RATE_SCALE // rate
                part = replace(
                    wish,
                    tier=tier,
                    or_tiers=(),
                    money=money,
                    rates=(),
                    ask_max=None if most is None else Micros(most),
                    total_max=None,
                    reliability_ppm_min=None,
                    rtt_ms_max=None,
                )
                found.append((part, rate))
    return found


def converted(micros: Micros, money: str, wish: Wish) -> Micros | None:
    """The sum in the wish's money, rounded up; None without a pinned rate for it."""
    if wish.money in {None, money}:
        return micros
    rate = dict(wish.rates).get(money)
    return None if rate is None else Micros(-(-micros * rate // RATE_SCALE))


def ask_of(offer: Offer, wish: Wish) -> Micros | None:
    """The ask of the tier that would be taken, in the wish's money; None where there is none."""
    tier = tier_of(offer, wish)
    ask = None if tier is None else price_for(offer.advert, tier, wish.gpus)
    return None if ask is None else converted(Micros(ask), offer.advert.money, wish)


def _model(offer: Offer, wish: Wish, _known: Known) -> str | None:
    advert = offer.advert
    vram = Mebibytes(advert.vram_mib)
    is_one = any(is_model(advert.model, name, vram) for name in wish.models)
    return None if is_one else "model"


def _region(offer: Offer, wish: Wish, _known: Known) -> str | None:
    return None if offer.advert.region in wish.regions else "region"


def _isolation(offer: Offer, wish: Wish, _known: Known) -> str | None:
    assert wish.isolation_min is not None
    there, least = offer.advert.isolation, wish.isolation_min
    return None if ISOLATIONS.index(there) >= ISOLATIONS.index(least) else "isolation"


def _gpus(offer: Offer, wish: Wish, _known: Known) -> str | None:
    if (offer.advert.units if wish.may_be_busy else offer.advert.free) >= wish.gpus:
        return None
    return "busy" if offer.advert.units >= wish.gpus else "gpus"


def _tier(offer: Offer, wish: Wish, _known: Known) -> str | None:
    return "tier" if tier_of(offer, wish) is None else None


def _money(offer: Offer, wish: Wish, _known: Known) -> str | None:
    is_known = offer.advert.money == wish.money or offer.advert.money in dict(wish.rates)
    return None if is_known else "money"


def _price(offer: Offer, wish: Wish, _known: Known) -> str | None:
    assert wish.ask_max is not None
    ask = ask_of(offer, wish)
    return "price" if ask is not None and ask > wish.ask_max else None


def _total(offer: Offer, wish: Wish, _known: Known) -> str | None:
    ask = ask_of(offer, wish)
    return "total" if ask is not None and _is_over(ask, wish) else None


def _image(offer: Offer, wish: Wish, _known: Known) -> str | None:
    stated, named = offer.advert.images, wish.image
    assert named is not None
    return "image" if stated is not UNSET and not may_hold(stated, named) else None


def _closed(offer: Offer, wish: Wish, _known: Known) -> str | None:
    assert wish.during is not None
    start, end = wish.during
    return "closed" if is_closed(offer.advert, start, Millis(end + wish.slack_ms)) else None


def _time(offer: Offer, wish: Wish, _known: Known) -> str | None:
    assert wish.during is not None
    span = wish.during[1] - wish.during[0]
    least, most = offer.advert.lease_ms_min, offer.advert.lease_ms_max
    is_long = least is UNSET or span >= least
    return None if is_long and (most is UNSET or span <= most) else "time"


def _deadline(_offer: Offer, wish: Wish, _known: Known) -> str | None:
    assert wish.end_by_ms is not None
    if wish.during is None:
        return None
    return "deadline" if wish.during[1] + wish.slack_ms > wish.end_by_ms else None


def _reliability(_offer: Offer, wish: Wish, known: Known) -> str | None:
    assert wish.reliability_ppm_min is not None
    if known.reliability_ppm is None:
        return "reliability unstated"
    return "reliability" if known.reliability_ppm < wish.reliability_ppm_min else None


def _rtt(_offer: Offer, wish: Wish, known: Known) -> str | None:
    assert wish.rtt_ms_max is not None
    if known.rtt_ms is None:
        return "rtt unstated"
    return "rtt" if known.rtt_ms > wish.rtt_ms_max else None


def _at_least(name: str, asked: str, there: Callable[[Advert], Any]) -> Filter:
    """A filter for what there must be enough of, and what adverts may leave unsaid."""

    def fails(offer: Offer, wish: Wish, _known: Known) -> str | None:
        given = there(offer.advert)
        if given is None:
            return f"{name} unstated"
        return name if given < getattr(wish, asked) else None

    return Filter(name, fails, lambda wish: getattr(wish, asked))


def _host(name: str, asked: str, there: Callable[[Host], T | UnsetType]) -> Filter:
    return _at_least(
        name,
        asked,
        lambda advert: None if advert.host is UNSET else _set(there(advert.host)),
    )


def driver_of(advert: Advert) -> tuple[int, ...] | None:
    """The driver's version, if the advert states one that can be read."""
    stated: str | UnsetType = UNSET if advert.host is UNSET else advert.host.driver
    return None if stated is UNSET else version_of(stated)


FILTERS: Final = (
    Filter("model", _model, lambda wish: wish.models),
    _at_least("vram", "vram_min", lambda advert: advert.vram_mib),
    Filter("region", _region, lambda wish: wish.regions),
    Filter("isolation", _isolation, lambda wish: wish.isolation_min),
    _at_least("driver", "driver_min", driver_of),
    _host("compute", "compute_min", lambda host: host.compute),
    _host("cpus", "cpus_min", lambda host: host.cpus),
    _host("memory", "memory_mib_min", lambda host: host.memory_mib),
    _host("disk", "disk_mib_min", lambda host: host.disk_mib),
    _host("down", "down_kbit_s_min", lambda host: host.down_kbit_s),
    _host("up", "up_kbit_s_min", lambda host: host.up_kbit_s),
    Filter("image", _image, lambda wish: wish.image),
    Filter("closed", _closed, lambda wish: wish.during),
    Filter("gpus", _gpus, lambda wish: wish.gpus),
    Filter("tier", _tier, lambda wish: wish.tiers),
    Filter("money", _money, lambda wish: wish.money),
    Filter("time", _time, lambda wish: wish.during),
    Filter("deadline", _deadline, lambda wish: wish.end_by_ms),
    Filter("price", _price, lambda wish: wish.ask_max),
    Filter("total", _total, lambda wish: wish.total_max),
    Filter("reliability", _reliability, lambda wish: wish.reliability_ppm_min),
    Filter("rtt", _rtt, lambda wish: wish.rtt_ms_max),
)
"""In the order in which they are told: what a node is, what is free there, what it costs."""
