"""A wish and an advert as two 64-bit words each, so that one comparison judges many constraints.

The words sieve: what fits always passes, and `misfit` has the last word on what passes. To add a
constraint is to add a line to AT_LEAST or ANY_OF.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from p2pnode.matching.gpu_names import may_be
from p2pnode.matching.search import Wish
from protocol.advert import Advert

BITS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class AtLeast:
    """A quantity of which a wish wants at least so much; beyond the field it counts as the most."""

    bits: int
    has: Callable[[Advert], int]
    wants: Callable[[Wish], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyOf:
    """A property that must be one of several. Each value has a bit, and values may share one."""

    bits: int
    has: Callable[[Advert], Collection[str]]
    wants: Callable[[Wish, Collection[str]], Collection[str] | None]
    """wants(wish, values seen so far): which of them are wanted; None wants nothing of it."""


AT_LEAST: Final = (
    AtLeast(
        bits=7,
        has=lambda advert: advert.free,
        wants=lambda wish: 0 if wish.may_be_busy else wish.gpus,
    ),
    AtLeast(bits=7, has=lambda advert: advert.units, wants=lambda wish: wish.gpus),
    AtLeast(
        bits=16,
        has=lambda advert: advert.vram_mib >> 6,
        wants=lambda wish: (wish.vram_min or 0) >> 6,
    ),
)

ANY_OF: Final = (
    AnyOf(
        bits=4,
        has=lambda advert: (advert.money,),
        wants=lambda wish, _seen: None if wish.money is None else (wish.money,),
    ),
    AnyOf(
        bits=28,
        has=lambda advert: (advert.region,),
        wants=lambda wish, _seen: wish.regions or None,
    ),
    AnyOf(
        bits=32,
        has=lambda advert: (advert.model,),
        wants=lambda wish, seen: _models(wish, seen) if wish.models else None,
    ),
)


def _models(wish: Wish, seen: Collection[str]) -> list[str]:
    return [model for model in seen if any(may_be(model, name) for name in wish.models)]


def _places(widths: tuple[int, ...], gap: int) -> tuple[int, ...]:
    """Where each field begins, one behind the other with so many bits between them."""
    places = tuple(sum(widths[:n]) + gap * n for n in range(len(widths)))
    assert sum(widths) + gap * len(widths) <= BITS
    return places


_LEAST_AT: Final = _places(tuple(field.bits for field in AT_LEAST), 1)
_ANY_AT: Final = _places(tuple(field.bits for field in ANY_OF), 0)
GUARDS: Final = sum(1 << (at + field.bits) for at, field in zip(_LEAST_AT, AT_LEAST, strict=True))
"""A bit above each quantity. `(has | GUARDS) - wants` keeps all of them if no quantity is short,
because what is short borrows from its own guard."""


def quantities_of(advert: Advert) -> int:
    """The word of what an advert has, with its guards."""
    fields = zip(_LEAST_AT, AT_LEAST, strict=True)
    return GUARDS | sum(_held(field, field.has(advert)) << at for at, field in fields)


def quantities_wanted(wish: Wish) -> int:
    """The word of what a wish wants at least."""
    fields = zip(_LEAST_AT, AT_LEAST, strict=True)
    return sum(_held(field, field.wants(wish)) << at for at, field in fields)


def _held(field: AtLeast, value: int) -> int:
    return min(max(value, 0), (1 << field.bits) - 1)


def properties_of(advert: Advert) -> int:
    """The word of an advert's properties: one bit for each value that it has."""
    fields = zip(_ANY_AT, ANY_OF, strict=True)
    return sum(_mask(field, field.has(advert)) << at for at, field in fields)


def properties_wanted(wish: Wish, seen: tuple[Collection[str] | None, ...]) -> list[int]:
    """A mask for each property that is wanted: one of its bits must be there.

    `seen` has the values of each property that adverts had so far; None where they are too many.
    """
    masks = []
    for at, field, values in zip(_ANY_AT, ANY_OF, seen, strict=True):
        wanted = None if values is None else field.wants(wish, values)
        # What all adverts have is no constraint.
        if wanted is not None and not (values and set(wanted).issuperset(values)):
            masks.append(_mask(field, wanted) << at)
    return masks


def _mask(field: AnyOf, values: Collection[str]) -> int:
    mask = 0
    for value in values:
        mask |= 1 << (crc32(value.encode()) % field.bits)
    return mask
