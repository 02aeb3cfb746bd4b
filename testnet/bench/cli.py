"""`p2pnode testnet bench …`."""

import importlib
from pathlib import Path

import click

from p2pnode.cli.output import json_option, note
from testnet.bench.report import conclude


@click.group()
def bench() -> None:
    """Measure real processes on this machine; exit code 1 if a bar does not hold."""


@bench.command()
@click.option("--nodes", default=20, show_default=True, help="Owners, each a process; at most 24.")
@click.option("--changes", default=200, show_default=True, help="Prices and withdrawals in all.")
@click.option("--withdrawals", default=0.2, show_default=True, help="Their share of the changes.")
@click.option("--per-second", default=2.0, show_default=True, help="Changes in a second, in all.")
@click.option("--seed", default=1, show_default=True, help="Who changes what when.")
@json_option
def gossip(
    *, nodes: int, changes: int, withdrawals: float, per_second: float, seed: int, as_json: bool
) -> None:
    """How soon a changed price, and a withdrawal, is in every node's book."""
    module = importlib.import_module("testnet.bench.gossip")
    wish = module.GossipWish(
        nodes=nodes, changes=changes, per_s=per_second, withdrawals=withdrawals, seed=seed
    )
    conclude(module.run(wish, note), as_json=as_json)


@bench.command()
@click.option("--seconds", default=5.0, show_default=True, help="How long each attack lasts.")
@click.option("--only", multiple=True, help="Only this attack; may be given more than once.")
@click.option("--seed", default=1, show_default=True, help="What the attackers draw.")
@json_option
def attack(seconds: float, only: tuple[str, ...], seed: int, as_json: bool) -> None:
    """What hostile peers can do to a node, in memory and in delay for honest ones."""
    module = importlib.import_module("testnet.bench.attack")
    wish = module.AttackWish(seconds=seconds, only=only, seed=seed)
    conclude(module.run(wish, note), as_json=as_json)


@bench.command()
@click.option("--owners", default=20, show_default=True, help="Owners, each a process.")
@click.option("--renters", default=10, show_default=True, help="Fresh renters, in turn.")
@json_option
def join(owners: int, renters: int, as_json: bool) -> None:
    """How soon a fresh light renter finds all owners in the directory and holds a GRANT."""
    module = importlib.import_module("testnet.bench.join")
    conclude(module.run(module.JoinWish(owners=owners, renters=renters), note), as_json=as_json)


@bench.command()
@click.option("--nodes", default=20, show_default=True, help="Each a process; at most 24.")
@click.option("--renters", default=4, show_default=True, help="How many of them only rent.")
@click.option("--jobs", default=25, show_default=True, help="Of each renter, in turn.")
@click.option("--every", default=4.0, show_default=True, help="Seconds; 0: one upon the other.")
@click.option("--seed", default=1, show_default=True, help="When each job comes.")
@json_option
def grants(*, nodes: int, renters: int, jobs: int, every: float, seed: int, as_json: bool) -> None:
    """How soon after its submission a job has its lease, with renters of both kinds at once."""
    module = importlib.import_module("testnet.bench.grants")
    wish = module.GrantsWish(nodes=nodes, renters=renters, jobs=jobs, every_s=every, seed=seed)
    conclude(module.run(wish, note), as_json=as_json)


@bench.command()
@click.option("--rounds", default=7, show_default=True, help="Of each kind of work, in turn.")
@click.option("--only", multiple=True, help="Only this part; may be given more than once.")
@json_option
def ledger(rounds: int, only: tuple[str, ...], as_json: bool) -> None:
    """What the ledger costs, each figure against what the machine itself takes for the least."""
    module = importlib.import_module("testnet.bench.ledger")
    wish = module.LedgerWish(rounds=rounds, only=only)
    conclude(module.run(wish, note), as_json=as_json)


