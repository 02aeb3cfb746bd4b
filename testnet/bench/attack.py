"""`bench attack`: whether a node among hostile peers stays up, small and quick for honest ones.

Victim, honest nodes and attackers are processes of their own; an honest peer asks from this one.
"""

import logging
import math
import os
import random
import socket
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

from p2pnode.cli.client import get
from p2pnode.clock import SystemClock
from p2pnode.invite import read_invite
from p2pnode.network.peer_text import bootstrap_of
from p2pnode.ports import advert_topics
from protocol.errors import LocalFault, Unavailable
from protocol.genesis import net_of
from testnet.bench.attackers import ATTACKS, Attackers, end_attackers, fork_attackers
from testnet.bench.cpu import cpu_use
from testnet.bench.honest import Delays, HonestPeer
from testnet.bench.hostile import Target
from testnet.bench.report import Report, Table, at_most, machine, percentile
from testnet.offers import wait_for_offers
from testnet.plan import plan_network
from testnet.processes import start
from testnet.state import Running, RunningNode, started_ticks, stop

NODES: Final = 4
VICTIM: Final = 1
"""Not the first, whom all others know as their bootstrap."""
SEEN_S: Final = 2.0
"""So that a replay meets a victim that has forgotten the message."""
QUIET_S: Final = 10.0
WARM_UP_S: Final = 1.0
"""Of each attack before memory is taken: code, pools and budgets are then in place."""
GAP_S: Final = 0.5
GRACE_S: Final = 20.0
"""For the attackers to leave, beyond the time of the attack."""
LOG_SHOWN: Final = 3_000

GROWTH_MIB_MAX: Final = 32
SLOWDOWN_MAX: Final = 2.0
NEWCOMER_S: Final = 10.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackWish:
    """How long each attack lasts, and which; all if none is named."""

    seconds: float
    only: tuple[str, ...] = ()
    seed: int = 1

    def names(self) -> list[str]:
        """In their order. Raises LocalFault."""
        unknown = [name for name in self.only if name not in ATTACKS]
        if unknown:
            raise LocalFault(f"there is no attack {unknown[0]}", f"one of: {', '.join(ATTACKS)}")
        return [name for name in ATTACKS if not self.only or name in self.only]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bout:
    """One attack and what it did."""

    name: str
    sent: int
    refused: int
    delays: Delays
    grown_mib: float
    """Memory of the victim, above what it had when the first bout began."""
    is_alive: bool


@dataclass(slots=True, kw_only=True)
class Course:
    """The measurement so far."""

    quiet: Delays = field(default_factory=Delays)
    warmed_mib: float = 0.0
    fresh_mib: float = 0.0
    bouts: list[Bout] = field(default_factory=list)
    newcomer_s: float = math.inf
    cores: dict[str, float] = field(default_factory=dict)


def run(wish: AttackWish, say: Say) -> Report:
    """The whole benchmark. Raises LocalFault if the network does not come up."""
    wish.names()
    logging.getLogger("libp2p").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="p2pnode-bench-") as folder:
        planned = plan_network(Path(folder), nodes=NODES, renters=0)
        plans = [replace(plan, gossip="on") for plan in planned]
        plans[VICTIM] = replace(plans[VICTIM], seen_s=SEEN_S)
        running = start(tuple(plans), Path(folder), name="bench", heartbeat="30s")
        try:
            wait_for_offers(running)
            target = _target(running)
            log = Path(folder) / "attackers.log"
            pid, line = fork_attackers(target, log)
            try:
                course = trio.run(partial(_measure, running, target, wish, say, pid=pid, line=line))
            except* trio.BrokenResourceError as group:
                raise LocalFault("the attackers have died", _last_of(log)) from group
            finally:
                end_attackers(pid)
        finally:
            stop(running)
    return _report(course, wish)


def _last_of(log: Path) -> str:
    """The end of their log, as its folder is about to go."""
    return log.read_text()[-LOG_SHOWN:]


def _target(running: Running) -> Target:
    genesis, _, _ = read_invite(running.invite)
    victim = running.nodes[VICTIM]
    ((peer, addresses),) = bootstrap_of(victim.addresses).items()
    _, _, host, _, port = addresses[0].split("/")
    return Target(
        host=host,
        port=int(port),
        peer=peer,
        net=net_of(genesis),
        topic=advert_topics(genesis)[0],
        now=SystemClock().now,
    )


async def _measure(
    running: Running, target: Target, wish: AttackWish, say: Say, *, pid: int, line: socket.socket
) -> Course:
    attackers = Attackers(pid, trio.SocketStream(trio.socket.from_stdlib_socket(line)))
    rng = random.Random(wish.seed)  # noqa: S311 - keys of peers that live for minutes
    victim = running.nodes[VICTIM]
    honest = HonestPeer(target, rng)
    course = Course()
    async with trio.open_nursery() as nursery:
        await nursery.start(honest.run)
        say("quiet")
        course.quiet = honest.begin_phase()
        await trio.sleep(QUIET_S)
        course.fresh_mib = _rss_mib(victim)
        say("warm-up")
        before = cpu_use([victim.pid], trio.current_time())
        for name in wish.names():
            honest.begin_phase()
            await _attack(attackers, name, seconds=WARM_UP_S, seed=0)
        course.warmed_mib = _rss_mib(victim)
        for name in wish.names():
            bout = await _bout(attackers, honest, victim, wish, name=name, base=course.warmed_mib)
            course.bouts.append(bout)
            say(" ".join(_row(bout)))
            if not bout.is_alive:
                break
        course.cores = cpu_use([victim.pid], trio.current_time()).cores_since(before)
        nursery.cancel_scope.cancel()
    course.newcomer_s = await _newcomer(target, rng)
    return course


