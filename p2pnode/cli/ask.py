"""`p2pnode ask`: the price that this node asks."""

from pathlib import Path
from typing import Any

import click

from p2pnode.cli.client import get, post
from p2pnode.cli.output import (
    home_option,
    json_option,
    note,
    print_document,
    print_table,
    say,
)
from p2pnode.cli.since import since_option
from p2pnode.home import find_home
from p2pnode.quantities import (
    format_money,
    format_percent,
    format_span,
    parse_percent,
    parse_rate,
    parse_span,
)
from p2pnode.words import instant_words
from protocol.errors import LocalFault
from protocol.units import MillisSpan


@click.group()
def ask() -> None:
    """See or set the price this node asks; pause it and resume."""


@ask.command()
@home_option
@json_option
def show(home: Path | None, as_json: bool) -> None:
    """What is offered, at which price and why, and when."""
    document = get(find_home(home).socket, "/v1/ask")
    if as_json:
        print_document(document)
        return
    say(*(document["offered"] or ["nothing is offered"]))
    if document["items"]:
        print_table(
            ("GPU", "TIER", "ASK/GPU-H", "FLOOR", "BY"),
            [_row(item, document["money"]) for item in document["items"]],
        )
    note(*_notes(document))


def _row(item: dict[str, Any], money: str) -> tuple[str, ...]:
    return (
        item["model"],
        item["tier"],
        format_money(item["ask_micro"], money),
        format_money(item["floor_micro"], money) if item["floor_micro"] else "-",
        item["why"],
    )


def _notes(document: dict[str, Any]) -> list[str]:
    lines = []
    if document["origin"] == "ask set":
        lines.append(
            f"set at {instant_words(document['set_ms'])}, before config.toml; "
            "undo: p2pnode ask reset"
        )
    if document["gold_remedy_ppm"] is not None:
        share = format_percent(document["gold_remedy_ppm"])
        lines.append(f"gold lets off {share} of a lease's whole price if this host fails its job")
    if document["paused"]:
        until = document["paused_until_ms"]
        lines.append(
            "paused until "
            + ("" if until is None else f"{instant_words(until)} or ")
            + "p2pnode ask resume"
        )
    if document["kept"]:
        loads = [f"{item['load_ppm'] // 10_000} %" for item in document["own_use"]]
        seen = f" (load {', '.join(loads)})" if loads else ""
        lines.append(
            f"{document['kept']} GPUs in own use{seen}, kept from renters; not so: "
            "p2pnode ask yield never"
        )
    if not document["open_now"]:
        lines.append("closed now; p2pnode window test --next 3d shows when it opens")
    elif document["open_until_ms"] is not None:
        lines.append(f"open until {instant_words(document['open_until_ms'])}")
    return lines


@ask.command("set")
@click.argument("price", required=False)
@click.option("--floor", help="Least price that moves may come to.")
@click.option(
    "--tier", type=click.Choice(["gold", "silver", "bronze"]), default="silver", show_default=True
)
@click.option("--strategy", help="fixed, cost-plus, or market-p40 for the 40th of 100 asks.")
@click.option(
    "--remedy",
    help="Part of a gold lease's whole price that is let off if this host fails its job: "
    "1% to 100%; for new leases only.",
)
@click.option("--by-use/--not-by-use", default=None, help="Whether use moves the price.")
@home_option
@json_option
def set_price(
    price: str | None,
    floor: str | None,
    tier: str,
    strategy: str | None,
    remedy: str | None,
    by_use: bool | None,
    home: Path | None,
    as_json: bool,
) -> None:
    """Ask PRICE per GPU-hour, for example '0.35 USD/gpu-h', until it is set anew or `reset`.

    Tiers without a price of their own follow silver: gold is 125 % of it, bronze half.
    """
    rates = {"micro_per_gpu_hour": price, "floor_micro": floor}
    change: dict[str, Any] = {"tier": tier, "strategy": strategy, "by_use": by_use}
    if remedy is not None:
        change["gold_remedy_ppm"] = parse_percent(remedy)
    for key, text in rates.items():
        if text is not None:
            rate = parse_rate(text)
            change |= {key: rate.micros, "money": rate.code}
    if set(change.values()) == {None, tier}:
        raise LocalFault("Nothing is to be set.", "p2pnode ask set '0.35 USD/gpu-h'")
    if price and floor and parse_rate(price).code != parse_rate(floor).code:
        raise LocalFault("Ask and floor are in different money.", "name one money for both")
    answer = post(find_home(home).socket, "/v1/ask", change)
    if as_json:
        print_document(answer)
    else:
        named = (floor and f"floor {floor}", strategy, remedy and f"remedy {remedy}")
        what = " ".join(filter(None, (tier, price, *named)))
        say(f"ask {what}, applies {answer['applies']}")


