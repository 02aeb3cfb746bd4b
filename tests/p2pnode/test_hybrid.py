"""A job that may run on its renter's own primary: there or on the market, never at both."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import trio

from p2pnode.api.wanted_documents import JobOrder
from p2pnode.config import Primary as PrimaryChoice
from p2pnode.config import PrimaryUse
from p2pnode.job_views import JobViews
from p2pnode.jobs.baggage import FileBaggage, MemoryBaggage
from p2pnode.jobs.jobfile import AtPrimary, JobFile, PrimaryMode
from p2pnode.jobs.primary_template import Verb
from p2pnode.network.memory_transport import MemoryHub
from p2pnode.node import Node
from p2pnode.pool_views import PoolViews
from protocol.errors import LocalFault
from protocol.units import Micros, MillisSpan
from tests.make_job import make_limits, make_submission
from tests.make_node import LISTED_S, Party, Started, ended, stop
from tests.make_primary import HANGS, TEMPLATE, ScriptedPrimary


@pytest.fixture
def party(tmp_path: Path, nursery: trio.Nursery) -> Party:
    return Party(tmp_path, nursery, MemoryHub())


async def renter_with(party: Party, primary: ScriptedPrimary) -> Started:
    node = party.build(
        ask=None, gossip="auto", wrap=lambda ports, _identity: replace(ports, primary=primary)
    )
    started = await party.start(node)
    await trio.sleep(LISTED_S)
    return started


def submit(node: Node, mode: PrimaryMode, **changes: object) -> JobFile:
    return node.jobs.submit(make_submission(node, primary=AtPrimary(mode=mode), **changes))


async def never_both(renter: Started, owner: Started, primary: ScriptedPrimary) -> None:
    """Fails once a job is there while a lease for one is accepted here."""
    while True:
        leases = [lease for lease in renter.node.ports.ledger.state.leases() if lease.is_accepted]
        assert not (leases and primary.has)
        assert not (owner.node.workplace._workers and primary.has)
        await trio.sleep(0.05)


def there(file: JobFile) -> AtPrimary:
    assert isinstance(file.primary, AtPrimary)
    return file.primary


async def test_a_job_runs_on_the_primary_and_its_log_and_exit_code_come_back(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    await party.add(ask=300_000)
    primary = ScriptedPrimary(states=["waiting", "running", "ended 7"], printed=b"hello\n")
    renter = await renter_with(party, primary)
    file = submit(renter.node, "first")
    done = await ended(renter, file.id)
    assert (done.state, there(done).exit_code, done.lease) == ("done", 7, msgspec.UNSET)
    assert primary.asked.count("start") == 1
    assert primary.has == set()
    assert await renter.node.ports.baggage.log_size(file.id) == len(b"hello\n")
    assert isinstance(renter.node.ports.baggage, MemoryBaggage)
    assert renter.node.ports.ledger.state.leases() == []


@pytest.mark.parametrize("said", ["no stock", "full up", "some error", HANGS])
async def test_what_the_primary_cannot_run_runs_here_after_it_let_go(
    party: Party, nursery: trio.Nursery, autojump_clock: trio.abc.Clock, said: str
) -> None:
    owner = await party.add(ask=300_000)
    primary = ScriptedPrimary(starts=[said])
    renter = await renter_with(party, primary)
    nursery.start_soon(never_both, renter, owner, primary)
    began = trio.current_time()
    file = submit(renter.node, "first")
    driver = renter.node.jobs.driver(file.id)
    while driver.file.state != "running":
        await driver.changed.wait()
    took = trio.current_time() - began
    assert took < (70 if said == HANGS else 10)  # on virtual time
    done = await ended(renter, file.id)
    assert (done.state, there(done).phase) == ("done", "left")
    assert ("stop" in primary.asked) == (said != "full up")
    nursery.cancel_scope.cancel()


async def test_a_primary_that_cannot_be_reached_for_a_moment_keeps_the_job(
    party: Party, nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    owner = await party.add(ask=300_000)
    primary = ScriptedPrimary(states=["running", "full up", "running", "ended 3"])
    renter = await renter_with(party, primary)
    nursery.start_soon(never_both, renter, owner, primary)
    done = await ended(renter, submit(renter.node, "first").id)
    assert (done.state, there(done).exit_code, done.lease) == ("done", 3, msgspec.UNSET)
    nursery.cancel_scope.cancel()


async def test_what_waits_too_long_there_runs_here(
    party: Party, nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    owner = await party.add(ask=300_000)
    primary = ScriptedPrimary(states=["in a queue"])
    renter = await renter_with(party, primary)
    nursery.start_soon(never_both, renter, owner, primary)
    done = await ended(renter, submit(renter.node, "first").id)
    assert (done.state, there(done).why) == ("done", "does not run after 60s")
    nursery.cancel_scope.cancel()


async def test_a_primary_that_does_not_let_go_ends_the_job_and_nothing_is_leased(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner = await party.add(ask=300_000)
    primary = ScriptedPrimary(starts=["no stock"], obeys_stop=False)
    renter = await renter_with(party, primary)
    done = await ended(renter, submit(renter.node, "first").id)
    assert done.state == "failed"
    assert f"look for {done.id} there" in done.why
    assert owner.node.books.leases() == []


async def test_what_is_pinned_to_the_primary_never_leaves(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner = await party.add(ask=300_000)
    primary = ScriptedPrimary(starts=["no stock"] * 9)
    renter = await renter_with(party, primary)
    done = await ended(renter, submit(renter.node, "only", patience_ms=MillisSpan(25_000)).id)
    assert (done.state, done.why) == ("failed", "no match: the primary: no stock")
    assert 2 <= primary.asked.count("start") <= 4
    assert owner.node.books.leases() == []
    primary.starts = ["no stock", "sent"]
    primary.states = ["running", "ended 0"]
    done = await ended(renter, submit(renter.node, "only", patience_ms=MillisSpan(25_000)).id)
    assert (done.state, there(done).exit_code) == ("done", 0)


async def test_whom_nobody_here_fits_goes_to_the_primary(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner = await party.add(ask=300_000)
    primary = ScriptedPrimary(states=["running", "ended 0"])
    renter = await renter_with(party, primary)
    done = await ended(renter, submit(renter.node, "fallback", ask_max=Micros(299_999)).id)
    assert (done.state, there(done).exit_code) == ("done", 0)
    assert owner.node.books.leases() == []
    primary.asked.clear()
    done = await ended(renter, submit(renter.node, "fallback").id)
    assert (done.state, there(done).phase, primary.asked) == ("done", "untried", [])
    assert len(owner.node.books.leases()) == 1
    primary.starts = ["no stock"]
    done = await ended(renter, submit(renter.node, "fallback", ask_max=Micros(1)).id)
    assert done.why == "no match: 0 of 1 offers: 1 price; the primary: no stock"


async def test_a_cancelled_job_is_stopped_there(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    primary = ScriptedPrimary()
    renter = await renter_with(party, primary)
    file = submit(renter.node, "first")
    await trio.sleep(10)
    assert primary.has == {file.id}
    renter.node.jobs.driver(file.id).cancel()
    done = await ended(renter, file.id)
    assert (done.state, done.why, primary.has) == ("failed", "cancelled", set())


async def test_the_time_limit_holds_there(party: Party, autojump_clock: trio.abc.Clock) -> None:
    primary = ScriptedPrimary()
    renter = await renter_with(party, primary)
    done = await ended(renter, submit(renter.node, "only", limits=make_limits(time_ms=30_000)).id)
    assert (done.state, done.why, primary.has) == ("failed", "time", set())


@pytest.mark.parametrize(("said", "why"), [("broken", "failed"), ("nothing", "is gone")])
async def test_what_breaks_there_is_not_run_again(
    party: Party, autojump_clock: trio.abc.Clock, said: str, why: str
) -> None:
    await party.add(ask=300_000)
    primary = ScriptedPrimary(states=["running", said])
    renter = await renter_with(party, primary)
    done = await ended(renter, submit(renter.node, "first").id)
    assert (done.state, done.why) == ("failed", f"the primary: it {why} there")
    assert primary.asked.count("start") == 1


class Dying:
    """Ends a node at the n-th time that its primary is about to do something, or has done it."""

    def __init__(self, at: int) -> None:
        self._at = at
        self.renter: Started | None = None

    def __call__(self, _verb: Verb) -> None:
        self._at -= 1
        if self._at == 0 and self.renter is not None:
            self.renter.scope.cancel()


@pytest.mark.parametrize("mode", ["first", "fallback"])
@pytest.mark.parametrize("stock", ["no stock", "sent"])
@pytest.mark.parametrize("at", range(1, 13))
async def test_a_death_at_any_step_leaves_one_outcome(
    party: Party,
    nursery: trio.Nursery,
    autojump_clock: trio.abc.Clock,
    at: int,
    stock: str,
    mode: PrimaryMode,
) -> None:
    owner = await party.add(ask=300_000)
    dying = Dying(at)
    primary = ScriptedPrimary(starts=[stock], states=["running", "running", "ended 0"])
    renter = await renter_with(party, primary)
    dying.renter, primary.on_ask = renter, dying
    price = {"ask_max": Micros(1)} if mode == "fallback" else {}
    file = submit(renter.node, mode, **price)
    with trio.move_on_after(300):
        await renter.ended.wait()
    if not renter.ended.is_set():
        await stop(renter)  # it was asked less often
    node = party.revive(renter.node)
    node.jobs._primary = primary
    # Their simulated network keeps no connection of a node that is gone.
    again = await party.start(node)
    nursery.start_soon(never_both, again, owner, primary)
    done = await ended(again, file.id)
    assert primary.has == set()
    ran_there = isinstance(there(done).exit_code, int)
    ran_here = any(lease.is_accepted for lease in owner.node.books.leases())
    assert not (ran_there and ran_here)
    assert primary.asked.count("start") <= 2
    if stock == "sent":
        assert ran_there
    elif mode == "first" and not ran_there:
        assert (done.state, ran_here) == ("done", True)
    nursery.cancel_scope.cancel()


async def test_a_start_of_an_earlier_life_is_waited_for(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    primary = ScriptedPrimary(starts=[HANGS, "sent"], states=["nothing"])
    renter = await renter_with(party, primary)
    file = submit(renter.node, "only")
    await trio.sleep(1)
    await stop(renter)
    node = party.revive(renter.node)
    node.jobs._primary, primary.slow_start = primary, {file.id}
    again = await party.start(node)
    await trio.sleep(20)
    assert there(again.node.jobs.driver(file.id).file).phase == "starting"
    primary.slow_start, primary.states = set(), ["running", "ended 3"]
    done = await ended(again, file.id)
    assert there(done).exit_code == 3


@pytest.mark.parametrize("has_it", [True, False])
@pytest.mark.parametrize("when", ["before it is asked", "while it is asked", "while it starts"])
async def test_a_job_that_is_cancelled_while_it_is_found_out_never_stays_there(
    party: Party, autojump_clock: trio.abc.Clock, when: str, has_it: bool
) -> None:
    owner = await party.add(ask=300_000)
    primary = ScriptedPrimary(starts=[HANGS], states=["running"])
    renter = await renter_with(party, primary)
    file = submit(renter.node, "first")
    await trio.sleep(1)
    if when != "while it is asked":
        renter.node.jobs.driver(file.id).cancel()
    await stop(renter)
    if not has_it:
        primary.has.clear()
        primary._known.clear()
    node = party.revive(renter.node)
    node.jobs._primary = primary
    primary.asked.clear()
    if when == "while it is asked":
        primary.on_ask = lambda _verb: node.jobs.driver(file.id).cancel()
    primary.slow_start = {file.id} if when == "while it starts" else set()
    again = await party.start(node)
    if primary.slow_start:
        await trio.sleep(20)
        assert there(node.jobs.driver(file.id).file).phase == "leaving"
        primary.has.add(file.id)  # at last
        primary._known.add(file.id)
        primary.slow_start = set()
    done = await ended(again, file.id)
    assert (done.state, done.why, primary.has) == ("failed", "cancelled", set())
    assert "start" not in primary.asked
    assert owner.node.books.leases() == []


async def test_a_job_that_cannot_be_said_is_refused_at_once(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    lonely = (await party.add(ask=None)).node
    with pytest.raises(LocalFault, match="no primary"):
        submit(lonely, "first")
    needy = ScriptedPrimary(template=msgspec.structs.replace(TEMPLATE, needs=("image",)))
    node = (await renter_with(party, needy)).node
    with pytest.raises(LocalFault, match="--image"):
        submit(node, "first")
    image = "a@sha256:" + "0" * 64
    carries = make_submission(node, primary=AtPrimary(mode="only", input="/data"), image=image)
    with pytest.raises(LocalFault, match="input"):
        node.jobs.submit(carries)
    assert node.jobs.files() == []


async def test_a_job_on_several_nodes_is_for_the_market(
    party: Party, tmp_path: Path, autojump_clock: trio.abc.Clock
) -> None:
    node = (await renter_with(party, ScriptedPrimary())).node
    views = PoolViews(node, FileBaggage(tmp_path))
    with pytest.raises(LocalFault, match="market"):
        await views.submit(JobOrder(argv=("true",), money="TEST", nodes=2, primary="first"))
    assert node.pools.files() == []


@pytest.mark.parametrize(
    ("use", "asked", "is_there"),
    [("first", None, True), ("first", "never", False), ("never", "only", True)],
)
async def test_what_an_order_says_goes_before_what_is_configured(
    party: Party,
    tmp_path: Path,
    autojump_clock: trio.abc.Clock,
    use: PrimaryUse,
    asked: PrimaryUse | None,
    is_there: bool,
) -> None:
    await party.add(ask=300_000)
    primary = ScriptedPrimary(states=["running", "ended 0"])
    node = party.build(
        ask=None,
        gossip="auto",
        wrap=lambda ports, _identity: replace(ports, primary=primary),
        choose=lambda config: msgspec.structs.replace(config, primary=PrimaryChoice(use=use)),
    )
    renter = await party.start(node)
    await trio.sleep(LISTED_S)
    views = JobViews(node, FileBaggage(tmp_path))
    order = JobOrder(argv=("true",), vram_mib_min=22_889, money="TEST", primary=asked)
    job = await views.submit(order)
    done = await ended(renter, job.id)
    assert done.state == "done"
    assert ("start" in primary.asked, done.lease is msgspec.UNSET) == (is_there, is_there)
    document = views.show(job.id)
    assert (document.primary is not None) == is_there
