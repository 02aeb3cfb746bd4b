"""Jobs on several nodes: all leases or none, then a driver for each node.

A node that is lost later is looked for again alone; the others keep their leases. One that fails
for good ends the others, which would wait for it.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

import msgspec
import trio
from msgspec import UNSET

from p2pnode.cabinet import Cabinet
from p2pnode.clock import WallClock
from p2pnode.jobs.driver import Driver
from p2pnode.jobs.jobfile import ENDED, JobFile, load, taking_of, taking_record
from p2pnode.jobs.jobs import Jobs, Submission
from p2pnode.jobs.poolfile import PoolFile, load_pools, save_pool
from p2pnode.matching.book import Offer
from p2pnode.matching.pool_failures import Failures
from p2pnode.matching.pooling import NoPool, Pooling
from p2pnode.matching.search import Wish
from protocol.codec import encode
from protocol.errors import LocalFault, PeerFault, Unavailable
from protocol.job import digest_of_job, seal_job
from protocol.limits import POOL_NODES_MAX
from protocol.pool import PoolRecord
from protocol.units import Digest, Micros

log = logging.getLogger(__name__)

RETRY_S: Final = 2.0
POOLS_MAX: Final = 1_000
RANK: Final = "P2PNODE_RANK"
NODES: Final = "P2PNODE_NODES"


class Pools:
    """Owns the pools' files; their members' jobs are those of `Jobs`."""

    def __init__(
        self,
        *,
        jobs: Jobs,
        pooling: Pooling,
        cabinet: Cabinet,
        clock: WallClock,
        random_bytes: Callable[[int], bytes],
        look_around: Callable[[Wish], Awaitable[None]],
    ) -> None:
        self._jobs = jobs
        self._pooling = pooling
        self._cabinet = cabinet
        self._clock = clock
        self._random_bytes = random_bytes
        self._look_around = look_around
        self._pools: dict[str, PoolFile] = {}
        self._failures: dict[str, Failures] = {}
        self._to_run, self._submitted = trio.open_memory_channel[str](POOLS_MAX)

    async def run(
        self,
        may_begin: Callable[[], Awaitable[None]],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Go on with the pools of before, then with each new one. Raises LocalFault."""
        self._pools = {file.id: file for file in load_pools(self._cabinet)}
        of_before = [file.id for file in self._pools.values() if file.state != "failed"]
        task_status.started()
        await may_begin()
        async with trio.open_nursery() as nursery:
            for name in of_before:
                nursery.start_soon(self._run, name)
            async for name in self._submitted:
                nursery.start_soon(self._run, name)

    def submit(self, members: tuple[Submission, ...]) -> PoolFile:
        """Take the job, which is alike on all nodes but for its rank; durable on return.

        Raises LocalFault.
        """
        if not 2 <= len(members) <= POOL_NODES_MAX:
            raise LocalFault(f"A job has 2 to {POOL_NODES_MAX} nodes, or one.", "--nodes 2")
        if any("gold" in (member.tier, *member.choice.or_tiers) for member in members):
            raise LocalFault(
                "Several nodes have no gold: it has no ask to choose by.", "--tier silver"
            )
        self._forget_ended()
        if len(self._pools) >= POOLS_MAX:
            raise LocalFault(f"{POOLS_MAX} jobs on several nodes are kept already.", "wait")
        drafts = []
        for rank, member in enumerate(members):
            variables = {**member.variables, RANK: str(rank), NODES: str(len(members))}
            limit = None if member.total_max is None else member.total_max // len(members)
            share = replace(
                member, variables=variables, total_max=None if limit is None else Micros(limit)
            )
            drafts.append(self._jobs.draft(share))
        file = PoolFile(
            id=f"pool-{drafts[0].id.removeprefix('job-')}",
            created_ms=drafts[0].created_ms,
            give_up_ms=drafts[0].give_up_ms,
            members=tuple(drafts),
        )
        self._put(file)
        self._to_run.send_nowait(file.id)
        return file

    def _forget_ended(self) -> None:
        """Make room: the oldest that are over go; their nodes' jobs stay."""
        for file in reversed(self.files()):
            if len(self._pools) < POOLS_MAX:
                return
            if self.state_of(file) in ENDED:
                self._cabinet.remove(_auction_name(file.id))
                self._cabinet.remove(f"pools/{file.id}")
                del self._pools[file.id]

    def files(self) -> list[PoolFile]:
        """All pools, newest first."""
        return sorted(self._pools.values(), key=lambda file: (-file.created_ms, file.id))

    def file(self, name: str) -> PoolFile:
        """The pool with this id or unique prefix; "@" is the newest. Raises LocalFault."""
        files = self.files()
        found = files[:1] if name == "@" else [f for f in files if f.id.startswith(name)]
        if len(found) != 1:
            what = "no job" if not found else f"{len(found)} jobs"
            raise LocalFault(f"There is {what} on several nodes called {name!r}.")
        return found[0]

    def jobs_of(self, file: PoolFile) -> list[JobFile]:
        """The nodes' jobs as they are now, by rank; as ordered while there is no lease."""
        return [load(self._cabinet, member.id) or member for member in file.members]

    def state_of(self, file: PoolFile) -> str:
        """The pool's state in a word, by that of its nodes once there are leases.

        `degraded`: a node was lost and is looked for again while others run.
        """
        if file.state != "granted":
            return file.state
        states = [job.state for job in self.jobs_of(file)]
        if all(state in ENDED for state in states):
            return "done" if set(states) == {"done"} else "failed"
        moved = any(job.state == "matching" and job.attempt > 1 for job in self.jobs_of(file))
        return "degraded" if moved else "running"

    def cancel(self, name: str) -> PoolFile:
        """End it on all nodes; over when its state says so. Raises LocalFault."""
        file = self.file(name)
        if file.state == "granted":
            for member in file.members:
                self._jobs.driver(member.id).cancel()
        else:
            self._change(file.id, is_cancelled="yes")
        return self._pools[file.id]

    async def _run(self, name: str) -> None:
        """Until it has ended. Raises LocalFault if our own disk fails."""
        self._failures[name] = Failures()
        while self._pools[name].state in {"matching", "taking"}:
            try:
                await self._step(name)
            except (NoPool, PeerFault, Unavailable) as none:
                await self._wait_for_market(name, str(none))
        del self._failures[name]
        if self._pools[name].state == "granted":
            await self._watch(name)

    async def _step(self, name: str) -> None:
        """Hold and write down, then take. In `taking` a cancelled one is taken and ended."""
        file, failures = self._pools[name], self._failures[name]
        if file.state == "matching":
            if file.is_cancelled is not UNSET:
                self._change(name, state="failed", why="cancelled")
                return
            order = replace(file.members[0].order(self._clock.now()), job=None)
            if order.total_max is not None:
                # Each node has its share of the limit; all together have the limit.
                order = replace(order, total_max=Micros(order.total_max * len(file.members)))
            await self._look_around(order.wish())
            try:
                job_for = self._job_for(file)
                held = await self._pooling.hold(order, len(file.members), job_for, failures)
            except NoPool as none:
                self._keep_auction(name, none.record)
                raise
            self._keep_auction(name, held.record)
            records = tuple(taking_record(taking) for taking in held.takings)
            self._change(name, state="taking", takings=records, why="")
        elif any(load(self._cabinet, member.id) is not None for member in file.members):
            # All was granted before the first was handed over; we died in between.
            self._begin(name)
            return
        try:
            takings = [taking_of(each) for each in self._pools[name].takings]
            await self._pooling.take(takings, failures)
        except NoPool:
            self._change(name, state="matching", takings=())
            raise
        self._begin(name)

    def auction_file(self, file: PoolFile) -> bytes:
        """The record of the pool's last auction, for whoever checks it. Raises LocalFault."""
        raw = self._cabinet.get(_auction_name(file.id))
        if raw is None:
            raise LocalFault(f"{file.id} has asked no owner yet.", f"p2pnode pool show {file.id}")
        return raw

    def pool_with(self, job: str) -> PoolFile | None:
        """The pool of which this job is a node, if any."""
        found = (f for f in self._pools.values() if any(m.id == job for m in f.members))
        return next(found, None)

    def _keep_auction(self, name: str, record: PoolRecord | None) -> None:
        """Durable before anything is taken by it; one in which nobody was asked tells nothing."""
        if record is not None and record.tries:
            self._cabinet.put(_auction_name(name), encode(record))

    def _begin(self, name: str) -> None:
        """Make each node a job of its own, which asks for its GRANT once more, and goes on."""
        file = self._pools[name]
        for member, taking in zip(file.members, file.takings, strict=True):
            # Of a life before this one, perhaps: it may be further than its draft.
            if load(self._cabinet, member.id) is None:
                self._jobs.take(msgspec.structs.replace(member, taking=taking))
        self._change(name, state="granted", why="")
        if file.is_cancelled is not UNSET:
            self.cancel(name)

    async def _watch(self, name: str) -> None:
        """End all nodes once one has failed for good."""
        drivers = [self._jobs.driver(member.id) for member in self._pools[name].members]
        async with trio.open_nursery() as nursery:
            for driver in drivers:
                nursery.start_soon(_end_with, driver, drivers)

    def _job_for(self, file: PoolFile) -> Callable[[int, Offer], tuple[Digest, bytes | None]]:
        def job_for(rank: int, offer: Offer) -> tuple[Digest, bytes | None]:
            raw = file.members[rank].job
            sealed = seal_job(raw, to=offer.certificate.x25519, ephemeral=self._random_bytes(32))
            return digest_of_job(raw), sealed

        return job_for

    async def _wait_for_market(self, name: str, why: str) -> None:
        if self._clock.now() >= self._pools[name].give_up_ms:
            self._change(name, state="failed", why=f"no match: {why}")
            return
        self._change(name, why=why)
        await trio.sleep(RETRY_S)

    def _change(self, name: str, **changes: object) -> None:
        self._put(msgspec.structs.replace(self._pools[name], **changes))

    def _put(self, file: PoolFile) -> None:
        save_pool(self._cabinet, file)
        self._pools[file.id] = file


def _auction_name(pool: str) -> str:
    return f"pool-auctions/{pool}"


async def _end_with(driver: Driver, all_of_them: list[Driver]) -> None:
    while driver.file.state not in ENDED:
        await driver.changed.wait()
    if driver.file.state == "failed":
        for other in all_of_them:
            if other.file.state not in ENDED and not other.cancelled.is_set():
                log.warning("node failed for good", extra={"job": driver.file.id})
                other.cancel()
