"""A wish and an advert as two 64-bit words each, so that one comparison judges many constraints.

The words sieve: what fits always passes, and `misfit` has the last word on what passes. To add a
constraint is to add a line to AT_LEAST or ANY_OF.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from p2pnode.matching.gpu_names import may_be
from p2pnode.matching.search import Wish
from protocol.advert import Advert

BITS: Final = 64
VALUES_MAX: Final = 4_096
"""Different values of a property that are told apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtLeast:
    """A quantity of which a wish wants at least so much; beyond the field it counts as the most."""

    bits: int
    has: Callable[[Advert], int]
    wants: Callable[[Wish], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyOf:
    """A property that must be one of several. Each value has a bit; many values share some."""

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


class Seen:
    """Which bit stands for which value: the next one for each value that an advert brings."""

    def __init__(self) -> None:
        self._bits: tuple[dict[str, int], ...] = tuple({} for _ in ANY_OF)

    def properties_of(self, advert: Advert) -> int:
        """The word of an advert's properties: one bit for each value that it has."""
        word = 0
        for at, field, bits in zip(_ANY_AT, ANY_OF, self._bits, strict=True):
            for value in field.has(advert):
                if value not in bits and len(bits) <= VALUES_MAX:
                    bits[value] = len(bits) % field.bits
                word |= 1 << at + bits.get(value, 0)
        return word

    def properties_wanted(self, wish: Wish) -> list[int]:
        """A mask for each property that is wanted: one of its bits must be there.

        What all adverts so far have is no constraint, and what has too many values is left to the
        exact check.
        """
        masks = []
        for at, field, bits in zip(_ANY_AT, ANY_OF, self._bits, strict=True):
            wanted = field.wants(wish, bits) if len(bits) <= VALUES_MAX else None
            if wanted is None:
                continue
            known = [bits[value] for value in set(wanted) if value in bits]
            if len(known) < len(bits):
                masks.append(sum(1 << at + bit for bit in set(known)))
        return masks
