"""How far each constraint of a wish would have to give for one offer. Pure.

A step changes one field of the wish to the nearest value that lets the offer pass, as far as it
can by that field; its cost is the relative change, so that steps of different kinds compare.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from msgspec import UNSET, UnsetType

from p2pnode.matching.book import Offer
from p2pnode.matching.search import Known, Wish, ask_of, driver_of
from protocol.answers import ISOLATIONS
from protocol.lease import MS_PER_HOUR, charge
from protocol.units import Micros, Millis, MillisSpan

PPM: Final = 1_000_000
KIND_PPM: Final = PPM
"""Another model, country, tier or kind of isolation counts as a number that doubles."""
DROP_PPM: Final = 1_000 * PPM
"""A constraint that is given up altogether counts as more than any that gives way."""

ROOM_MS: Final = 120_000
"""What a user has to read a change and to type it: until then what it says stays true."""
MINUTE_MS: Final = 60_000

VALUES: Final = {
    "vram": "vram_min",
    "driver": "driver_min",
    "compute": "compute_min",
    "cpus": "cpus_min",
    "memory": "memory_mib_min",
    "disk": "disk_mib_min",
    "down": "down_kbit_s_min",
    "up": "up_kbit_s_min",
    "price": "ask_max",
    "total": "total_max",
    "deadline": "end_by_ms",
    "reliability": "reliability_ppm_min",
    "rtt": "rtt_ms_max",
}
"""Constraints that are one value -> the field."""


Value = int | tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One constraint that gives way."""

    name: str
    value: Any
    """What it gives way to; None: it is given up."""
    wish: Wish
    """With this step, and all before it."""
    ppm: int


def steps(name: str, offer: Offer, wish: Wish, known: Known) -> Iterator[Step]:
    """The steps of this constraint that may let the offer pass; none where no value would."""
    of_kind = _KINDS.get(name)
    if of_kind is not None:
        yield from of_kind(offer, wish)
    elif name in VALUES:
        yield _to_value(name, offer, wish, known)


def _to_value(name: str, offer: Offer, wish: Wish, known: Known) -> Step:
    field = VALUES[name]
    there, asked = _there(name, offer, wish, known), getattr(wish, field)
    changes: dict[str, Any] = {field: there}
    return Step(
        name=name,
        value=there,
        wish=replace(wish, **changes),
        ppm=DROP_PPM if there is None else _apart(name, asked, there, wish),
    )


def _there(name: str, offer: Offer, wish: Wish, known: Known) -> Value | None:
    """What the offer has; None where nobody says."""
    advert = offer.advert
    if name == "vram":
        return advert.vram_mib
    if name == "driver":
        return driver_of(advert)
    if name in {"price", "total"}:
        return _costs(name, offer, wish)
    if name == "deadline":
        return None if wish.during is None else _roomy(wish.during[1])
    if name == "reliability":
        return known.reliability_ppm
    if name == "rtt":
        return known.rtt_ms
    stated = {"memory": "memory_mib", "disk": "disk_mib", "down": "down_kbit_s", "up": "up_kbit_s"}
    found = UNSET if advert.host is UNSET else getattr(advert.host, stated.get(name, name))
    return None if found is UNSET else found


def _roomy(end: Millis) -> int:
    """The end of a lease that is asked for a while later, as a whole minute."""
    return -(-(end + ROOM_MS) // MINUTE_MS) * MINUTE_MS


def _costs(name: str, offer: Offer, wish: Wish) -> Micros | None:
    """Per GPU-hour, or in all."""
    ask = ask_of(offer, wish)
    if ask is None or name == "price" or wish.during is None:
        return ask
    return charge(MillisSpan((wish.during[1] - wish.during[0]) * wish.gpus), ask)


def _apart(name: str, asked: Value, there: Value, wish: Wish) -> int:
    """How far the value has to go, in millionths of what was asked for."""
    origin = wish.during[0] if name == "deadline" and wish.during is not None else 0
    wanted, given = _weighed(asked) - origin, _weighed(there) - origin
    return abs(wanted - given) * PPM // max(1, abs(wanted))


def _weighed(value: Value) -> int:
    """A number; of a version each part counts ten thousand times as much as the next."""
    if isinstance(value, int):
        return value
    return sum(part * 10_000 ** (3 - place) for place, part in enumerate(value))


def _model(offer: Offer, wish: Wish) -> Iterator[Step]:
    model = offer.advert.model
    yield _kind("model", model, replace(wish, models=(*wish.models, model)))


def _region(offer: Offer, wish: Wish) -> Iterator[Step]:
    region = offer.advert.region
    yield _kind("region", region, replace(wish, regions=(*wish.regions, region)))


def _isolation(offer: Offer, wish: Wish) -> Iterator[Step]:
    there = offer.advert.isolation
    assert wish.isolation_min is not None
    apart = ISOLATIONS.index(wish.isolation_min) - ISOLATIONS.index(there)
    changed = replace(wish, isolation_min=there)
    yield Step(name="isolation", value=there, wish=changed, ppm=apart * KIND_PPM)


def _tier(offer: Offer, wish: Wish) -> Iterator[Step]:
    for ask in offer.advert.tiers:
        if ask.tier not in wish.tiers:
            yield _kind("tier", ask.tier, replace(wish, or_tiers=(*wish.or_tiers, ask.tier)))


def _kind(name: str, value: str, wish: Wish) -> Step:
    return Step(name=name, value=value, wish=wish, ppm=KIND_PPM)


def _gpus(offer: Offer, wish: Wish) -> Iterator[Step]:
    """Fewer of them: as many as are free, or as the limit on the whole allows."""
    for gpus in range(min(offer.advert.free, wish.gpus - 1), 0, -1):
        ppm = (wish.gpus - gpus) * PPM // wish.gpus
        yield Step(name="gpus", value=gpus, wish=replace(wish, gpus=gpus), ppm=ppm)


def _time(offer: Offer, wish: Wish) -> Iterator[Step]:
    """Another length: what the owner takes, what is over in time, or what the limit pays."""
    if wish.during is None:
        return
    start, end = wish.during
    advert, span = offer.advert, end - start
    lengths = [
        each
        for each in (
            advert.lease_ms_min,
            advert.lease_ms_max,
            UNSET if advert.open_until_ms is UNSET else advert.open_until_ms - start - ROOM_MS,
            UNSET if wish.end_by_ms is None else wish.end_by_ms - start - ROOM_MS,
            _payable(offer, wish),
        )
        if each is not UNSET and 0 < each != span
    ]
    for length in dict.fromkeys(lengths):
        yield Step(
            name="time",
            value=length,
            wish=replace(wish, during=(start, Millis(start + length)), slack_ms=ROOM_MS),
            ppm=abs(span - length) * PPM // span,
        )


def _payable(offer: Offer, wish: Wish) -> int | UnsetType:
    """The longest time that the limit on the whole pays at the offer's ask."""
    ask = ask_of(offer, wish)
    if wish.total_max is None or not ask:
        return UNSET
    return wish.total_max * MS_PER_HOUR // (ask * wish.gpus)


_KINDS: Final[dict[str, Callable[[Offer, Wish], Iterator[Step]]]] = {
    "model": _model,
    "region": _region,
    "isolation": _isolation,
    "tier": _tier,
    "gpus": _gpus,
    "time": _time,
}
