"""A job that outlasts its lease goes on in the next one; whole nodes on virtual time."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import trio

from ledger.fold import Lease
from ledger.receipt import check_receipt
from p2pnode.accounts import cosigned
from p2pnode.execution.engine import Run, RunId
from p2pnode.execution.fake_engine import Script
from p2pnode.network.memory_transport import MemoryHub
from p2pnode.node import Node
from protocol.lease import charge
from protocol.tick import Tick
from protocol.units import Micros, MillisSpan
from protocol.wire import unpack
from tests.make_job import make_limits, make_submission
from tests.make_node import LISTED_S, Party, Started, ended, stop

LEASE_MS = MillisSpan(60_000)
WORK_MS = MillisSpan(150_000)
"""Two leases and a half."""
LOG = b"".join(b"line %d\n" % number for number in range(500))


@pytest.fixture
def party(tmp_path: Path, nursery: trio.Nursery) -> Party:
    return Party(tmp_path, nursery, MemoryHub())


class Works:
    """A job of two leases and a half, and where it was started."""

    def __init__(self, party: Party, lasts_ms: int = WORK_MS) -> None:
        self._party = party
        self._lasts_ms = lasts_ms
        self.runs: list[RunId] = []
        self.outputs: dict[RunId, bytes] = {}

    def owner(self, ask: int) -> Node:
        def script(run: Run) -> Script:
            self.runs.append(run.id)
            self.outputs[run.id] = b"done"
            return Script(lasts_ms=MillisSpan(self._lasts_ms), log=LOG)

        return self._party.build(ask=ask, script=script, outputs=self.outputs)


def submit(renter: Started, **changes: object) -> str:
    wanted = {"lease_ms": LEASE_MS, "limits": make_limits(time_ms=10 * WORK_MS), **changes}
    return renter.node.jobs.submit(make_submission(renter.node, **wanted)).id


def leases_of(owner: Started) -> list[Lease]:
    return sorted(owner.node.books.leases(), key=lambda each: each.request.start_ms)


def used(renter: Node, lease: Lease) -> int:
    last = cosigned(renter.ports.cabinet, lease.id)
    assert last is not None
    return unpack(last.tick, renter.net, Tick).body.used_ms


async def under_way(party: Party, works: Works, **changes: object) -> tuple[Started, Started, str]:
    owner = await party.start(works.owner(300_000))
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    job = submit(renter, **changes)
    await trio.sleep(10)
    file = renter.node.jobs.driver(job).file
    assert (file.state, file.why) == ("running", "")
    return owner, renter, job


def check_chain(owner: Started, renter: Started, works: Works) -> None:
    """Three leases, one after the other, one run, and every millisecond paid once."""
    leases = leases_of(owner)
    assert [lease.reason for lease in leases] == [None, None, "consent"]
    for one, other in pairwise(leases):
        assert other.request.start_ms == one.request.end_ms
        assert other.request.renews == one.id
        assert [each.unit for each in other.request.units] == [
            each.unit for each in one.request.units
        ]
    assert works.runs == [RunId(leases[0].id.hex())]
    times = [used(renter.node, lease) for lease in leases]
    assert sum(times) == WORK_MS
    assert times[1] == LEASE_MS
    for node in (owner.node, renter.node):
        assert node.ports.ledger.offences() == []
        assert node.ports.ledger.verify().broken is None


async def test_a_job_goes_on_in_lease_after_lease_and_is_paid_to_the_millisecond(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    works = Works(party)
    owner, renter, job = await under_way(party, works)
    done = await ended(renter, job)
    assert (done.state, done.attempt) == ("done", 1)
    check_chain(owner, renter, works)
    leases = leases_of(owner)
    owed = [charge(MillisSpan(used(renter.node, each)), Micros(300_000)) for each in leases]
    assert done.paid_micro == owed[0] + owed[1]
    raw = renter.node.ports.cabinet.get(f"jobs/{job}/receipt")
    proven = check_receipt(raw or b"", renter.node.net)
    assert (proven.lease, proven.amount_micro, proven.is_settled) == (leases[2].id, owed[2], True)
    assert renter.node.ports.baggage._files[job, "log"] == LOG  # type: ignore[attr-defined]
    assert renter.node.ports.baggage._files[job, "output"] == b"done"  # type: ignore[attr-defined]


@pytest.mark.parametrize("when_s", [25, 45, 58, 65])
@pytest.mark.parametrize("who", ["owner", "renter"])
async def test_a_restart_at_any_time_neither_starts_it_again_nor_ends_it(
    party: Party, autojump_clock: trio.abc.Clock, who: str, when_s: int
) -> None:
    works = Works(party)
    owner, renter, job = await under_way(party, works)
    await trio.sleep(when_s - 10)
    dying = owner if who == "owner" else renter
    await stop(dying)
    await trio.sleep(1)
    alive = await party.start(party.revive(dying.node))
    owner, renter = (alive, renter) if who == "owner" else (owner, alive)
    done = await ended(renter, job)
    assert (done.state, done.attempt) == ("done", 1)
    check_chain(owner, renter, works)


async def test_a_job_that_ends_in_its_first_lease_lets_the_next_one_go(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    works = Works(party, lasts_ms=50_000)
    owner, renter, job = await under_way(party, works)
    done = await ended(renter, job)
    assert done.state == "done"
    await trio.sleep(2)
    [first, second] = leases_of(owner)
    assert (first.reason, second.reason) == ("consent", "consent")
    assert second.ended_ms < second.request.start_ms
    assert used(renter.node, first) == 50_000
    assert renter.node.accounts.owed(second.id) == 0
    assert renter.node.ports.baggage._files[job, "output"] == b"done"  # type: ignore[attr-defined]


async def test_an_owner_that_wants_its_gpu_renews_no_more_and_the_job_moves(
    party: Party, autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    works = Works(party)
    owner, renter, job = await under_way(party, works)
    second = await party.start(works.owner(400_000))
    await trio.sleep(LISTED_S)
    owner.node.provider.posting = replace(owner.node.provider.posting, paused=True)
    await trio.sleep(80)
    file = renter.node.jobs.driver(job).file
    assert (file.state, file.attempt) == ("running", 2)
    [lease] = leases_of(owner)
    assert used(renter.node, lease) > 0
    assert len(leases_of(second)) >= 1


async def test_the_next_lease_keeps_to_what_the_renter_pays_at_most(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    works = Works(party)
    # Enough for a lease and a half at this price.
    total = charge(MillisSpan(90_000), Micros(300_000))
    owner, renter, job = await under_way(party, works, total_max=total)
    done = await ended(renter, job)
    assert done.state == "failed"
    [lease] = leases_of(owner)
    assert done.paid_micro + renter.node.accounts.owed(lease.id) <= 2 * total
    assert done.paid_micro <= total
