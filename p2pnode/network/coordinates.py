"""Network coordinates: how long a round trip to a peer would take that was never asked. Pure.

Vivaldi with a height (Dabek, Cox, Kaashoek, Morris: Vivaldi, a decentralized network coordinate
system, SIGCOMM 2004). A coordinate is a claim of the peer that states it: good enough to choose
whom to ask, never to choose who wins.
"""

import math
from dataclasses import dataclass
from random import Random
from typing import Final

COORDINATE_BYTES: Final = 20
_TUNING: Final = 0.25
"""Both constants of the paper, ce and cc."""
ERROR_MAX_PPM: Final = 1_000_000
_FAR_US: Final = 2_000_000
"""No path on earth takes longer; a coordinate that says so is a lie or a mistake."""
_RTT_LEAST_US: Final = 100


@dataclass(frozen=True, slots=True)
class Coordinate:
    """A place in which distances are round-trip times, and how much it may be off."""

    x_us: int = 0
    y_us: int = 0
    z_us: int = 0
    height_us: int = 0
    """What the last mile adds to every path."""
    error_ppm: int = ERROR_MAX_PPM


def distance_us(one: Coordinate, other: Coordinate) -> int:
    """The round trip that the two places predict, in microseconds."""
    return round(math.dist(_place(one), _place(other))) + one.height_us + other.height_us


def moved(own: Coordinate, other: Coordinate, rtt_us: int, rng: Random) -> Coordinate:
    """Our coordinate after a round trip to `other` took this long.

    `rng` gives the direction in which two peers at one place part.
    """
    rtt = max(_RTT_LEAST_US, min(rtt_us, _FAR_US))
    off = distance_us(own, other) - rtt
    # The one that is surer moves less.
    weight = own.error_ppm / max(1, own.error_ppm + other.error_ppm)
    share = _TUNING * weight
    error = share * min(abs(off) / rtt, 1.0) * ERROR_MAX_PPM + (1 - share) * own.error_ppm
    away: list[float] = [
        mine - theirs for mine, theirs in zip(_place(own), _place(other), strict=True)
    ]
    length = math.hypot(*away)
    if length < 1:
        away = [rng.gauss(0, 1) for _ in range(3)]
        length = math.hypot(*away)
    step = -share * off
    x, y, z = (
        _bounded(mine + step * part / length, -_FAR_US)
        for mine, part in zip(_place(own), away, strict=True)
    )
    total = max(1, distance_us(own, other))
    height = own.height_us + step * (own.height_us + other.height_us) / total
    # A height that is zero would never grow by its own share.
    height = max(height, step / 20, 0)
    return Coordinate(x, y, z, _bounded(height, 0), max(1, min(round(error), ERROR_MAX_PPM)))


def encode_coordinate(coordinate: Coordinate) -> bytes:
    """As adverts carry it. SPEC.md 8.6."""
    parts = [part.to_bytes(4, "big", signed=True) for part in _place(coordinate)]
    rest = [coordinate.height_us, coordinate.error_ppm]
    return b"".join([*parts, *(part.to_bytes(4, "big") for part in rest)])


def decode_coordinate(raw: bytes) -> Coordinate | None:
    """What an advert states; None for another scheme, and for places that are not on earth."""
    if len(raw) != COORDINATE_BYTES:
        return None
    parts = [raw[i : i + 4] for i in range(0, COORDINATE_BYTES, 4)]
    x, y, z = (int.from_bytes(part, "big", signed=True) for part in parts[:3])
    height, error = (int.from_bytes(part, "big") for part in parts[3:])
    found = Coordinate(x, y, z, height, error)
    is_near = all(abs(part) <= _FAR_US for part in (*_place(found), found.height_us))
    return found if is_near and 0 < found.error_ppm <= ERROR_MAX_PPM else None


def _place(coordinate: Coordinate) -> tuple[int, int, int]:
    return coordinate.x_us, coordinate.y_us, coordinate.z_us


def _bounded(value: float, least: int) -> int:
    return max(least, min(round(value), _FAR_US))
