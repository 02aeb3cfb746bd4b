"""Options by which a command says what kind of node it wants: the same for a job and a search."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import click

from p2pnode.clock import SystemClock
from p2pnode.quantities import (
    Money,
    mib_ceil,
    parse_bandwidth,
    parse_nearness,
    parse_rate,
    parse_size,
    parse_span,
    parse_sum,
    parse_waiting,
)
from protocol.errors import LocalFault

F = TypeVar("F", bound=Callable[..., Any])
TIERS: Final = ("silver", "bronze", "gold")

OPTIONS: Final = (
    click.option("--gpus", default=1, show_default=True, help="GPUs on one node."),
    click.option("--vram", help="Least memory of each GPU, for example 24GB."),
    click.option(
        "--model-vram",
        help="Memory that the model needs of each GPU: 16GiB asks for a GPU of 20GiB, so that "
        "--headroom stays free. In place of --vram.",
    ),
    click.option(
        "--headroom",
        help="Share of each GPU's memory that stays free beside --model-vram (default: 20%).",
    ),
    click.option("--model", multiple=True, help="What people call the GPU: H100, 4090, A100-80GB."),
    click.option("--region", multiple=True, help="Country, or a set as EU or EEA; repeatable."),
    click.option("--isolation", help="At least: process, container, hardened, gvisor, vm, tee."),
    click.option("--driver", help="Least version of the driver, for example 550.54."),
    click.option("--cuda", help="A CUDA version that the driver must run, for example 12.4."),
    click.option("--compute", help="Least CUDA compute capability, for example 8.9."),
    click.option("--down", help="Least bandwidth to the node, for example 500Mbit/s."),
    click.option("--up", help="Least bandwidth from the node."),
    click.option(
        "--tier",
        help="gold, silver, bronze, a list with commas, or any (silver or bronze). Without it "
        "silver; with --deadline any, whichever is expected to cost least and meets it. "
        "--no-preempt keeps bronze out.",
    ),
    click.option("--no-preempt", is_flag=True, help="No tier that may be interrupted."),
    click.option("--max-price", help="Most per GPU-hour, for example '0.45 USD/gpu-h'."),
    click.option("--max-total", help="Most for all of it, for example '1.20 USD'."),
    click.option("--deadline", help="Over by then: 8h from now, or 2026-12-24T20:00Z."),
    click.option("--reliability", help="Least share of leases kept, for example 0.97."),
    click.option("--max-rtt", help="Longest round trip to the node, for example 80ms."),
    click.option(
        "--prefer", multiple=True, help="Rank by: region=DE, rtt=40ms, model=H100:20%; repeatable."
    ),
)


def wanted_options(command: F) -> F:
    """All of them, in the order above."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def constraints_of(wanted: dict[str, Any]) -> dict[str, Any]:
    """The options as the API takes them; what was not said is left out. Raises LocalFault."""
    tier, *others = tiers_in(wanted)
    price, total = _limits(wanted)
    given = {
        "gpus": wanted["gpus"],
        "vram_mib_min": mib_ceil(parse_size(wanted["vram"])) if wanted["vram"] else None,
        "model_vram_mib": (
            mib_ceil(parse_size(wanted["model_vram"])) if wanted["model_vram"] else None
        ),
        "headroom_ppm": _share(wanted["headroom"], "--headroom 20%")
        if wanted["headroom"]
        else None,
        "models": list(wanted["model"]),
        "regions": list(wanted["region"]),
        "isolation_min": wanted["isolation"],
        "driver_min": wanted["driver"],
        "cuda_min": wanted["cuda"],
        "compute_min": wanted["compute"],
        "down_kbit_s_min": parse_bandwidth(wanted["down"]) if wanted["down"] else None,
        "up_kbit_s_min": parse_bandwidth(wanted["up"]) if wanted["up"] else None,
        "tier": tier,
        "or_tiers": others,
        "ask_micro_max": price.micros if price else None,
        "total_micro_max": total.micros if total else None,
        "end_by_ms": instant_of(wanted["deadline"]) if wanted["deadline"] else None,
        "reliability_ppm_min": _share(wanted["reliability"], "--reliability 0.97")
        if wanted["reliability"]
        else None,
        "rtt_ms_max": parse_span(wanted["max_rtt"]) if wanted["max_rtt"] else None,
        "prefer": list(wanted["prefer"]),
    }
    return {key: value for key, value in given.items() if value is not None and value != []}


