"""What is owed when owner and renter lose sight of each other; whole nodes on virtual time."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from ledger.debts import Debt, debt_of
from p2pnode.accounts import Accounts, cosigned
from p2pnode.cabinet import MemoryCabinet
from p2pnode.execution.course import KEPT_MS
from p2pnode.execution.engine import Ending, Run, RunId
from p2pnode.execution.fake_engine import FakeEngine, Script
from p2pnode.identity import Identity
from p2pnode.network.exchange import Refused
from p2pnode.network.memory_transport import MemoryHub
from p2pnode.node import Node
from p2pnode.ports import Ports
from protocol.codec import encode
from protocol.errors import LocalFault
from protocol.lease_stream import LeaseName
from protocol.tick import Outcome, Tick
from protocol.units import Micros, MillisSpan, PeerId
from protocol.wire import unpack
from tests.make_job import make_limits, make_submission
from tests.make_node import LISTED_S, Party, Started, ended, stop

RUN_MS = MillisSpan(600_000)


class FaultyCabinet(MemoryCabinet):
    """A node's cabinet that has no room for what is metered while `is_full`."""

    def __init__(self, ports: Ports) -> None:
        assert isinstance(ports.cabinet, MemoryCabinet)
        self._records = ports.cabinet._records
        self.is_full = False

    def put(self, name: str, record: bytes) -> None:
        if self.is_full and name.endswith("/metered"):
            raise LocalFault("No space left.")
        super().put(name, record)


@pytest.fixture
def party(tmp_path: Path, nursery: trio.Nursery) -> Party:
    return Party(tmp_path, nursery, MemoryHub())


def long(_run: Run) -> Script:
    return Script(lasts_ms=RUN_MS)


def as_built(ports: Ports, _identity: Identity) -> Ports:
    return ports


def with_faulty_cabinet(ports: Ports, _identity: Identity) -> Ports:
    return replace(ports, cabinet=FaultyCabinet(ports))


async def under_way(
    party: Party, wrap: Callable[[Ports, Identity], Ports] = as_built
) -> tuple[Started, Started, str]:
    """An owner and a renter, ten seconds into a job of ten minutes; there is a dearer owner too."""
    owner = await party.start(party.build(ask=300_000, script=long, wrap=wrap))
    await party.add(ask=400_000)
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    limits = make_limits(time_ms=2 * RUN_MS)
    job = renter.node.jobs.submit(make_submission(renter.node, limits=limits)).id
    await trio.sleep(10)
    assert renter.node.jobs.driver(job).file.state == "running"
    return owner, renter, job


def signed(renter: Node, owner: Node) -> Micros:
    """What the renter has co-signed of the one lease between the two."""
    [lease] = owner.books.leases()
    last = cosigned(renter.ports.cabinet, lease.id)
    assert last is not None
    return Micros(unpack(last.tick, renter.net, Tick).body.amount_micro)


def account(here: Node, owner: Node, renter: Node) -> Debt:
    feeds = owner.ports.ledger.feed, renter.ports.ledger.feed
    debt = debt_of(here.ports.ledger.state, *feeds, "TEST")
    assert debt is not None
    return debt


