"""`python -m testnet replicas`: a thousand replicas in one process, and what held among them."""

import importlib
import math
from typing import TYPE_CHECKING, Final

import click

from p2pnode.cli.output import json_option
from testnet.bench.report import Report, Table, at_least, at_most, conclude

if TYPE_CHECKING:
    from testnet.replicas import ReplicasPlan, ReplicasResult

ROUNDS_MAX: Final = 16


@click.command()
@click.option("--count", default=1_000, show_default=True, help="How many replicas.")
@click.option("--silent", default=300, show_default=True, help="Of them, that neither ask nor say.")
@click.option("--malicious", default=50, show_default=True, help="Of them, that fork, hide or lie.")
@click.option("--rounds", default=16, show_default=True, help="With faults; then all is healed.")
@click.option("--seed", default=1, show_default=True, help="Which history.")
@json_option
def replicas(  # noqa: PLR0917 - Click hands options over by name
    count: int, silent: int, malicious: int, rounds: int, seed: int, as_json: bool
) -> None:
    """How far the proof of a double lease gets among real ledgers in memory, and that all agree.

    Exit code 1 if a bar does not hold.
    """
    module = importlib.import_module("testnet.replicas")
    plan = module.ReplicasPlan(
        seed=seed,
        count=count,
        silent=silent,
        malicious=malicious,
        rounds=rounds,
        writers=max(0, min(24, (count - silent - malicious) // 3)),
    )
    report = report_of(plan, module.run_replicas(plan))
    if not as_json:
        click.echo("simulated: network, keys, clocks, leases; real: ledgers, signatures, frames")
    conclude(report, as_json=as_json, last=report.figures["digest"])


def report_of(plan: "ReplicasPlan", result: "ReplicasResult") -> Report:
    """What is printed of a run."""
    rounds = result.rounds_to_know
    known_percent: int = importlib.import_module("testnet.replicas").KNOWN_PERCENT
    return Report(
        name="replicas",
        figures={
            "replicas": plan.count,
            "silent": plan.silent,
            "malicious": plan.malicious,
            "culprits": plan.culprits,
            "seed": plan.seed,
            "entries in every ledger": result.entries,
            "evidence in every ledger": result.evidence,
            "sessions": result.talks.sessions,
            "frames": result.talks.frames,
            "bytes": result.talks.size,
            "rounds to heal": result.healing_rounds,
            "sessions ended by a broken rule": sum(result.talks.faults.values()),
            "refused": dict(sorted(result.talks.faults.items())),
            "digest": result.digest,
        },
        bars=(
            at_most(
                f"rounds until {known_percent} % of the honest that speak hold every proof",
                math.nan if rounds is None else rounds,
                ROUNDS_MAX,
            ),
            at_least(
                "percent of the honest that speak that hold every proof",
                result.known_percent,
                known_percent,
            ),
            at_most("different digests once healed", result.digests, 1),
            at_most("honest authors accused", result.accused, 0),
        ),
        table=Table(
            header=("ROUND", "LEAST KNOWN", "BEST KNOWN", "OF"),
            rows=tuple(
                (str(number), str(min(shares)), str(max(shares)), str(result.speaking))
                for number, shares in enumerate(result.shares, 1)
            ),
        ),
    )
