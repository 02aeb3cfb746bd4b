"""`python -m testnet world` and `crash`: faults by seed, and what held in spite of them."""

import importlib
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

EXIT_BROKEN: Final = 1


@click.command()
@click.option("--seed", type=int, required=True, help="Which history.")
@click.option("--nodes", default=12, show_default=True, help="How many nodes.")
@click.option("--minutes", default=5.0, show_default=True, help="Virtual time with faults.")
@click.option("--loss", default=10, show_default=True, help="Gossip that is lost, in percent.")
@click.option(
    "--trace",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the canonical trace here, to compare two runs.",
)
def world(*, seed: int, nodes: int, minutes: float, loss: int, trace: Path | None) -> None:
    """Run whole nodes in memory on virtual time; one seed is one history.

    The last line is the digest of all that happened.
    """
    plan = importlib.import_module("testnet.world_plan").WorldPlan(
        seed=seed, nodes=nodes, span_s=minutes * 60, loss_percent=loss
    )
    began = time.monotonic()  # noqa: TID251 - a person waits
    run_world = importlib.import_module("testnet.world").run_world
    try:
        summary = run_world(plan, trace_path=trace)
    except BaseExceptionGroup as group:
        _tell_broken(
            group,
            f"python -m testnet world --seed {seed} --nodes {nodes} --minutes {minutes:g}"
            f" --loss {loss}",
        )
        return
    took_s = time.monotonic() - began  # noqa: TID251
    for line in _lines(summary, took_s):
        click.echo(line)
    click.echo(summary.digest)


def _lines(summary: Any, took_s: float) -> list[str]:  # noqa: ANN401 - loaded late
    told = asdict(summary)
    steps = told["steps"]
    return [
        f"{told['virtual_s']} virtual seconds in {took_s:.1f} s; {told['deaths']} deaths of nodes",
        f"{steps['write']} durable writes, {steps['frame']} frames sent",
        f"{told['jobs']} jobs, {told['done']} done; {told['leases']} leases",
        f"{told['receipts']} receipts; {told['entries']} entries in every full ledger",
        "held: ledgers verify and are equal, no evidence, no unit leased twice",
        "held: every job ended, every receipt holds everywhere",
    ]


@click.command()
@click.option("--seed", type=int, required=True, help="The first seed.")
@click.option("--seeds", default=1, show_default=True, help="How many, one after the other.")
def crash(*, seed: int, seeds: int) -> None:
    """Kill a real node at a write or a frame of its own, and see that nothing is lost."""
    run_crash = importlib.import_module("testnet.crash").run_crash
    broken = importlib.import_module("testnet.world_checks").Broken
    survivors = []
    for each in range(seed, seed + seeds):
        try:
            survivors.append(run_crash(each, say=lambda text: click.echo(text, err=True)))
        except broken as error:
            click.echo(f"broken: {error}", err=True)
            click.echo(f"replay: python -m testnet crash --seed {each}", err=True)
            click.get_current_context().exit(EXIT_BROKEN)
        last = survivors[-1]
        fate = "died and came back" if last.is_dead else "lived"
        click.echo(
            f"seed {each}: node {last.crash.victim} {fate}, {last.crash.point};"
            f" {last.receipts} receipts, {last.took_s:.1f} s"
        )
    dead = sum(each.is_dead for each in survivors)
    click.echo(
        f"{seeds} seeds held, {dead} deaths, {sum(each.jobs for each in survivors)} jobs done,"
        f" {sum(each.receipts for each in survivors)} receipts"
    )


def _tell_broken(group: BaseExceptionGroup[BaseException], replay: str) -> None:
    """Say what does not hold and how to see it again; other errors go on."""
    broken = importlib.import_module("testnet.world_checks").Broken
    found, rest = group.split(broken)
    if found is None or rest is not None:
        group.add_note(f"replay: {replay}")
        raise group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    click.echo(f"broken: {found}", err=True)
    click.echo(f"replay: {replay}", err=True)
    click.get_current_context().exit(EXIT_BROKEN)
