"""How a value of config.toml becomes one of ours. Each raises ValueError, or LocalFault."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from p2pnode.opening import check_date, check_zone, parse_opening
from p2pnode.quantities import (
    Exchange,
    Money,
    mib_floor,
    parse_bandwidth,
    parse_energy,
    parse_exchange,
    parse_percent,
    parse_rate,
    parse_size,
    parse_span,
    parse_sum,
)
from p2pnode.screening import RULES_MAX, Kind, Rule, check_rule
from protocol.units import Mebibytes, MillisSpan

RATES_MAX: Final = 32
"""As p2pnode.matching.order.Choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key: what its value is read by, what that wants, and a right value as TOML."""

    read: Callable[[object], object]
    """Raises ValueError, or LocalFault with more to say, if the TOML value is not one."""
    wanted: str
    example: str


def read_text(pattern: str) -> Callable[[object], str]:
    """One that has this pattern."""

    def read(value: object) -> str:
        if not isinstance(value, str) or not re.search(pattern, value):
            raise ValueError
        return value

    return read


any_text: Final = read_text("")


def read_list(pattern: str, *, most: int) -> Callable[[object], tuple[str, ...]]:
    """At most so many different ones of this pattern."""
    item = read_text(pattern)

    def read(value: object) -> tuple[str, ...]:
        if not isinstance(value, list) or len(value) > most:
            raise ValueError
        items = tuple(item(one) for one in value)
        if len(dict.fromkeys(items)) < len(items):
            raise ValueError
        return items

    return read


def read_some_of(words: Sequence[str]) -> Callable[[object], tuple[str, ...]]:
    """At least one of the words, put into the order that they have here."""
    listed = read_list(rf"\A({'|'.join(words)})\Z", most=len(words))

    def read(value: object) -> tuple[str, ...]:
        found = listed(value)
        if not found:
            raise ValueError
        return tuple(word for word in words if word in found)

    return read


def read_flag(value: object) -> bool:
    """True or false."""
    if value is not True and value is not False:
        raise ValueError
    return value is True


def read_number(least: int, most: int) -> Callable[[object], int]:
    """A whole number within these bounds."""

    def read(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ValueError
        return value

    return read


def read_span(least: str, most: str) -> Callable[[object], MillisSpan]:
    """A span of time within these bounds."""
    bounds = parse_span(least), parse_span(most)

    def read(value: object) -> MillisSpan:
        span = parse_span(any_text(value))
        if not bounds[0] <= span <= bounds[1]:
            raise ValueError
        return span

    return read


def read_vram(value: object) -> Mebibytes:
    """A size in whole MiB."""
    mebibytes = mib_floor(parse_size(any_text(value)))
    if not 1 <= mebibytes <= 2**40:
        raise ValueError
    return mebibytes


def read_rate(value: object) -> Money:
    """A price of one GPU for one hour."""
    return parse_rate(any_text(value))


def read_sum(value: object) -> Money:
    """A sum of money."""
    return parse_sum(any_text(value))


def read_percent(least: str, most: str) -> Callable[[object], int]:
    """A percentage within these bounds, in millionths."""
    bounds = parse_percent(least), parse_percent(most)

    def read(value: object) -> int:
        ppm = parse_percent(any_text(value))
        if not bounds[0] <= ppm <= bounds[1]:
            raise ValueError
        return ppm

    return read


def read_energy(value: object) -> Money:
    """A price of one kilowatt-hour."""
    return parse_energy(any_text(value))


def read_hours(value: object) -> str:
    """Opening hours in their short form, as they were written."""
    text = any_text(value)
    parse_opening(text)
    return text


def read_zone(value: object) -> str:
    """The name of a time zone."""
    return check_zone(any_text(value))


def read_dates(value: object) -> tuple[str, ...]:
    """Different dates."""
    return tuple(map(check_date, read_list("", most=366)(value)))


def read_rules(kind: Kind) -> Callable[[object], tuple[str, ...]]:
    """Different patterns of what is allowed or denied."""
    listed = read_list("", most=RULES_MAX)

    def read(value: object) -> tuple[str, ...]:
        return tuple(check_rule(Rule("allow", kind, each)).pattern for each in listed(value))

    return read


def read_bandwidth(value: object) -> int:
    """A bandwidth in kbit/s."""
    kbit_s = parse_bandwidth(any_text(value))
    if not 1 <= kbit_s <= 10**12:
        raise ValueError
    return kbit_s


def read_rates(value: object) -> tuple[Exchange, ...]:
    """Rates of exchange, each of a pair once."""
    if not isinstance(value, list) or len(value) > RATES_MAX:
        raise ValueError
    rates = tuple(parse_exchange(any_text(item)) for item in value)
    if len({(rate.code, rate.worth.code): rate for rate in rates}) < len(rates):
        raise ValueError
    return rates
