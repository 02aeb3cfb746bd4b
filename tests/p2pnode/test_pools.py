"""A job on several nodes: all leases or none, over whole nodes in memory on virtual time."""

from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from p2pnode.execution.engine import Run
from p2pnode.execution.fake_engine import Script
from p2pnode.jobs import pools
from p2pnode.jobs.jobfile import ENDED, JobFile
from p2pnode.jobs.pools import NODES, RANK
from p2pnode.matching.pool_failures import Failures
from p2pnode.matching.renter import Taking
from p2pnode.network.memory_transport import MemoryHub
from p2pnode.node import Node
from p2pnode.why_views import why_no_match
from protocol.codec import decode
from protocol.errors import LocalFault
from protocol.job import Job, seal_job
from protocol.limits import AUCTION_BYTES_MAX, JOB_BYTES_MAX
from protocol.pool import PoolRecord, check_pool
from protocol.units import Micros, MillisSpan, PublicKey
from tests.make_job import make_submission
from tests.make_node import LISTED_S, Party, Started, stop


@pytest.fixture
def party(tmp_path: Path, nursery: trio.Nursery) -> Party:
    return Party(tmp_path, nursery, MemoryHub())


def long(_run: Run) -> Script:
    return Script(lasts_ms=MillisSpan(60_000))


def submit(node: Node, nodes: int, **changes: object) -> str:
    members = tuple(make_submission(node, **changes) for _ in range(nodes))
    return node.pools.submit(members).id


async def ended(started: Started, pool: str) -> str:
    """The pool's state once it is over."""
    pools = started.node.pools
    with trio.fail_after(600):
        while (state := pools.state_of(pools.file(pool))) not in ENDED:  # noqa: ASYNC110
            await trio.sleep(0.1)
    return state


async def until(happened: Callable[[], bool]) -> None:
    with trio.fail_after(120):
        while not happened():  # noqa: ASYNC110
            await trio.sleep(0.1)


def leases(owners: list[Started]) -> int:
    """How many leases these owners have ever given."""
    return sum(len(owner.node.books.leases()) for owner in owners)


