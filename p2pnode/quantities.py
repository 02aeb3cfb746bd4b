"""Sizes, spans and money as people write them, to integers and back, never by way of a float.

A number without its unit is refused.
"""

import re
from typing import Final, NamedTuple

from protocol.errors import LocalFault
from protocol.limits import INT_MAX
from protocol.units import Mebibytes, Micros, MillisSpan

SIZE_EXAMPLE: Final = "24GB"
SPAN_EXAMPLE: Final = "10m"
SUM_EXAMPLE: Final = "1.20 USD"
RATE_EXAMPLE: Final = "0.38 USD/gpu-h"
ENERGY_EXAMPLE: Final = "0.30 USD/kWh"
WAITING_EXAMPLE: Final = "2 USD/h"
NEARNESS_EXAMPLE: Final = "0.001 USD/ms"
STEP_EXAMPLE: Final = "5%"
EXCHANGE_EXAMPLE: Final = "EUR=1.08 USD"
BANDWIDTH_EXAMPLE: Final = "500Mbit/s"

_SIZES: Final = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_SPANS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
"""Largest first, the order in which they are written."""

_NUMBER: Final = r"[0-9]{1,19}(?:\.[0-9]{1,19})?"
_BARE: Final = re.compile(rf"{_NUMBER}")
_SIZE: Final = re.compile(rf"({_NUMBER})\s*({'|'.join(_SIZES)})")
_SPAN: Final = re.compile(r"\s*".join(rf"(?:({_NUMBER})\s*{unit})?" for unit in _SPANS))
_BANDWIDTHS: Final = {"kbit/s": 1, "Mbit/s": 10**3, "Gbit/s": 10**6}
_BANDWIDTH: Final = re.compile(rf"({_NUMBER})\s*({'|'.join(_BANDWIDTHS)})")
_MONEY: Final = re.compile(rf"({_NUMBER})\s*([A-Z]{{3,4}})")
_PER_GPU_HOUR: Final = "/gpu-h"
_PER_KWH: Final = "/kWh"
_PER_HOUR: Final = "/h"
_PER_MS: Final = "/ms"


class Money(NamedTuple):
    """A sum in millionths of the currency `code`: ISO 4217, or TEST in test networks."""

    micros: Micros
    code: str


class Exchange(NamedTuple):
    """What one unit of the currency `code` is worth in another one."""

    code: str
    worth: Money


def parse_exchange(text: str) -> Exchange:
    """The rate in a text like `EUR=1.08 USD`. Raises LocalFault."""
    code, sign, worth = text.strip().partition("=")
    if not sign or not re.fullmatch(r"[A-Z]{3,4}", code.strip()):
        raise _unread(text, "rate of exchange", f"write for example {EXCHANGE_EXAMPLE}")
    money = parse_sum(worth)
    if money.code == code.strip() or money.micros == 0:
        raise _unread(text, "rate of exchange", f"write for example {EXCHANGE_EXAMPLE}")
    return Exchange(code.strip(), money)


def format_exchange(rate: Exchange) -> str:
    """`EUR=1.08 USD`."""
    return f"{rate.code}={format_money(*rate.worth)}"


def parse_bandwidth(text: str) -> int:
    """The kilobits per second in a text like `500Mbit/s`. Raises LocalFault."""
    found = _BANDWIDTH.fullmatch(text.strip())
    if not found:
        raise _unread(text, "bandwidth", f"write for example {BANDWIDTH_EXAMPLE}")
    return _whole(text, found[1], scale=_BANDWIDTHS[found[2]], least="a kilobit per second")


def parse_size(text: str) -> int:
    """The bytes in a text like `24GB` (10**9) or `24GiB` (2**30).

    Raises LocalFault if it has no unit, another form, or is no whole number of bytes.
    """
    found = _SIZE.fullmatch(text.strip())
    if not found:
        raise _unread(text, "size", f"write for example {SIZE_EXAMPLE}, 24GiB or 1.5TB")
    return _whole(text, found[1], scale=_SIZES[found[2]], least="one byte")