def tiers_in(wanted: dict[str, Any]) -> list[str]:
    """The tiers that were named, or what is meant without. Raises LocalFault."""
    named: str | None = wanted["tier"]
    usual = "any" if wanted["deadline"] else "silver"
    return _tiers(named or usual, is_kept=wanted["no_preempt"])


def worth_of(wanted: dict[str, Any], money: str) -> dict[str, int]:
    """What waiting and distance cost the renter, as the API takes it: in the job's money.

    They rank, so that they must not rule out by their money. Raises LocalFault.
    """
    given: dict[str, int] = {}
    for name, (field, read) in _WORTH.items():
        if wanted[name]:
            sum_ = read(wanted[name])
            if sum_.code != money:
                option = f"--{name.replace('_', '-')}"
                raise LocalFault(
                    f"{option} is in {sum_.code}, and the job in {money}.",
                    f"say it in {money}, or a limit as --max-total in {sum_.code}",
                )
            given[field] = sum_.micros
    return given


_WORTH: Final[dict[str, tuple[str, Callable[[str], Money]]]] = {
    "value_of_time": ("delay_micro_per_hour", parse_waiting),
    "value_of_rtt": ("latency_micro_per_ms", parse_nearness),
}


def money_of(wanted: dict[str, Any]) -> str | None:
    """The money of the limits, if any are set. Raises LocalFault if they differ."""
    codes = list(dict.fromkeys(each.code for each in _limits(wanted) if each is not None))
    if len(codes) > 1:
        raise LocalFault(f"--max-price is in {codes[0]}, --max-total in {codes[1]}.", "use one")
    return codes[0] if codes else None


def _limits(wanted: dict[str, Any]) -> tuple[Money | None, Money | None]:
    return (
        parse_rate(wanted["max_price"]) if wanted["max_price"] else None,
        parse_sum(wanted["max_total"]) if wanted["max_total"] else None,
    )


def _tiers(text: str, *, is_kept: bool) -> list[str]:
    names = ["silver", "bronze"] if text == "any" else text.split(",")
    for name in names:
        if name not in TIERS:
            raise LocalFault(f"{text!r} is no tier", "gold, silver, bronze or any")
    kept = [name for name in dict.fromkeys(names) if not is_kept or name != "bronze"]
    if not kept:
        raise LocalFault("A bronze lease may be interrupted.", "--no-preempt with --tier silver")
    return kept


def instant_of(text: str) -> int:
    """Milliseconds of a time like 2026-12-24T20:00Z, or of one so long from now."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return SystemClock().now() + parse_span(text)
    if at.tzinfo is None:
        raise LocalFault(f"{text[:40]!a} names no time zone.", f"{text[:25]}Z")
    return round(at.astimezone(UTC).timestamp() * 1_000)


def _share(text: str, example: str) -> int:
    """`0.97` in millionths, `97%` too. Raises LocalFault."""
    number, scale = (text[:-1], 4) if text.endswith("%") else (text, 6)
    whole, _, part = number.partition(".")
    if not (whole + part).isdigit() or len(part) > scale:
        raise LocalFault(f"{text[:20]!a} is no share.", example)
    ppm: int = int(whole or "0") * 10**scale + int(part.ljust(scale, "0") or "0")
    if ppm > 10**6:
        raise LocalFault(f"{text[:20]!a} is more than all.", example)
    return ppm
