"""Figures, bars and how both are shown; measures nothing itself."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NoReturn

import click

from p2pnode.cli.output import print_document, print_table

SCHEMA: Final = "p2pnode.bench/1"
EXIT_OVER_A_BAR: Final = 1

Figures = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One promise: a figure, its bound, and which side of the bound is the good one."""

    name: str
    value: float
    bound: float
    better: Literal["less", "more"]

    @property
    def holds(self) -> bool:
        """Whether the figure is on the good side; at the bound it is. No figure (NaN) is not."""
        return self.value <= self.bound if self.better == "less" else self.value >= self.bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What people read."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of one benchmark."""

    name: str
    figures: Figures
    bars: tuple[Bar, ...]
    table: Table | None = None

    @property
    def holds(self) -> bool:
        """Whether every bar does."""
        return all(bar.holds for bar in self.bars)


def at_most(name: str, value: float, bound: float) -> Bar:
    """A figure that must not be larger than `bound`."""
    return Bar(name=name, value=value, bound=bound, better="less")


def at_least(name: str, value: float, bound: float) -> Bar:
    """A figure that must not be smaller than `bound`."""
    return Bar(name=name, value=value, bound=bound, better="more")


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that `share` of all do not exceed; NaN of none."""
    if not values:
        return math.nan
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def machine() -> Figures:
    """What else decides over figures: the cores we may use, and how busy they are."""
    return {"cores": len(os.sched_getaffinity(0)), "load_1min": round(os.getloadavg()[0], 1)}


def document_of(report: Report) -> dict[str, Any]:
    """The report as `--json` prints it; a figure that could not be taken is null."""
    return {
        "schema": SCHEMA,
        "name": report.name,
        "figures": {name: _plain(value) for name, value in report.figures.items()},
        "bars": [
            {
                "name": bar.name,
                "value": _plain(bar.value),
                "bound": bar.bound,
                "better": bar.better,
                "holds": bar.holds,
            }
            for bar in report.bars
        ],
    }


def show(report: Report) -> None:
    """Print the report for people."""
    if report.table is not None:
        print_table(report.table.header, report.table.rows)
        click.echo()
    plain = {name: value for name, value in report.figures.items() if not _is_nested(value)}
    print_table(("FIGURE", "VALUE"), [(name, _text(value)) for name, value in plain.items()])
    click.echo()
    print_table(
        ("BAR", "VALUE", "BOUND", "HOLDS"),
        [
            (
                bar.name,
                _text(bar.value),
                f"{'<=' if bar.better == 'less' else '>='} {_text(bar.bound)}",
                "yes" if bar.holds else "NO",
            )
            for bar in report.bars
        ],
    )


def conclude(report: Report, *, as_json: bool, last: str = "") -> NoReturn:
    """Print it, for people with this line after it, and end: exit code 1 if a bar does not hold."""
    if as_json:
        print_document(document_of(report))
    else:
        show(report)
        if last:
            click.echo(f"\n{last}")
    click.get_current_context().exit(0 if report.holds else EXIT_OVER_A_BAR)


def _is_nested(value: object) -> bool:
    return isinstance(value, dict | list | tuple)


def _plain(value: object) -> object:
    """JSON knows no NaN."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _text(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