@bench.command()
@click.option("--entries", default=100_000, show_default=True, help="How far one is behind.")
@click.option("--kills", default=3, show_default=True, help="SIGKILLs while it catches up.")
@click.option("--seed", default=1, show_default=True, help="When it is killed.")
@json_option
def catchup(entries: int, kills: int, seed: int, as_json: bool) -> None:
    """What moves between two nodes of which one is far behind, and what it costs to kill that."""
    module = importlib.import_module("testnet.bench.catchup")
    wish = module.CatchUpWish(entries=entries, kills=kills, seed=seed)
    conclude(module.run(wish, note), as_json=as_json)


@bench.command()
@click.option("--offers", default=100_000, show_default=True, help="Offers in the book.")
@click.option("--queries", default=1_000, show_default=True, help="Searches by each engine.")
@click.option("--seed", default=1, show_default=True, help="What is offered and looked for.")
@json_option
def match(offers: int, queries: int, seed: int, as_json: bool) -> None:
    """How soon the best of many offers are found, against SQLite and a pass over memory."""
    module = importlib.import_module("testnet.bench.match")
    wish = module.MatchWish(offers=offers, queries=queries, seed=seed)
    conclude(module.run(wish, note), as_json=as_json)


@bench.command()
@click.option("--offers", default=2_000, show_default=True, help="Owners, with one GPU each.")
@click.option("--seeds", default=3, show_default=True, help="Draws of owners and renters.")
@json_option
def auction(offers: int, seeds: int, as_json: bool) -> None:
    """What a batch of renters pays in all, against the cheapest assignment there is."""
    module = importlib.import_module("testnet.bench.auction")
    conclude(module.run(module.AuctionWish(offers=offers, seeds=seeds), note), as_json=as_json)


@bench.command()
@click.option("--owners", default=1_000, show_default=True, help="Owners, with one GPU each.")
@click.option("--requests", default=5_000, show_default=True, help="Requests that count.")
@click.option("--seed", default=1, show_default=True, help="Prices, arrivals, lengths.")
@json_option
def conflict(owners: int, requests: int, seed: int, as_json: bool) -> None:
    """How often renters with old news run into each other."""
    module = importlib.import_module("testnet.bench.conflict")
    wish = module.ConflictWish(owners=owners, requests=requests, seed=seed)
    conclude(module.run(wish, note), as_json=as_json)


@bench.command()
@click.option(
    "--trace",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(__file__).parents[3] / "shared" / "traces" / "openb",
    help="Folder with the openb trace (default: shared/traces/openb beside the repository).",
)
@click.option("--seeds", default=1, show_default=True, help="Draws of requests and prices.")
@json_option
def packing(trace: Path, seeds: int, as_json: bool) -> None:
    """How full a cluster gets by auctions, against best fit and gradient descent."""
    module = importlib.import_module("testnet.bench.packing")
    wish = module.PackingWish(folder=trace, seeds=seeds)
    conclude(module.run(wish, note), as_json=as_json)


@bench.command()
@click.option("--jobs", default=5, show_default=True, help="Each way, one after the other.")
@json_option
def primary(jobs: int, as_json: bool) -> None:
    """How soon what a renter's own cluster cannot run runs here, and the other way."""
    module = importlib.import_module("testnet.bench.primary")
    conclude(module.run(module.PrimaryWish(jobs=jobs), note), as_json=as_json)


@bench.command()
@click.option("--auctions", default=1_000, show_default=True, help="Of each pair of owners.")
@click.option("--newcomers", default=60, show_default=True, help="Each waits for its first lease.")
@click.option("--seed", default=1, show_default=True, help="What renters draw.")
@json_option
def reliability(auctions: int, newcomers: int, seed: int, as_json: bool) -> None:
    """What a good record is worth in an auction, and how an owner without one begins."""
    module = importlib.import_module("testnet.bench.reliability")
    wish = module.ReliabilityWish(auctions=auctions, newcomers=newcomers, seed=seed)
    conclude(module.run(wish, note), as_json=as_json)
