"""Which offers fit a wish, and how many fail for what. Relaxing a wish never loses a fit."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from p2pnode.matching.book import Offer
from protocol.advert import Tier, ask_for
from protocol.units import Mebibytes, Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a renter looks for; what is None or empty asks for nothing."""

    gpus: int = 1
    vram_min: Mebibytes | None = None
    models: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    tier: Tier = "silver"
    ask_max: Micros | None = None
    money: str | None = None
    may_be_busy: bool = False
    """Also where all is leased: a better tier takes it back from bronze."""


@dataclass(frozen=True, slots=True)
class Found:
    """The offers that fit, cheapest first, and for the others the first thing that fails."""

    fits: list[Offer] = field(default_factory=list)
    misfits: dict[str, int] = field(default_factory=dict)


def search(offers: Iterable[Offer], wish: Wish) -> Found:
    """Every offer is in exactly one place of the answer."""
    found = Found()
    for offer in offers:
        why = misfit(offer, wish)
        if why is None:
            found.fits.append(offer)
        else:
            found.misfits[why] = found.misfits.get(why, 0) + 1
    found.fits.sort(key=lambda offer: (ask_for(offer.advert, wish.tier) or 0, offer.head[0]))
    return found


def misfit(offer: Offer, wish: Wish) -> str | None:
    """The first reason for which the offer does not fit, in a word; None if it fits."""
    advert = offer.advert
    if wish.models and not any(is_model(advert.model, name) for name in wish.models):
        return "model"
    if wish.vram_min is not None and advert.vram_mib < wish.vram_min:
        return "vram"
    if wish.regions and advert.region not in wish.regions:
        return "region"
    if (advert.units if wish.may_be_busy else advert.free) < wish.gpus:
        return "busy" if advert.units >= wish.gpus else "gpus"
    if wish.tier not in {ask.tier for ask in advert.tiers}:
        return "tier"
    if wish.money is not None and advert.money != wish.money:
        return "money"
    ask = ask_for(advert, wish.tier)
    if wish.ask_max is not None and ask is not None and ask > wish.ask_max:
        return "price"
    return None


def is_model(model: str, name: str) -> bool:
    """Whether people would call this GPU by that name: RTX4090 is "NVIDIA GeForce RTX 4090"."""
    return _plain(name) in _plain(model)


def _plain(text: str) -> str:
    return "".join(letter for letter in text.lower() if letter.isalnum())