def mib_ceil(size: int) -> Mebibytes:
    """The least MiB that hold `size` bytes: for what is wished."""
    return Mebibytes(-(-size // 2**20))


def mib_floor(size: int) -> Mebibytes:
    """The most MiB within `size` bytes: for what is offered."""
    return Mebibytes(size // 2**20)


def parse_span(text: str) -> MillisSpan:
    """The milliseconds in a text like `90s`, `7d` or `1h30m`; larger units come first.

    Raises LocalFault if it has no unit, another form, or is no whole number of milliseconds.
    """
    found = _SPAN.fullmatch(text.strip())
    if not found or found.lastindex is None:
        raise _unread(text, "span of time", f"write for example 90s, {SPAN_EXAMPLE}, 1h30m or 7d")
    parts = zip(found.groups(), _SPANS.values(), strict=True)
    span = sum(_whole(text, part, scale=ms, least="one millisecond") for part, ms in parts if part)
    return MillisSpan(_bounded(text, span))


def format_span(span: MillisSpan) -> str:
    """The span in the largest whole units: `1h30m`, and `0s` for none."""
    texts, rest = [], int(span)
    for unit, ms in _SPANS.items():
        count, rest = divmod(rest, ms)
        if count:
            texts.append(f"{count}{unit}")
    return "".join(texts) or "0s"


def parse_sum(text: str) -> Money:
    """The money in a text like `1.20 USD`.

    Raises LocalFault if it has no currency, another form, or is finer than a millionth.
    """
    cure = f"write for example {SUM_EXAMPLE}, the currency in capitals"
    if text.strip().endswith(_PER_GPU_HOUR):
        raise LocalFault(f"{_shown(text)} is a rate, and a sum is asked for.", cure)
    return _money(text, text.strip(), wanted="sum", cure=cure)


def parse_rate(text: str) -> Money:
    """The price of one GPU for one hour in a text like `0.38 USD/gpu-h`.

    Raises LocalFault if it is not per GPU-hour, or as `parse_sum` does.
    """
    cure = f"write for example {RATE_EXAMPLE}, the currency in capitals"
    amount = text.strip().removesuffix(_PER_GPU_HOUR)
    if amount == text.strip() and _MONEY.fullmatch(amount):
        raise LocalFault(f"{_shown(text)} does not say for how long.", cure)
    return _money(text, amount, wanted="rate", cure=cure)


def parse_energy(text: str) -> Money:
    """The price of one kilowatt-hour in a text like `0.30 USD/kWh`. Raises LocalFault."""
    cure = f"write for example {ENERGY_EXAMPLE}"
    amount = text.strip().removesuffix(_PER_KWH)
    if amount == text.strip() and _MONEY.fullmatch(amount):
        raise LocalFault(f"{_shown(text)} does not say for how much energy.", cure)
    return _money(text, amount, wanted="price of energy", cure=cure)


def parse_waiting(text: str) -> Money:
    """What an hour costs somebody who waits, in a text like `2 USD/h`. Raises LocalFault."""
    return _per(text, _PER_HOUR, wanted="price of an hour", example=WAITING_EXAMPLE)


def parse_nearness(text: str) -> Money:
    """What a millisecond of distance costs, in a text like `0.001 USD/ms`. Raises LocalFault."""
    return _per(text, _PER_MS, wanted="price of a millisecond", example=NEARNESS_EXAMPLE)


def _per(text: str, unit: str, *, wanted: str, example: str) -> Money:
    amount = text.strip().removesuffix(unit)
    cure = f"write for example {example}"
    if amount == text.strip():
        raise _unread(text, wanted, cure)
    return _money(text, amount, wanted=wanted, cure=cure)


def parse_percent(text: str) -> int:
    """The millionths in a text like `2.5%`. Raises LocalFault."""
    number = text.strip().removesuffix("%").strip()
    if number == text.strip() or not _BARE.fullmatch(number):
        raise LocalFault(f"{_shown(text)} is no percentage.", f"write for example {STEP_EXAMPLE}")
    return _whole(text, number, scale=10**4, least="a millionth")


def format_percent(ppm: int) -> str:
    """The millionths as `2.5%`."""
    whole, fraction = divmod(ppm, 10**4)
    return f"{whole}.{fraction:04}".rstrip("0").rstrip(".") + "%"


def format_energy(price: Money) -> str:
    """The price of one kilowatt-hour: `0.30 USD/kWh`."""
    return format_money(*price) + _PER_KWH


def format_money(micros: Micros, code: str) -> str:
    """The sum with two to six decimals: `0.38 USD`, `-0.000001 TEST`."""
    whole, fraction = divmod(abs(micros), 10**6)
    decimals = f"{fraction:06}".rstrip("0").ljust(2, "0")
    return f"{'-' if micros < 0 else ''}{whole}.{decimals} {code}"


def format_rate(rate: Money) -> str:
    """The price of one GPU for one hour: `0.38 USD/gpu-h`."""
    return format_money(*rate) + _PER_GPU_HOUR


def _money(text: str, amount: str, *, wanted: str, cure: str) -> Money:
    found = _MONEY.fullmatch(amount)
    if not found:
        raise _unread(text, wanted, cure)
    if len(found[1].partition(".")[2]) > 6:
        raise LocalFault(
            f"{_shown(text)} goes below a millionth, the least sum there is.",
            "write at most 6 decimals",
        )
    return Money(Micros(_whole(text, found[1], scale=10**6, least="a millionth")), found[2])


def _whole(text: str, number: str, *, scale: int, least: str) -> int:
    """The decimal `number` times `scale`, which must come out whole."""
    before, _, after = number.partition(".")
    units, rest = divmod(int(before + after) * scale, 10 ** len(after))
    if rest:
        raise LocalFault(
            f"{_shown(text)} does not come out at whole units of {least}.",
            "write fewer decimals or a smaller unit",
        )
    return _bounded(text, units)


def _bounded(text: str, value: int) -> int:
    if value > INT_MAX:
        raise LocalFault(f"{_shown(text)} is more than can be counted.", "write a smaller value")
    return value


def _unread(text: str, wanted: str, cure: str) -> LocalFault:
    if _BARE.fullmatch(text.strip()):
        return LocalFault(f"{_shown(text)} has no unit.", cure)
    return LocalFault(f"{_shown(text)} is not a {wanted}.", cure)


def _shown(text: str) -> str:
    return f'"{text[:40]}"' if text[:40].isprintable() else ascii(text[:40])