@ask.command()
@home_option
@json_option
def reset(home: Path | None, as_json: bool) -> None:
    """Forget what was set: ask as config.toml says."""
    answer = post(find_home(home).socket, "/v1/ask/reset", {})
    if as_json:
        print_document(answer)
    else:
        say(f"ask as config.toml says, applies {answer['applies']}")


@ask.command()
@click.option("--floor", "floors", multiple=True, help="Silver price to try; may be repeated.")
@since_option("7d")
@home_option
@json_option
def simulate(floors: tuple[str, ...], since_ms: int, home: Path | None, as_json: bool) -> None:
    """Say what other prices would have come to, by the requests that this node saw."""
    rates = [parse_rate(text) for text in floors]
    where = find_home(home).socket
    money = get(where, "/v1/ask")["money"]
    for rate in rates:
        if rate.code != money:
            raise LocalFault(
                f"this node asks in {money}, not in {rate.code}", f"--floor '0.28 {money}/gpu-h'"
            )
    document = get(
        where, "/v1/ask/simulate", floor_micro=[rate.micros for rate in rates], since_ms=since_ms
    )
    if as_json:
        print_document(document)
        return
    print_table(
        ("FLOOR", "LEASES", "FILL", "UTIL", "GROSS", "ENERGY", "NET"),
        [_simulated(item, money) for item in document["items"]],
    )
    note(
        f"replayed from {document['seen']} requests that this node saw; rivals' answers held "
        "fixed, and each lease as long as it was asked for"
    )


def _simulated(item: dict[str, Any], money: str) -> tuple[str, ...]:
    sums = [item[key] for key in ("silver_micro", "gross_micro", "energy_micro", "net_micro")]
    floor, gross, energy, net = (
        "-" if micros is None else format_money(micros, money) for micros in sums
    )
    return (
        "as bid" if item["silver_micro"] is None else floor,
        str(item["leases"]),
        f"{item['fill_ppm'] / 10_000:.0f} %",
        f"{item['use_ppm'] / 10_000:.0f} %",
        gross,
        energy,
        net,
    )


@ask.command("yield")
@click.argument("mode", type=click.Choice(["auto", "never", "now"]))
@home_option
@json_option
def yield_to_me(mode: str, home: Path | None, as_json: bool) -> None:
    """Keep GPUs that you use yourself from renters: when it is seen, never, or all of them now.

    No new leases there, and bronze is asked to yield. It holds until it is set anew.
    """
    answer = post(find_home(home).socket, "/v1/use", {"mode": mode})
    if as_json:
        print_document(answer)
    else:
        say(f"own use {mode}, applies {answer['applies']}")


@ask.command()
@click.option("--for", "span", help="End by itself after so long; else it lasts until `resume`.")
@home_option
@json_option
def pause(span: str | None, home: Path | None, as_json: bool) -> None:
    """Offer nothing until `resume`, across restarts too; leases that run go on."""
    milliseconds = None if span is None else parse_span(span)
    document = post(find_home(home).socket, "/v1/pause", {"for_ms": milliseconds})
    if as_json:
        print_document(document)
    elif milliseconds is None:
        say("paused until: p2pnode ask resume")
    else:
        say(f"paused for {format_span(MillisSpan(milliseconds))}, or until: p2pnode ask resume")


@ask.command()
@home_option
@json_option
def resume(home: Path | None, as_json: bool) -> None:
    """End a pause."""
    document = post(find_home(home).socket, "/v1/resume", {})
    if as_json:
        print_document(document)
    else:
        say("offered again, in the hours of: p2pnode window list")
