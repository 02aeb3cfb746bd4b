"""A bronze job whose units are taken back goes on elsewhere; whole nodes on virtual time."""

from pathlib import Path

import pytest
import trio

from ledger.bodies import Grant, Release, read_body
from ledger.early_release import Freed, Leased, has_right
from ledger.fold import Lease
from ledger.receipt import check_receipt
from p2pnode.accounts import cosigned
from p2pnode.execution.engine import Run, RunId
from p2pnode.execution.fake_engine import FakeEngine, Script
from p2pnode.execution.materials import MemoryMaterials
from p2pnode.jobs.jobfile import Fallback
from p2pnode.matching.order import Choice
from p2pnode.network.memory_transport import MemoryHub
from p2pnode.node import Node
from protocol.advert import Tier
from protocol.lease import charge
from protocol.tick import Tick
from protocol.units import Micros, Millis, MillisSpan
from protocol.wire import unpack
from tests.make_job import make_limits, make_submission
from tests.make_node import LISTED_S, Party, Started, ended, stop

NOTICE_MS = MillisSpan(5_000)
INTERVAL_MS = MillisSpan(3_000)
WORK_MS = MillisSpan(60_000)
AT_ONCE = Millis(0)
"""As soon as the notice lets it."""


class Works:
    """A job of a minute that saves how far it is; what it has saved it need not do again.

    It works on paper: how far a run is, is how long it has run.
    """

    def __init__(self, party: Party, *, saves_ms: MillisSpan | None = MillisSpan(500)) -> None:
        self._party = party
        self._saves_ms = saves_ms
        self.saved: dict[RunId, tuple[Millis, bytes]] = {}
        self.runs: list[tuple[Node, Run]] = []
        self._nodes: list[Node] = []

    def owner(self, ask: int) -> Node:
        node: list[Node] = []

        def script(run: Run) -> Script:
            self.runs.append((node[0], run))
            done = int(self.found(node[0], run) or b"0")
            return Script(lasts_ms=MillisSpan(WORK_MS - done), saves_ms=self._saves_ms)

        node.append(self._party.build(ask=ask, script=script, checkpoints=self.saved))
        return node[0]

    def found(self, node: Node, run: Run) -> bytes:
        """What the run found of its work elsewhere."""
        assert isinstance(node.ports.materials, MemoryMaterials)
        return node.ports.materials.resumed(run.id)

    def save(self, node: Node) -> None:
        """The job that runs at this owner saves how far it is now."""
        at, run = self.runs[-1]
        assert at is node
        began = int.from_bytes(node.ports.cabinet.get(f"leases/{run.id}/began") or b"", "big")
        now = node.ports.clock.now()
        done = int(self.found(node, run) or b"0") + now - began
        self.saved[run.id] = (now, str(done).encode())


@pytest.fixture
def party(tmp_path: Path, nursery: trio.Nursery) -> Party:
    return Party(tmp_path, nursery, MemoryHub())


async def under_way(
    party: Party, works: Works, **changes: object
) -> tuple[Started, Started, Started, str]:
    """(the cheaper owner, the dearer one, the renter, its job), ten seconds into the job."""
    first = await party.start(works.owner(300_000))
    second = await party.start(works.owner(400_000))
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    job = submit(renter, **changes)
    await trio.sleep(10)
    assert renter.node.jobs.driver(job).file.state == "running"
    return first, second, renter, job


def submit(renter: Started, **changes: object) -> str:
    wanted = {
        "tier": "bronze",
        "notice_ms": NOTICE_MS,
        "checkpoint_ms": INTERVAL_MS,
        "limits": make_limits(time_ms=2 * WORK_MS),
        **changes,
    }
    return renter.node.jobs.submit(make_submission(renter.node, **wanted)).id


def lease_of(owner: Node) -> Lease:
    [lease] = owner.books.leases()
    return lease


def owes(renter: Node, lease: Lease) -> Tick:
    """The last tick that the renter has co-signed."""
    last = cosigned(renter.ports.cabinet, lease.id)
    assert last is not None
    return unpack(last.tick, renter.net, Tick).body


