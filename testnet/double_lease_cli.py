"""`python -m testnet double-lease`: an owner that leases one GPU twice, and what becomes of it."""

import importlib

import click

from p2pnode.cli.output import json_option, note
from testnet.bench.report import conclude


@click.command("double-lease")
@click.option("--nodes", default=10, show_default=True, help="Processes, 5 to 24.")
@click.option("--seed", default=1, show_default=True, help="Who cheats whom.")
@json_option
def double_lease(*, nodes: int, seed: int, as_json: bool) -> None:
    """Let an owner grant one GPU to two renters at once; exit code 1 if a bar does not hold."""
    module = importlib.import_module("testnet.double_lease")
    report = module.run(module.DoubleLeaseWish(nodes=nodes, seed=seed), note)
    conclude(report, as_json=as_json)
