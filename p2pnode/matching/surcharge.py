"""What an owner adds for a job that leaves its host in pieces nobody can use. Pure, in integers.

The fragment of a host is the part of its free GPUs that the next request, drawn from what is
usually asked, could not use: all of it if the request does not fit at all, else the GPUs with too
little left. A job is charged for the fragment that it makes. So owners who know nothing of each
other pack as one scheduler would that sees all (fragmentation gradient descent).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from protocol.advert import Surcharge
from protocol.limits import INT_MAX, LEASE_UNITS_MAX, SURCHARGES_MAX
from protocol.scoring import PPM

WHOLE: Final = 1_000
"""Thousandths of a GPU."""
STRENGTH_PPM: Final = 1_000_000
"""A job that makes as much unusable as it uses itself pays twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What is free of a host."""

    gpus: tuple[int, ...]
    """Thousandths of each GPU."""
    cpus_milli: int
    memory_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What one kind of request takes of one host, and how often it comes."""

    gpus: int
    milli: int = WHOLE
    """Of each GPU; less than a whole one only for one GPU."""
    cpus_milli: int = 0
    memory_mib: int = 0
    weight: int = 1

    @property
    def demand(self) -> int:
        """Thousandths of GPUs in all."""
        return self.gpus * self.milli


def places_in(room: Room, shape: Shape) -> list[Room]:
    """What would be left, for each way in which the host could take it; empty if it cannot.

    A part of a GPU may be of any that has it; whole ones are the first that are free.
    """
    if room.cpus_milli < shape.cpus_milli or room.memory_mib < shape.memory_mib:
        return []
    fit = [at for at, free in enumerate(room.gpus) if free >= shape.milli]
    if len(fit) < shape.gpus:
        return []
    ways = [fit[: shape.gpus]] if shape.milli == WHOLE else [[at] for at in fit]
    left = []
    for way in ways:
        gpus = tuple(free - shape.milli if at in way else free for at, free in enumerate(room.gpus))
        left.append(
            replace(
                room,
                gpus=gpus,
                cpus_milli=room.cpus_milli - shape.cpus_milli,
                memory_mib=room.memory_mib - shape.memory_mib,
            )
        )
    return left


def fragment(room: Room, usual: Sequence[Shape]) -> int:
    """Thousandths of GPUs that the next request could not use, times all weights."""
    total = 0
    for shape in usual:
        fits = (
            room.cpus_milli >= shape.cpus_milli
            and room.memory_mib >= shape.memory_mib
            and sum(free >= shape.milli for free in room.gpus) >= shape.gpus
        )
        least = shape.milli if fits else WHOLE + 1
        total += shape.weight * sum(free for free in room.gpus if free < least)
    return total


def surcharge_ppm(
    room: Room, shape: Shape, usual: Sequence[Shape], *, strength_ppm: int = STRENGTH_PPM
) -> int | None:
    """What is added to the price of this job, in millionths, if it goes where it harms least.

    None if the host cannot take it.
    """
    ways = places_in(room, shape)
    if not ways:
        return None
    made = min(fragment(left, usual) for left in ways) - fragment(room, usual)
    weights = sum(each.weight for each in usual)
    if made <= 0 or not shape.demand:
        return 0
    return made * strength_ppm // (weights * shape.demand)


def surcharges(
    free: int,
    usual: Sequence[Shape],
    *,
    strength_ppm: int = STRENGTH_PPM,
    most_ppm: int = INT_MAX,
) -> tuple[Surcharge, ...]:
    """What an advert says for jobs of more and more whole GPUs; empty where nothing is added.

    Never more than `most_ppm`, since what is usual is what renters say that they want.
    Of an owner that shares no GPU and whose cores and memory are not what is short.
    """
    room = Room(gpus=(WHOLE,) * free, cpus_milli=0, memory_mib=0)
    plain = [replace(shape, cpus_milli=0, memory_mib=0) for shape in usual]
    steps: list[Surcharge] = []
    for gpus in range(1, min(free, LEASE_UNITS_MAX, SURCHARGES_MAX) + 1):
        made = surcharge_ppm(room, Shape(gpus=gpus), plain, strength_ppm=strength_ppm) or 0
        ppm = min(made, most_ppm)
        if ppm != (steps[-1].ppm if steps else 0):
            steps.append(Surcharge(units=gpus, ppm=ppm))
    return tuple(steps)


assert STRENGTH_PPM == PPM