async def test_an_owner_that_comes_back_after_the_job_went_elsewhere_meters_no_more(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner, renter, job = await under_way(party)
    await stop(owner)
    done = await ended(renter, job)
    assert (done.state, done.attempt) == ("done", 2)
    owed = signed(renter.node, owner.node)
    assert done.paid_micro == owed > 0
    again = await party.start(party.revive(owner.node))
    await trio.sleep(120)
    assert signed(renter.node, again.node) == owed
    [lease] = again.node.books.leases()
    worker = again.node.workplace.worker(lease.id)
    assert worker is not None
    assert worker.outcome is not None
    assert unpack(worker.outcome, renter.node.net, Outcome).body.cause == "stopped"
    await trio.sleep((lease.request.end_ms - again.node.ports.clock.now() + KEPT_MS) / 1_000 + 60)
    assert again.node.workplace.worker(lease.id) is None
    for here in (again.node, renter.node):
        debt = account(here, again.node, renter.node)
        assert (debt.stated_micro, debt.claimed_micro) == (owed, 0)


async def test_a_lease_of_which_nothing_is_metered_yet_has_no_tick(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner = await party.start(party.build(ask=300_000, script=long))
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    driver = renter.node.jobs.driver(renter.node.jobs.submit(make_submission(renter.node)).id)
    while driver.file.state != "running":
        await driver.changed.wait()
    [lease] = owner.node.books.leases()
    with pytest.raises(Refused) as caught:
        await renter.node.links.ask(owner.peer, "lease.tick", encode(LeaseName(lease=lease.id)))
    assert caught.value.rule == "tick.none"


async def test_what_a_renter_that_vanished_has_not_cosigned_is_claimed_last(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner, renter, _ = await under_way(party)
    owed = signed(renter.node, owner.node)
    await stop(renter)
    await trio.sleep(2 * RUN_MS / 1_000)
    [lease] = owner.node.books.leases()
    debt = account(owner.node, owner.node, renter.node)
    assert (debt.stated_micro, debt.agreed_micro) == (owed, 0)
    metered = owner.node.books.metered(lease.id)
    assert metered > owed
    await trio.sleep(KEPT_MS / 1_000 + RUN_MS / 1_000)
    debt = account(owner.node, owner.node, renter.node)
    assert (debt.stated_micro, debt.claimed_micro) == (metered, metered)


async def test_an_owner_that_was_away_when_the_renter_settled_is_paid_all_the_same(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner, renter, job = await under_way(party)
    driver = renter.node.jobs.driver(job)
    while driver.file.state not in {"settling", "done"}:
        await driver.changed.wait()
    await stop(owner)
    done = await ended(renter, job)
    assert done.state == "done"
    assert renter.node.ports.cabinet.get(f"jobs/{job}/receipt") is None
    again = await party.start(party.revive(owner.node))
    await trio.sleep(2 * 300 + 60)
    for here in (again.node, renter.node):
        debt = account(here, again.node, renter.node)
        assert debt.agreed_micro == debt.stated_micro == signed(renter.node, again.node)
        assert debt.agreed_micro == -(-RUN_MS * 300_000 // 3_600_000)


@pytest.mark.parametrize("full_s", [5, 60])
async def test_what_cannot_be_metered_is_stopped_and_the_owner_goes_on(
    party: Party, autojump_clock: trio.abc.Clock, full_s: int
) -> None:
    owner, renter, _ = await under_way(party, with_faulty_cabinet)
    cabinet = owner.node.ports.cabinet
    assert isinstance(cabinet, FaultyCabinet)
    cabinet.is_full = True
    await trio.sleep(full_s)
    cabinet.is_full = False
    await trio.sleep(RUN_MS / 1_000)
    assert not owner.ended.is_set()
    [lease] = owner.node.books.leases()
    ending = await owner.node.ports.engine.wait(RunId(lease.id.hex()))
    assert ending.cause == "stopped"
    again = renter.node.jobs.submit(make_submission(renter.node)).id
    assert (await ended(renter, again)).state == "done"


class SlowEngine(FakeEngine):
    """Tells of an end half a second late, so that a tick may fall between."""

    async def wait(self, run: RunId) -> Ending:
        ending = await super().wait(run)
        await trio.sleep(0.5)
        return ending


@pytest.mark.parametrize("lasts_ms", [7_500, 7_700, 7_900, 8_100])
async def test_the_last_tick_says_no_less_than_one_whose_signature_was_lost(
    party: Party, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock, lasts_ms: int
) -> None:
    """A tick is sent after the run has ended and before we know: that end cancels the question."""
    answer_tick = Accounts.answer_tick

    async def answer_slowly(of: Accounts, peer: PeerId, body: bytes) -> bytes:
        answer = await answer_tick(of, peer, body)
        await trio.sleep(1)
        return answer

    def wrap(ports: Ports, _identity: Identity) -> Ports:
        script = Script(lasts_ms=MillisSpan(lasts_ms))
        return replace(ports, engine=SlowEngine(lambda _run: script, clock=ports.clock))

    monkeypatch.setattr(Accounts, "answer_tick", answer_slowly)
    owner = await party.start(party.build(ask=300_000, wrap=wrap))
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    job = renter.node.jobs.submit(make_submission(renter.node)).id
    assert (await ended(renter, job)).state == "done"
    assert renter.node.ports.cabinet.get(f"jobs/{job}/receipt") is not None
    await trio.sleep(10)
    for here in (owner.node, renter.node):
        debt = account(here, owner.node, renter.node)
        assert debt.agreed_micro == debt.stated_micro == signed(renter.node, owner.node)
