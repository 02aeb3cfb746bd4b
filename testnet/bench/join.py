"""How soon a fresh light renter finds every owner in the directory and holds a GRANT."""

import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import trio

from p2pnode.home import Home, find_home, locked, make_folders
from p2pnode.log import log_to
from p2pnode.matching.order import Order
from p2pnode.matching.renter import NoMatch, Taking
from p2pnode.matching.search import Wish
from p2pnode.membership import join_network
from p2pnode.node import Node
from p2pnode.real_node import opened
from protocol.auction import Need
from protocol.errors import LocalFault
from protocol.units import MillisSpan
from testnet.bench.report import Report, Table, at_least, at_most, percentile
from testnet.offers import wait_for_offers
from testnet.plan import plan_network
from testnet.processes import start
from testnet.state import Running, stop

JOIN_S_MAX: Final = 2.0
GIVE_UP_S: Final = 30
VRAM_MIB: Final = 8_192
CONFIG: Final = 'roles = ["renter"]\n[network]\nlisten = ["/ip4/127.0.0.1/tcp/0"]\n'

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinWish:
    """What to measure."""

    owners: int
    renters: int


def run(wish: JoinWish, say: Say) -> Report:
    """Start the owners, then one fresh renter after the other. Raises LocalFault."""
    with tempfile.TemporaryDirectory(prefix="p2pnode-join-") as folder:
        state = Path(folder)
        plans = plan_network(state, nodes=wish.owners, renters=0)
        running = start(plans, state, name="join", heartbeat="30s")
        try:
            wait_for_offers(running)
            say(f"{wish.owners} owners up and listed")
            joined = [_join(state / f"r{i}", running) for i in range(wish.renters)]
        finally:
            stop(running)
    return _report(wish, joined)


def _join(folder: Path, running: Running) -> dict[str, Any]:
    """What a renter in a process of its own measured."""
    pipe, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(pipe)
        code = 1
        try:
            os.write(theirs, json.dumps(_be_renter(folder, running)).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(theirs)
    with os.fdopen(pipe) as lines:
        said = lines.read()
    os.waitpid(pid, 0)
    if not said:
        raise LocalFault("a renter ended without a word", f"cat {folder}/node.log")
    measured: dict[str, Any] = json.loads(said)
    return measured


def _be_renter(folder: Path, running: Running) -> dict[str, Any]:
    home = find_home(folder)
    join_network(home, running.invite)
    make_folders(home)
    home.config.write_text(CONFIG)
    with locked(home):
        log_to(home.log)
        return trio.run(_measure, home, len(running.nodes))


async def _measure(home: Home, owners: int) -> dict[str, Any]:
    began = trio.current_time()
    found_s = granted_s = float(GIVE_UP_S)
    with opened(home) as node:
        async with trio.open_nursery() as nursery:
            with trio.move_on_after(GIVE_UP_S):
                await nursery.start(node.run)
                await _find_all(node, owners)
                found_s = trio.current_time() - began
                await _rent(node)
                granted_s = trio.current_time() - began
            nursery.cancel_scope.cancel()
        return {"found_s": found_s, "granted_s": granted_s, "seen": _seen(node)}


def _seen(node: Node) -> int:
    return len(node.book.open_offers(node.ports.clock.now()))


async def _find_all(node: Node, owners: int) -> None:
    while _seen(node) < owners:
        await node.look_around(Wish())
        await trio.sleep(0.05)


async def _rent(node: Node) -> None:
    """A lease without a job, held and confirmed in both ledgers."""
    order = Order(
        need=Need(gpus=1, vram_mib_min=VRAM_MIB),
        tier="silver",
        span_ms=MillisSpan(120_000),
        notice_ms=MillisSpan(0),
        money=node.genesis.money,
        ask_max=None,
        total_max=None,
        job=None,
    )

    async def forget(_taking: Taking) -> None:
        await trio.lowlevel.checkpoint()

    while True:
        try:
            won = await node.renter.rent(order, seal_job=lambda _offer: None, remember=forget)
        except NoMatch:
            await trio.sleep(0.05)
        else:
            await node.links.confirm(won.taking.peer, won.grant)
            return


def _report(wish: JoinWish, joined: list[dict[str, Any]]) -> Report:
    granted = sorted(one["granted_s"] for one in joined)
    found = sorted(one["found_s"] for one in joined)
    least_seen = min(one["seen"] for one in joined)
    return Report(
        name="join",
        figures={
            "owners": wish.owners,
            "renters": wish.renters,
            "found_s": found,
            "granted_s": granted,
        },
        bars=(
            at_most("join_to_grant_p95_s", percentile(granted, 0.95), JOIN_S_MAX),
            at_least("owners_found_by_each", least_seen, wish.owners),
        ),
        table=Table(
            header=("", "P50", "P95", "MAX"),
            rows=tuple(
                (
                    name,
                    f"{percentile(values, 0.5):.2f} s",
                    f"{percentile(values, 0.95):.2f} s",
                    f"{values[-1]:.2f} s",
                )
                for name, values in (("all owners found", found), ("GRANT confirmed", granted))
            ),
        ),
    )
