"""`p2pnode ask`: the price that this node asks."""

from pathlib import Path

import click

from p2pnode.cli.client import get, post
from p2pnode.cli.output import home_option, json_option, print_document, say
from p2pnode.home import find_home
from p2pnode.quantities import format_money, format_span, parse_rate, parse_span
from protocol.units import MillisSpan


@click.group()
def ask() -> None:
    """See or set the price this node asks; pause it and resume."""


@ask.command()
@home_option
@json_option
def show(home: Path | None, as_json: bool) -> None:
    """What is offered, and at which price."""
    status = get(find_home(home).socket, "/v1/status")
    if as_json:
        print_document(
            {
                "schema": "p2pnode.ask.show/1",
                "micro_per_gpu_hour": status["ask_micro_per_gpu_hour"],
                "money": status["network"]["money"],
                "offered": status["offered"],
            }
        )
    else:
        say(*(status["offered"] or ["nothing is offered"]))


@ask.command("set")
@click.argument("price")
@home_option
@json_option
def set_price(price: str, home: Path | None, as_json: bool) -> None:
    """Ask PRICE per GPU-hour, for example '0.35 USD/gpu-h', until the node stops."""
    rate = parse_rate(price)
    answer = post(
        find_home(home).socket,
        "/v1/ask",
        {"micro_per_gpu_hour": rate.micros, "money": rate.code},
    )
    if as_json:
        print_document({"schema": "p2pnode.ask.set/1", **answer})
    else:
        say(f"ask {format_money(rate.micros, rate.code)}/gpu-h, applies {answer['applies']}")


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
