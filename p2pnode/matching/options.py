"""A wish's constraints as the options that say them, so that a user can paste what would help."""

import shlex
from typing import Final

from p2pnode.matching.drivers import version_text
from p2pnode.matching.search import Wish
from p2pnode.matching.steps import VALUES, Step, Value
from p2pnode.quantities import Money, format_money, format_rate, format_span
from p2pnode.regions import named_region
from p2pnode.words import instant_words
from protocol.units import Micros, MillisSpan

_NAMES: Final = {"price": "max-price", "total": "max-total", "rtt": "max-rtt"}


def option_of_step(step: Step, *, stage_ms: MillisSpan) -> str:
    """The option that makes the step; of models and regions, one to add to those there are."""
    if step.name in {"model", "region"}:
        return f"--{step.name} {shlex.quote(str(step.value))}"
    if step.value is None:
        return f"without --{_NAMES.get(step.name, step.name)}"
    return option_of(step.name, step.wish, stage_ms=stage_ms)


def option_of(name: str, wish: Wish, *, stage_ms: MillisSpan) -> str:
    """The options that say this constraint of the wish.

    A job's lease is `stage_ms` longer than its limit, which is what `--time` says.
    """
    if name == "model":
        return " ".join(f"--model {shlex.quote(model)}" for model in wish.models)
    if name == "region":
        named = named_region(wish.regions)
        return " ".join(f"--region {code}" for code in ([named] if named else wish.regions))
    if name == "isolation":
        return f"--isolation {wish.isolation_min}"
    if name == "gpus":
        return f"--gpus {wish.gpus}"
    if name == "tier":
        return f"--tier {','.join(wish.tiers)}"
    if name in {"time", "closed"}:
        assert wish.during is not None
        span = wish.during[1] - wish.during[0] - stage_ms
        return f"--time {format_span(MillisSpan(max(1, span)))}"
    if name == "money":
        return f"in {wish.money}; others by [renting] rates"
    if name == "vram" and wish.plan is not None and wish.vram_min is not None:
        return wish.plan.options_for(wish.vram_min)
    if name not in VALUES:
        return name
    return f"--{_NAMES.get(name, name)} {_value(name, getattr(wish, VALUES[name]), wish)}"


def _value(name: str, value: Value, wish: Wish) -> str:
    if isinstance(value, tuple):
        return version_text(value) if name == "driver" else ".".join(map(str, value))
    if name in {"vram", "memory", "disk"}:
        return f"{value}MiB"
    if name in {"down", "up"}:
        return f"{value}kbit/s"
    if name == "price":
        return shlex.quote(format_rate(Money(Micros(value), wish.money or "?")))
    if name == "total":
        return shlex.quote(format_money(Micros(value), wish.money or "?"))
    if name == "deadline":
        return instant_words(value)
    if name == "rtt":
        return format_span(MillisSpan(value))
    if name == "reliability":
        return f"{value // 10**6}.{value % 10**6:06}".rstrip("0").rstrip(".")
    return str(value)
