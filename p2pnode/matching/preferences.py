"""What a renter would rather have: it ranks offers and rules none out.

A preference is a wish for one thing. An offer without it counts as dearer by its share.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from p2pnode.matching.book import Offer
from p2pnode.matching.drivers import compute_of, version_of
from p2pnode.matching.search import FILTERS, NOTHING_KNOWN, Filter, Known, Wish
from p2pnode.quantities import mib_ceil, parse_size, parse_span
from p2pnode.regions import regions_of
from protocol.answers import ISOLATIONS
from protocol.errors import LocalFault

PPM: Final = 1_000_000
USUAL_PPM: Final = 50_000
"""An offer without what is preferred is taken if it is more than 5 % cheaper."""
_FORM: Final = re.compile(r"([a-z]+)=([^:]{1,64})(?::([0-9]{1,3})%)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """One of them."""

    filter: Filter
    wish: Wish
    ppm: int


def unmet_ppm(offer: Offer, preferences: Sequence[Preference], known: Known = NOTHING_KNOWN) -> int:
    """By how many millionths an offer counts as dearer for what it lacks; at most twice as dear."""
    unmet = sum(each.ppm for each in preferences if each.filter.fails(offer, each.wish, known))
    return min(PPM, unmet)


def preference_of(text: str) -> Preference:
    """What `region=EU` or `model=H100:20%` prefers. Raises LocalFault."""
    found = _FORM.fullmatch(text.strip())
    if found is None or found[1] not in _READ:
        raise LocalFault(
            f"{text[:60]!a} is no preference.",
            f"KEY=VALUE or KEY=VALUE:20%, where KEY is one of {', '.join(_READ)}",
        )
    share = USUAL_PPM if found[3] is None else min(PPM, int(found[3]) * PPM // 100)
    by = next(each for each in FILTERS if each.name == found[1])
    return Preference(filter=by, wish=_READ[found[1]](found[2]), ppm=share)


def _isolation(text: str) -> Wish:
    for each in ISOLATIONS:
        if each == text:
            return Wish(isolation_min=each)
    raise LocalFault(f"{text!a} is no isolation.", f"one of {', '.join(ISOLATIONS)}")


def _driver(text: str) -> Wish:
    version = version_of(text)
    if version is None:
        raise LocalFault(f"{text!a} is no version of a driver.", "driver=550.54.14")
    return Wish(driver_min=version)


def ppm_of(text: str) -> int:
    """`0.99` in millionths. Raises LocalFault if it is not from 0 to 1."""
    if not re.fullmatch(r"[01]?(\.[0-9]{0,6})?", text) or not any(map(str.isdigit, text)):
        raise LocalFault(f"{text[:20]!a} is no share from 0 to 1.", "write for example 0.99")
    whole, _, part = text.partition(".")
    ppm = int(whole or "0") * PPM + int(part.ljust(6, "0"))
    if ppm > PPM:
        raise LocalFault(f"{text[:20]!a} is no share from 0 to 1.", "write for example 0.99")
    return ppm


_READ: Final[dict[str, Callable[[str], Wish]]] = {
    "region": lambda text: Wish(regions=regions_of([text])),
    "model": lambda text: Wish(models=(text,)),
    "vram": lambda text: Wish(vram_min=mib_ceil(parse_size(text))),
    "memory": lambda text: Wish(memory_mib_min=mib_ceil(parse_size(text))),
    "isolation": _isolation,
    "driver": _driver,
    "compute": lambda text: Wish(compute_min=compute_of(text)),
    "rtt": lambda text: Wish(rtt_ms_max=parse_span(text)),
    "reliability": lambda text: Wish(reliability_ppm_min=ppm_of(text)),
}
