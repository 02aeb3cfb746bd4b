"""Whole networks of shipping nodes in one process, on virtual time: one seed is one history.

Safety is asserted always, liveness only after the faults have stopped. No sockets, no threads.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import trio
import trio.testing
from trio._core import _run as trio_loop

from ledger.receipt import Proven
from p2pnode.network.memory_directory import MemoryRegistry
from p2pnode.network.memory_transport import MemoryHub
from protocol.errors import LocalFault
from protocol.genesis import Bounds, Genesis
from protocol.units import Micros, PeerId
from testnet.world_checks import Broken, check_rest, check_safety, open_questions
from testnet.world_dice import dice_of
from testnet.world_fuse import Fuse, Killed
from testnet.world_host import Host, Surroundings, VirtualClock
from testnet.world_plan import WorldPlan, drawn_order, drawn_output, drawn_script, host_plans
from testnet.world_trace import Trace, traced
from testnet.world_weather import Weather

log = logging.getLogger(__name__)

SETTLE_S: Final = 1_800
"""A healed world is at rest after this: the longest lease, and some rounds of sync."""
LOOK_S: Final = 5
BOOTSTRAPS: Final = 2

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What happened in a world in which everything held."""

    digest: str
    jobs: int
    done: int
    leases: int
    receipts: int
    entries: int
    deaths: int
    records: int
    """Of the log."""
    virtual_s: int
    steps: dict[str, int]
    """How many durable writes and sent frames there were."""


def run_world(plan: WorldPlan, *, trace_path: Path | None = None) -> Summary:
    """Let it happen. Raises Broken if an invariant does not hold, and whatever ends a node."""
    plan.check()
    trace = Trace(trace_path)
    try:
        with traced(trace):
            return run_seeded(plan.seed, lambda: World(plan).run(trace))
    finally:
        trace.keep()


def run_seeded(seed: int, main: Callable[[], Awaitable[T]]) -> T:
    """Run in virtual time, with tasks scheduled by the dice of this seed."""
    dice = trio_loop._r  # noqa: SLF001 - trio has no other door
    before = trio_loop._ALLOW_DETERMINISTIC_SCHEDULING, dice.getstate()  # noqa: SLF001
    dice.seed(seed)
    trio_loop._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]  # noqa: SLF001
    try:
        return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    finally:
        trio_loop._ALLOW_DETERMINISTIC_SCHEDULING = before[0]  # type: ignore[misc]  # noqa: SLF001
        dice.setstate(before[1])