async def test_all_nodes_of_a_job_run_at_once_and_know_their_rank(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owners = [await party.add(ask=ask) for ask in (300_000, 310_000, 320_000)]
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    pool = submit(renter.node, 3)
    assert await ended(renter, pool) == "done"
    jobs = renter.node.pools.jobs_of(renter.node.pools.file(pool))
    described = [decode(job.job, Job, size_max=JOB_BYTES_MAX).variables for job in jobs]
    assert [each[RANK] for each in described] == ["0", "1", "2"]
    assert {each[NODES] for each in described} == {"3"}
    assert [len(owner.node.books.leases()) for owner in owners] == [1, 1, 1]
    starts = [owner.node.books.leases()[0].request.start_ms for owner in owners]
    assert max(starts) - min(starts) < 5_000


async def test_b7_no_node_is_leased_while_another_has_no_offer(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owners = [await party.add(ask=ask) for ask in (300_000, 310_000)]
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    pool = submit(renter.node, 3)
    assert await ended(renter, pool) == "failed"
    assert leases(owners) == 0
    assert renter.node.pools.file(pool).why == "no match: 2 of 3 nodes fit at once"
    assert [owner.node.desk.quoted for owner in owners] == [0, 0]
    told = await why_no_match(renter.node, pool)
    assert (told.job, told.state, told.is_matched) == (pool, "failed", False)
    assert told.pool == "no match: 2 of 3 nodes fit at once"
    assert (told.seen, told.fits) == (2, 2)
    both = submit(renter.node, 2)
    assert await ended(renter, both) == "done"
    assert (await why_no_match(renter.node, both)).is_matched


async def test_a_job_waits_for_room_and_starts_when_there_is_some(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    await party.add(ask=300_000)
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    pool = submit(renter.node, 2, patience_ms=MillisSpan(60_000))
    await trio.sleep(5)
    assert renter.node.pools.file(pool).state == "matching"
    await party.add(ask=310_000)
    assert await ended(renter, pool) == "done"


async def test_two_jobs_that_want_the_same_nodes_do_not_share_them(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owners = [await party.add(ask=ask) for ask in (300_000, 310_000, 320_000)]
    renters = [await party.add(ask=None, gossip="auto") for _ in range(2)]
    await trio.sleep(LISTED_S)
    pools = [submit(renter.node, 2, patience_ms=MillisSpan(300_000)) for renter in renters]
    for renter, pool in zip(renters, pools, strict=True):
        assert await ended(renter, pool) == "done"
    # Each began with all of its nodes, so neither ever held one while it lacked the other.
    assert leases(owners) == 4


async def test_the_limit_of_the_whole_is_that_of_all_nodes_together(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owners = [await party.add(ask=300_000) for _ in range(2)]
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    one = renter.node.jobs.draft(make_submission(renter.node))
    cost = -(-one.span_ms * 300_000 // 3_600_000)
    dear = submit(renter.node, 2, total_max=Micros(2 * cost - 1))
    assert await ended(renter, dear) == "failed"
    assert "over the limit" in renter.node.pools.file(dear).why
    assert leases(owners) == 0
    fair = submit(renter.node, 2, total_max=Micros(2 * cost))
    assert await ended(renter, fair) == "done"


async def test_k2_k3_one_lost_node_is_looked_for_alone(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    await party.add(ask=None)  # whom everybody calls first
    owners = [await party.start(party.build(ask=ask, script=long)) for ask in (300_000, 310_000)]
    renter = await party.add(ask=None, gossip="on")
    await trio.sleep(LISTED_S)
    pool = submit(renter.node, 2, patience_ms=MillisSpan(60_000))
    await until(lambda: all(job.state == "running" for job in _jobs(renter, pool)))
    [kept] = owners[1].node.books.leases()
    await stop(owners[0])
    lost_at = trio.current_time()
    await until(lambda: renter.node.pools.state_of(renter.node.pools.file(pool)) == "degraded")
    assert trio.current_time() - lost_at < 17  # `lost_after`, and a moment to ask once more
    spare = await party.start(party.build(ask=400_000, script=long))
    assert await ended(renter, pool) == "done"
    assert [lease.id for lease in owners[1].node.books.leases()] == [kept.id]
    assert len(spare.node.books.leases()) == 1


async def test_one_node_that_fails_for_good_ends_the_others(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owners = [await party.start(party.build(ask=ask, script=long)) for ask in (300_000, 310_000)]
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    pool = submit(renter.node, 2)
    await until(lambda: all(job.state == "running" for job in _jobs(renter, pool)))
    await stop(owners[0])
    assert await ended(renter, pool) == "failed"
    states = {job.state: job.why for job in _jobs(renter, pool)}
    assert set(states) == {"failed"}
    assert {job.why.partition(":")[0] for job in _jobs(renter, pool)} == {"no match", "cancelled"}


async def test_a_cancelled_one_ends_in_every_state(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owners = [await party.start(party.build(ask=ask, script=long)) for ask in (300_000, 310_000)]
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    waiting = submit(renter.node, 3, patience_ms=MillisSpan(600_000))
    renter.node.pools.cancel(waiting)
    assert await ended(renter, waiting) == "failed"
    running = submit(renter.node, 2)
    await until(lambda: all(job.state == "running" for job in _jobs(renter, running)))
    renter.node.pools.cancel(running)
    assert await ended(renter, running) == "failed"
    now = owners[0].node.ports.clock.now()
    assert all(lease.ended_ms <= now for o in owners for lease in o.node.books.leases())


@pytest.mark.parametrize("moment", ["held", "granted", "begun"])
async def test_a_renter_that_dies_at_any_moment_has_each_node_once(
    party: Party,
    autojump_clock: trio.abc.Clock,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
) -> None:
    owners = [await party.start(party.build(ask=ask, script=long)) for ask in (300_000, 310_000)]
    renter = await party.add(ask=None, gossip="on")
    await trio.sleep(LISTED_S)
    pooling = renter.node.pools._pooling
    take = pooling.take

    async def die(takings: list[Taking], failures: Failures) -> list[bytes]:
        if moment == "granted":
            await take(takings, failures)
        return await trio.sleep_forever()

    if moment != "begun":
        monkeypatch.setattr(pooling, "take", die)
    pool = submit(renter.node, 2, patience_ms=MillisSpan(600_000))
    await trio.sleep(1)
    assert renter.node.pools.file(pool).state == ("granted" if moment == "begun" else "taking")
    await stop(renter)
    monkeypatch.undo()
    revived = await party.start(party.revive(renter.node))
    pools = revived.node.pools
    record = decode(pools.auction_file(pools.file(pool)), PoolRecord, size_max=AUCTION_BYTES_MAX)
    assert len(check_pool(record, revived.node.net)) == 2
    assert await ended(revived, pool) == "done"
    accepted = [
        lease for owner in owners for lease in owner.node.books.leases() if lease.is_accepted
    ]
    assert len(accepted) == 2


async def test_an_owner_to_whom_nothing_can_be_sealed_is_left_out_and_ends_nothing(
    party: Party, autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners = [await party.add(ask=ask) for ask in (300_000, 310_000, 320_000)]
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    odd = owners[0].node.identity.certificate.x25519

    def seal(raw: bytes, *, to: PublicKey, ephemeral: bytes) -> bytes:
        return seal_job(raw, to=PublicKey(bytes(32)) if to == odd else to, ephemeral=ephemeral)

    monkeypatch.setattr(pools, "seal_job", seal)
    pool = submit(renter.node, 2, patience_ms=MillisSpan(60_000))
    assert await ended(renter, pool) == "done"
    assert [len(owner.node.books.leases()) for owner in owners] == [0, 1, 1]


async def test_a_job_of_one_node_is_no_pool(party: Party, autojump_clock: trio.abc.Clock) -> None:
    renter = await party.add(ask=None, gossip="auto")
    with pytest.raises(LocalFault, match="2 to 16"):
        submit(renter.node, 1)


def _jobs(started: Started, pool: str) -> list[JobFile]:
    pools = started.node.pools
    return pools.jobs_of(pools.file(pool))
