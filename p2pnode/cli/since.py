"""`--since`: how far a command looks back, or until when it watches."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from p2pnode.clock import SystemClock
from p2pnode.quantities import parse_span

F = TypeVar("F", bound=Callable[..., Any])


def since_option(usual: str) -> Callable[[F], F]:
    """`--since SPAN`, which becomes the instant `since_ms`."""

    def earlier(_context: click.Context, _option: click.Parameter, text: str) -> int:
        return max(1, SystemClock().now() - parse_span(text))

    return click.option(
        "--since",
        "since_ms",
        default=usual,
        show_default=True,
        callback=earlier,
        help="How far back, for example 24h or 7d.",
    )


def for_option(command: F) -> F:
    """`--for SPAN`: how long to watch, in milliseconds; without, until Ctrl-C."""

    def span(_context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
        return None if text is None else parse_span(text)

    return click.option(
        "--for", "for_ms", callback=span, help="Watch so long; without, until Ctrl-C."
    )(command)