class World:
    """Owns the hosts, the weather, and those who order jobs."""

    def __init__(self, plan: WorldPlan) -> None:
        seed = f"world/{plan.seed}"
        self._plan = plan
        self._dice = dice_of(f"{seed}/events")
        self._weather = Weather(
            dice_of(f"{seed}/weather"),
            loss_percent=plan.loss_percent,
            breaks_per_mille=plan.breaks_per_mille,
        )
        self._healed = trio.Event()
        self._fuse = Fuse(plan.point)
        nonce = dice_of(f"{seed}/genesis").randbytes(16)
        around = Surroundings(
            seed=seed,
            genesis=Genesis(name="world", kind="test", nonce=nonce, bounds=Bounds(), money="TEST"),
            hub=MemoryHub(self._weather.link),
            registry=MemoryRegistry(),
            weather=self._weather,
            fuse=self._fuse,
            script=drawn_script(seed),
            output=drawn_output(seed),
            down_s=lambda: self._dice.uniform(*plan.down_s),
            healed=self._healed,
        )
        plans = host_plans(plan, dice_of(f"{seed}/hosts"))
        self._hosts = [Host(each, around) for each in plans]
        self._submitted: list[tuple[Host, str]] = []

    async def run(self, trace: Trace) -> Summary:
        """From the first start to the rest after the last fault."""
        bootstrap: dict[PeerId, tuple[str, ...]] = {
            host.peer: (host.plan.address,) for host in self._hosts[:BOOTSTRAPS]
        }
        async with trio.open_nursery() as nursery:
            for host in self._hosts:
                nursery.start_soon(host.run, bootstrap)
            with trio.move_on_after(self._plan.span_s):
                await self._suffer()
            self._weather.calm()
            self._healed.set()
            log.info("healed")
            await self._settle()
            receipts = check_rest(self._hosts, self._submitted)
            summary = self._summary(trace, receipts)
            nursery.cancel_scope.cancel()
        return summary

    async def _suffer(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._order)
            nursery.start_soon(self._look)
            if self._plan.is_stormy:
                nursery.start_soon(self._kill)
                nursery.start_soon(self._reprice)
                nursery.start_soon(self._cancel)

    async def _order(self) -> None:
        """People submit jobs, wherever a node is up."""
        while True:
            await self._wait_about(self._plan.order_every_s)
            host = self._dice.choice(self._hosts)
            node = host.node
            if node is None:
                continue
            try:
                wanted = drawn_order(self._plan, node.jobs.new_id(), self._dice)
                await host.baggage.put_input(wanted.submission.id, wanted.archive)
                node.jobs.submit(wanted.submission)
            except Killed:
                continue
            self._submitted.append((host, wanted.submission.id))
            if self._plan.is_stormy and self._dice.randrange(8) == 0:
                host.kill()  # what it has just acknowledged must be there when it is back

    async def _look(self) -> None:
        while True:
            await trio.sleep(LOOK_S)
            check_safety(self._hosts)

    async def _kill(self) -> None:
        """Nodes die, and now and then one is stopped in order."""
        while True:
            await self._wait_about(180 / len(self._hosts))
            host = self._dice.choice(self._hosts)
            if self._dice.randrange(5):
                host.kill()
            else:
                host.stop()

    async def _reprice(self) -> None:
        while True:
            await self._wait_about(10)
            host = self._dice.choice(self._hosts)
            ask = Micros(self._dice.randrange(200_000, 600_000))
            if host.node is not None and host.plan.is_owner:
                host.node.provider.set_ask(ask)

    async def _cancel(self) -> None:
        """Somebody changes their mind about one of the last jobs."""
        while True:
            await self._wait_about(40)
            if not self._submitted:
                continue
            host, job = self._dice.choice(self._submitted[-5:])
            if host.node is None:
                continue
            try:
                host.node.jobs.driver(job).cancel()
            except Killed:
                continue
            except LocalFault as fault:
                raise Broken(f"{host.plan.name} lost {job}") from fault

    async def _wait_about(self, mean_s: float) -> None:
        await trio.sleep(self._dice.expovariate(1 / mean_s))

    async def _settle(self) -> None:
        """Until nothing is open. Raises Broken if that takes too long."""
        clock = VirtualClock()
        deadline = trio.current_time() + SETTLE_S
        while still := open_questions(self._hosts, clock.now()):
            if trio.current_time() > deadline:
                raise Broken(f"no rest after {SETTLE_S} s: {'; '.join(still[:5])}")
            check_safety(self._hosts)
            await trio.sleep(LOOK_S)
        check_safety(self._hosts)

    def _summary(self, trace: Trace, receipts: list[Proven]) -> Summary:
        ledgers = []
        files = []
        for host in self._hosts:
            assert host.node is not None
            trace.add_stored(host.plan.name, host.store.range(b"\0", b"\xff"))
            files += host.node.jobs.files()
            if not host.plan.is_light:
                ledgers.append(host.node.ports.ledger)
        return Summary(
            digest=trace.hexdigest(),
            jobs=len(self._submitted),
            done=sum(file.state == "done" for file in files),
            leases=len(ledgers[0].state.leases()),
            receipts=len(receipts),
            entries=sum(head.seq + 1 for head in ledgers[0].heads()),
            deaths=sum(host.lives - 1 for host in self._hosts),
            records=trace.records,
            virtual_s=round(trio.current_time()),
            steps={str(step): count for step, count in self._fuse.counts.items()},
        )