async def test_k7_a_bronze_job_gets_its_notice_and_goes_on_elsewhere_with_what_it_saved(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    works = Works(party)
    first, second, renter, job = await under_way(party, works)
    lease = lease_of(first.node)
    at_ms = first.node.workplace.preempt(lease, AT_ONCE, why="the owner wants it")
    assert at_ms == first.node.ports.clock.now() + NOTICE_MS
    await trio.sleep(0.4)
    works.save(first.node)
    saved_ms, work = works.saved[works.runs[0][1].id]
    assert isinstance(first.node.ports.engine, FakeEngine)
    [notice] = first.node.ports.engine.notices(works.runs[0][1].id)
    assert (notice.deadline_ms, notice.reason) == (at_ms, "the owner wants it")
    done = await ended(renter, job)
    assert (done.state, done.attempt, done.preemptions) == ("done", 2, 1)
    [(at_first, _), (at_second, resumed)] = works.runs
    assert (at_first, at_second) == (first.node, second.node)
    assert works.found(second.node, resumed) == work
    # What was saved is paid for, what was lost is not, and both say so.
    tick = owes(renter.node, lease)
    began = int.from_bytes(
        first.node.ports.cabinet.get(f"leases/{lease.id.hex()}/began") or b"", "big"
    )
    assert tick.used_ms == saved_ms - began
    price = Micros(lease.request.micro_per_gpu_hour)
    assert done.paid_micro == charge(tick.used_ms, price)
    raw = renter.node.ports.cabinet.get(f"jobs/{job}/receipt")
    assert check_receipt(raw or b"", renter.node.net).owner == second.node.identity.feed.public


async def test_the_release_is_lawful_and_the_units_are_free_at_the_deadline(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    works = Works(party, saves_ms=None)
    first, _, renter, job = await under_way(party, works)
    lease = lease_of(first.node)
    at_ms = first.node.workplace.preempt(lease, AT_ONCE, why="")
    ledger = first.node.ports.ledger
    [released] = [entry for entry in ledger.referrers(lease.id) if entry.feed == ledger.feed]
    grant, body = ledger.entry(lease.id), read_body(released.draft)
    assert grant is not None
    given = read_body(grant.draft)
    assert isinstance(given, Grant)
    assert isinstance(body, Release)
    assert body.at_ms == at_ms
    leased, freed = Leased(entry=grant, grant=given), Freed(entry=released, release=body)
    assert has_right(leased, freed, None, ledger.net)
    await trio.sleep(NOTICE_MS / 1_000 + 0.5)
    run = works.runs[0][1]
    ending = await first.node.ports.engine.wait(run.id)
    assert (ending.cause, ending.ended_ms) == ("stopped", at_ms)
    done = await ended(renter, job)
    assert (done.state, done.attempt) == ("done", 2)
    # It never saved: nothing of it is owed.
    assert owes(renter.node, lease).used_ms == 0
    assert first.node.ports.ledger.offences() == renter.node.ports.ledger.offences() == []


async def test_an_owner_that_dies_costs_one_interval_at_most(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    works = Works(party)
    first, second, renter, job = await under_way(party, works)
    works.save(first.node)
    _, work = works.saved[works.runs[0][1].id]
    await trio.sleep(INTERVAL_MS / 1_000 + 1.5)
    await stop(first)
    done = await ended(renter, job)
    assert (done.state, done.attempt, done.preemptions) == ("done", 2, 0)
    assert works.found(second.node, works.runs[1][1]) == work
    assert owes(renter.node, lease_of(first.node)).used_ms < 12_000


async def test_bronze_is_billed_whole_once_its_job_has_ended_by_itself(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    works = Works(party)
    first, _, renter, job = await under_way(party, works)
    lease = lease_of(first.node)
    assert owes(renter.node, lease).used_ms == 0
    done = await ended(renter, job)
    assert (done.state, done.attempt) == ("done", 1)
    assert owes(renter.node, lease).used_ms == WORK_MS


async def test_k1_the_owner_that_took_its_units_back_is_left_alone_until_the_lease_would_have_ended(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    works = Works(party)
    first = await party.start(works.owner(300_000))
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    job = submit(renter)
    await trio.sleep(10)
    lease = lease_of(first.node)
    first.node.workplace.preempt(lease, AT_ONCE, why="")
    await trio.sleep(30)
    assert renter.node.jobs.driver(job).file.state == "matching"
    done = await ended(renter, job)
    assert done.state == "done"
    again = max(each.request.start_ms for each in first.node.books.leases())
    assert again >= lease.request.end_ms


@pytest.mark.parametrize("tiers", [("bronze",), ("silver", "bronze")])
async def test_k6_a_job_that_is_interrupted_too_often_pays_for_silver_within_its_cap(
    party: Party, autojump_clock: trio.abc.Clock, tiers: tuple[Tier, ...]
) -> None:
    works = Works(party)
    first, second, renter, job = await under_way(
        party,
        works,
        tier=tiers[0],
        choice=Choice(or_tiers=tiers[1:]),
        fallback=Fallback(after=2, tier="silver"),
    )
    third = await party.start(works.owner(500_000))
    await party.start(works.owner(500_001))
    await trio.sleep(LISTED_S)
    for owner in (first, second):
        owner.node.workplace.preempt(lease_of(owner.node), AT_ONCE, why="")
        await trio.sleep(12)
    done = await ended(renter, job)
    assert (done.state, done.attempt, done.tier) == ("done", 3, "silver")
    assert lease_of(third.node).request.tier == "silver"
    assert lease_of(third.node).request.micro_per_gpu_hour <= 500_000


async def test_k5_a_job_that_has_not_begun_is_told_at_once_and_tries_the_next_offer(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    works = Works(party)
    first = await party.start(works.owner(300_000))
    second = await party.start(works.owner(400_000))
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    job = submit(renter, notice_ms=MillisSpan(60_000))
    while not first.node.books.leases():  # noqa: ASYNC110 - books call nobody
        await trio.sleep(0.05)
    first.node.workplace.preempt(lease_of(first.node), AT_ONCE, why="outbid")
    told = trio.current_time()
    while (driver := renter.node.jobs.driver(job)).file.attempt == 1:
        await driver.changed.wait()
    assert trio.current_time() - told <= 1.5
    done = await ended(renter, job)
    assert (done.state, done.preemptions) == ("done", 1)
    assert [node for node, _ in works.runs] == [second.node]


@pytest.mark.parametrize("who", ["owner", "renter"])
async def test_a_node_that_dies_after_the_notice_goes_on_where_it_was(
    party: Party, autojump_clock: trio.abc.Clock, who: str
) -> None:
    works = Works(party)
    first, second, renter, job = await under_way(party, works)
    lease = lease_of(first.node)
    at_ms = first.node.workplace.preempt(lease, AT_ONCE, why="the owner wants it")
    assert at_ms is not None
    works.save(first.node)
    dying = first if who == "owner" else renter
    await stop(dying)
    await trio.sleep(1)
    alive = await party.start(party.revive(dying.node))
    if who == "renter":
        renter = alive
    done = await ended(renter, job)
    assert (done.state, done.attempt) == ("done", 2)
    assert works.found(second.node, works.runs[1][1]) == works.saved[works.runs[0][1].id][1]
    owner = alive.node if who == "owner" else first.node
    [found] = owner.books.leases()
    assert (found.reason, found.ended_ms) == ("preempted", at_ms)
    assert owner.ports.ledger.verify().broken is None


async def test_silver_takes_the_gpu_of_the_youngest_bronze_which_goes_on_elsewhere(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    works = Works(party)
    first, second, renter, job = await under_way(party, works)
    other = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    # All that is dearer is taken: only where bronze runs is there room for silver.
    silver = submit(other, tier="silver", ask_max=Micros(300_000))
    lease = lease_of(first.node)
    await trio.sleep(3)
    older, given = sorted(first.node.books.leases(), key=lambda each: each.request.start_ms)
    assert (older.id, older.reason) == (lease.id, "preempted")
    assert (given.request.tier, given.request.start_ms) == ("silver", older.ended_ms)
    done, better = await ended(renter, job), await ended(other, silver)
    assert (done.state, done.preemptions, better.state, better.attempt) == ("done", 1, "done", 1)
    assert [node for node, _ in works.runs].count(second.node) == 1
    for node in (first.node, second.node, renter.node, other.node):
        assert node.ports.ledger.offences() == []


async def test_bronze_takes_nothing_from_bronze_nor_from_silver(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    works = Works(party)
    first = await party.start(works.owner(300_000))
    renters = [await party.add(ask=None, gossip="auto") for _ in range(2)]
    await trio.sleep(LISTED_S)
    for tier, wanted in (("bronze", "bronze"), ("silver", "silver"), ("silver", "bronze")):
        job = submit(renters[0], tier=tier)
        await trio.sleep(10)
        late = submit(renters[1], tier=wanted)
        done, refused = await ended(renters[0], job), await ended(renters[1], late)
        assert (done.state, done.preemptions) == ("done", 0)
        assert refused.state == "failed"
        assert refused.why.startswith("no match")
    assert {lease.reason for lease in first.node.books.leases()} == {"consent"}


async def test_c2_a_bid_that_is_never_taken_breaks_nothing(
    party: Party, autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def take_nothing(*_: object) -> None:
        await trio.lowlevel.checkpoint()

    works = Works(party)
    first, _, renter, job = await under_way(party, works)
    other = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    monkeypatch.setattr(other.node.renter, "_take_best", take_nothing)
    silver = submit(other, tier="silver", ask_max=Micros(300_000))
    assert (await ended(other, silver)).state == "failed"
    assert first.node.desk.quoted >= 2
    done = await ended(renter, job)
    assert (done.state, done.attempt) == ("done", 1)
