"""A small team fine-tunes for 40 hours on one large GPU, then serves from a small one, in rupees.

Whole nodes in memory on virtual time; the loops of an idle node are slowed down, as in
`test_long_lease`. Prices, use and sums are those that the ledger settles.
"""

import csv
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from click.testing import CliRunner
from msgspec.structs import replace

from p2pnode import image_stock, latency, own_terms, own_use, traffic
from p2pnode.api.money_documents import ConfirmOrder
from p2pnode.cli import books
from p2pnode.cli.spend import spend
from p2pnode.config import Config
from p2pnode.execution import lease_door
from p2pnode.execution.fake_engine import Script
from p2pnode.gpus import SimulatedGpus
from p2pnode.matching import offer_sync
from p2pnode.money_views import money_views
from p2pnode.network import peers
from p2pnode.network.memory_transport import MemoryHub
from p2pnode.replication import replication, spread
from protocol.auction import Need
from protocol.genesis import Bounds, Genesis
from protocol.units import Mebibytes, Micros, MillisSpan
from tests.make_job import make_limits, make_submission
from tests.make_node import LISTED_S, Party, Started

RUPEE = 1_000_000
HOUR = 3_600_000
LARGE = SimulatedGpus(model="NVIDIA H100 80GB HBM3", vram=Mebibytes(81_559), count=1)
SMALL = SimulatedGpus(model="NVIDIA GeForce RTX 4090", vram=Mebibytes(24_564), count=1)
FINE_TUNE_MS = 40 * HOUR
SERVE_MS = 8 * HOUR
IDLE_S = 1_800


@pytest.fixture
def party(tmp_path: Path, nursery: trio.Nursery) -> Party:
    genesis = Genesis(name="team", kind="test", nonce=bytes(16), bounds=Bounds(), money="INR")
    return Party(tmp_path, nursery, MemoryHub(), genesis=genesis)


def by_the_hour(config: Config) -> Config:
    return replace(
        config,
        network=replace(config.network, heartbeat=MillisSpan(HOUR)),
        pricing=replace(config.pricing, period=MillisSpan(HOUR), max_lease=MillisSpan(48 * HOUR)),
    )


def idle_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in (
        (peers, "LOOK_S"),
        (lease_door, "LOG_POLL_S"),
        (offer_sync, "ROUND_S"),
        (replication, "ROUND_S"),
        (spread, "SPREAD_S"),
        (traffic, "SAMPLE_S"),
        (latency, "PROBE_S"),
        (image_stock, "LOOK_S"),
        (own_use, "LOOK_S"),
        (own_terms, "PRICES_S"),
    ):
        monkeypatch.setattr(module, name, IDLE_S)


async def owner_of(party: Party, gpu: SimulatedGpus, *, ask: int, lasts_ms: int) -> Started:
    script = Script(lasts_ms=MillisSpan(lasts_ms))
    return await party.start(
        party.build(ask=ask, gpu=gpu, script=lambda _run: script, choose=by_the_hour)
    )


async def rent(team: Started, *, vram: int, lasts_ms: int, total: int) -> str:
    """A job that is begun, with a limit for all of it."""
    node = team.node
    wanted = make_submission(
        node,
        need=Need(gpus=1, vram_mib_min=vram),
        limits=make_limits(time_ms=lasts_ms + HOUR),
        money="INR",
        ask_max=None,
        total_max=Micros(total),
    )
    job = node.jobs.submit(wanted).id
    await trio.sleep(10)
    assert node.jobs.driver(job).file.state == "running"
    return job


def pay(owner: Started, team: Started) -> int:
    """What is due has arrived, by the owner's word; how much that was."""
    views = money_views(owner.node)
    due = sum(item.due_micro for item in views.accounts().items)
    if due:
        peer = team.node.identity.feed.public.hex()
        views.confirm(ConfirmOrder(peer=peer, amount_micro=due, money="INR"))
    return due


async def test_forty_hours_and_eight_hours_cost_what_the_rates_say(
    party: Party,
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: trio.abc.Clock,
    tmp_path: Path,
) -> None:
    large = await owner_of(party, LARGE, ask=250 * RUPEE, lasts_ms=FINE_TUNE_MS)
    small = await owner_of(party, SMALL, ask=60 * RUPEE, lasts_ms=SERVE_MS)
    team = await party.start(party.build(ask=None, gossip="on", choose=by_the_hour))
    await trio.sleep(LISTED_S)
    tuned = await rent(team, vram=80_000, lasts_ms=FINE_TUNE_MS, total=10_500 * RUPEE)
    idle_slowly(monkeypatch)
    paid = 0
    for _ in range(42):
        await trio.sleep(3_600)
        paid += pay(large, team)
    assert team.node.jobs.driver(tuned).file.state == "done"
    paid += pay(large, team)
    assert paid == 10_000 * RUPEE
    small.node.provider.refresh()  # or it tells of its offer once an hour
    await trio.sleep(5)
    served = await rent(team, vram=20_000, lasts_ms=SERVE_MS, total=600 * RUPEE)
    await trio.sleep(10 * 3_600)
    assert team.node.jobs.driver(served).file.state == "done"
    await trio.sleep(3_600)
    pay(small, team)
    await trio.sleep(2 * 3_600)
    check_books(team, large, small)
    check_export(team, tmp_path, monkeypatch)


def check_books(team: Started, large: Started, small: Started) -> None:
    """Both sides have the same sums, and nothing is due."""
    by_owner = {item.peer_feed: item for item in money_views(team.node).accounts().items}
    for owner, amount in ((large, 10_000 * RUPEE), (small, 480 * RUPEE)):
        mine = by_owner[owner.node.identity.feed.public.hex()]
        [theirs] = money_views(owner.node).accounts().items
        for side in (mine, theirs):
            assert side.money == "INR"
            assert (side.agreed_micro, side.claimed_micro) == (amount, 0)
            assert (side.paid_micro, side.due_micro) == (amount, 0)


def check_export(team: Started, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`p2pnode spend export` writes lines that add up to the account, to the micro-unit."""

    def get(_socket: Path, path: str, **_query: Any) -> Any:
        assert path == "/v1/accounts/statement"
        statement = money_views(team.node).statement(None, since_ms=None, until_ms=None)
        return msgspec.to_builtins(statement)

    monkeypatch.setattr(books, "get", get)
    file = folder / "spent.csv"
    done = CliRunner().invoke(spend, ["export", str(file), "--home", str(folder)])
    assert done.exit_code == 0, done.output
    with file.open() as lines:
        rows = list(csv.DictReader(lines))
    assert sum(int(row["amount_micro"]) for row in rows) == 10_480 * RUPEE
    assert sum(int(row["paid_micro"]) for row in rows) == 10_480 * RUPEE
    assert sum(int(row["used_ms"]) for row in rows) == FINE_TUNE_MS + SERVE_MS
    assert {row["money"] for row in rows} == {"INR"}
    # That money has arrived is the owner's word; what it is for, both have signed.
    assert {row["claim"] for row in rows if int(row["amount_micro"])} == {"proved"}
