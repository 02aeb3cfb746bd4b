"""`python -m testnet ledger-crash`: kills the writer of a ledger, and says what was lost."""

import importlib
from dataclasses import asdict
from typing import Any, Final

import click

from p2pnode.cli.output import json_option, note, print_document
from protocol.errors import LocalFault

EXIT_BROKEN: Final = 1


@click.command(name="ledger-crash")
@click.option("--kills", default=50, show_default=True, help="How often the writer dies.")
@click.option("--appends", default=100_000, show_default=True, help="Entries to acknowledge.")
@click.option("--power-loss", is_flag=True, help="With each kill, lose what was not synced.")
@click.option("--group", default=1, show_default=True, help="Entries made durable together.")
@click.option("--unsynced", is_flag=True, help="Let the writer forget to sync: it must show.")
@click.option("--seed", default=1, show_default=True, help="Which lives and losses.")
@json_option
def ledger_crash(
    *,
    kills: int,
    appends: int,
    power_loss: bool,
    group: int,
    unsynced: bool,
    seed: int,
    as_json: bool,
) -> None:
    """Kill the writer of a ledger on real files, and see that nothing acknowledged is lost."""
    if min(kills, appends, group) < 1:
        raise LocalFault("at least one kill and one append are needed")
    module = importlib.import_module("testnet.ledger_crash")
    plan = module.CrashPlan(
        kills=kills,
        appends=appends,
        loses_power=power_loss,
        seed=seed,
        group=group,
        is_synced=not unsynced,
    )
    toll = module.run_ledger_crash(plan, say=note)
    if as_json:
        document = {"schema": "p2pnode.testnet.ledger-crash/1", **asdict(toll), "ok": toll.holds}
        print_document(document)
    else:
        for line in _lines(toll, "power lost" if power_loss else "killed"):
            click.echo(line)
    click.get_current_context().exit(0 if toll.holds else EXIT_BROKEN)


def _lines(toll: Any, how: str) -> list[str]:  # noqa: ANN401 - loaded late
    return [
        f"{toll.kills} times {how}, {toll.early} of them before the first append of that life",
        f"{toll.stillborn} databases lost power while they were made, empty, and were made anew",
        f"{toll.appends} appends acknowledged, {toll.signed} entries signed, {toll.took_s:.1f} s",
        f"{toll.finished} entries under way were finished after it",
        f"lost {toll.lost}, torn {toll.torn}, forks of its own {toll.forks}",
        *(f"refused {count}: {why}" for why, count in sorted(toll.refusals.items())),
    ]