async def _bout(
    attackers: Attackers,
    honest: HonestPeer,
    victim: RunningNode,
    wish: AttackWish,
    *,
    name: str,
    base: float,
) -> Bout:
    delays = honest.begin_phase()
    counts = await _attack(attackers, name, seconds=wish.seconds, seed=wish.seed)
    honest.begin_phase()
    await trio.sleep(GAP_S)
    return Bout(
        name=name,
        sent=counts["sent"],
        refused=counts["refused"],
        delays=delays,
        grown_mib=_rss_mib(victim) - base,
        is_alive=await _is_alive(victim),
    )


async def _attack(attackers: Attackers, name: str, *, seconds: float, seed: int) -> dict[str, int]:
    with trio.fail_after(seconds + GRACE_S):
        return await attackers.attack(name, seconds=seconds, seed=seed)


async def _newcomer(target: Target, rng: random.Random) -> float:
    """How long somebody new takes, from nothing to the first answer."""
    began_s = trio.current_time()
    took_s = math.inf
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(HonestPeer(target, rng).run)
            took_s = trio.current_time() - began_s
            nursery.cancel_scope.cancel()
    except* (Unavailable, trio.TooSlowError):
        pass  # It never got an answer.
    return took_s


async def _is_alive(victim: RunningNode) -> bool:
    """Whether the very process is there and its API answers."""
    if not started_ticks(victim.pid):
        return False
    try:
        await trio.to_thread.run_sync(partial(get, Path(victim.socket), "/healthz"))
    except Unavailable:
        return False
    return True


def _rss_mib(victim: RunningNode) -> float:
    try:
        pages = int(Path(f"/proc/{victim.pid}/statm").read_text().split()[1])
    except OSError:
        return math.nan
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _report(course: Course, wish: AttackWish) -> Report:
    quiet = percentile(course.quiet.took_ms, 0.95)
    during = [ms for bout in course.bouts for ms in bout.delays.took_ms]
    unanswered = sum(bout.delays.unanswered for bout in course.bouts)
    slowdown = percentile(during, 0.95) / quiet
    slow = {bout.name: percentile(bout.delays.took_ms, 0.95) / quiet for bout in course.bouts}
    worst = max(slow, key=lambda name: slow[name])
    grown = max(bout.grown_mib for bout in course.bouts)
    figures = {
        "ask_p50_quiet_ms": percentile(course.quiet.took_ms, 0.5),
        "ask_p95_quiet_ms": quiet,
        "ask_p50_attacked_ms": percentile(during, 0.5),
        "ask_p95_attacked_ms": percentile(during, 0.95),
        "ask_max_attacked_ms": max(during, default=math.nan),
        "slowdown_worst_attack": worst,
        "slowdown_worst": slow[worst],
        "attacks_over_twice": sum(value > SLOWDOWN_MAX for value in slow.values()),
        "rss_fresh_mib": round(course.fresh_mib, 1),
        "rss_warmed_up_mib": round(course.warmed_mib, 1),
        "rss_end_mib": round(course.warmed_mib + course.bouts[-1].grown_mib, 1),
        "seconds_each": wish.seconds,
        "seed": wish.seed,
        **course.cores,
        **machine(),
        "attacks": [_figures_of(bout) for bout in course.bouts],
    }
    bars = (
        at_most("attacks that ended the node", sum(not b.is_alive for b in course.bouts), 0),
        at_most("growth after the warm-up, MiB", grown, GROWTH_MIB_MAX),
        at_most("ask p95 under attack / quiet", slowdown, SLOWDOWN_MAX),
        at_most("honest questions without an answer", unanswered, 0),
        at_most("a newcomer's first answer, s", course.newcomer_s, NEWCOMER_S),
    )
    return Report(name="attack", figures=figures, bars=bars, table=_table(course))


def _figures_of(bout: Bout) -> dict[str, Any]:
    return {
        "name": bout.name,
        "sent": bout.sent,
        "refused": bout.refused,
        "ask_p50_ms": round(percentile(bout.delays.took_ms, 0.5), 2),
        "ask_p95_ms": round(percentile(bout.delays.took_ms, 0.95), 2),
        "unanswered": bout.delays.unanswered,
        "grown_mib": round(bout.grown_mib, 1),
        "alive": bout.is_alive,
    }


def _table(course: Course) -> Table:
    return Table(
        header=("ATTACK", "SENT", "REFUSED", "P50 ms", "P95 ms", "NO ANSWER", "GROWN MiB", "UP"),
        rows=tuple(_row(bout) for bout in course.bouts),
    )


def _row(bout: Bout) -> tuple[str, ...]:
    return (
        bout.name,
        str(bout.sent),
        str(bout.refused),
        f"{percentile(bout.delays.took_ms, 0.5):.1f}",
        f"{percentile(bout.delays.took_ms, 0.95):.1f}",
        str(bout.delays.unanswered),
        f"{bout.grown_mib:+.1f}",
        "yes" if bout.is_alive else "NO",
    )
