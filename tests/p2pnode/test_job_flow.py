"""A job from submission to receipt, over whole nodes in memory on virtual time."""

from pathlib import Path

import pytest
import trio

from ledger.receipt import check_receipt
from p2pnode.accounts import cosigned
from p2pnode.execution.engine import Ending, Run, RunId
from p2pnode.execution.fake_engine import FakeEngine, Script
from p2pnode.execution.meter import Metered, last_tick
from p2pnode.network.memory_transport import MemoryHub
from protocol.codec import decode
from protocol.errors import LocalFault, Unavailable
from protocol.limits import AUCTION_BYTES_MAX
from protocol.scoring import AuctionRecord, check_auction
from protocol.tick import Tick
from protocol.units import Micros, MillisSpan
from protocol.wire import unpack
from tests.make_job import make_submission
from tests.make_node import LISTED_S, Party, ended, stop


@pytest.fixture
def party(tmp_path: Path, nursery: trio.Nursery) -> Party:
    return Party(tmp_path, nursery, MemoryHub())


async def test_a_job_runs_at_the_cheapest_owner_and_leaves_a_receipt(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owners = [await party.add(ask=ask) for ask in (300_000, 400_000, 500_000)]
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    node = renter.node
    file = node.jobs.submit(make_submission(node))
    done = await ended(renter, file.id)
    assert (done.state, done.why) == ("done", "")
    raw = node.ports.cabinet.get(f"jobs/{file.id}/receipt")
    assert raw is not None
    proven = check_receipt(raw, node.net)
    assert proven.owner == owners[0].node.identity.feed.public
    assert proven.is_settled
    assert proven.used_ms == 5_000
    assert proven.amount_micro == -(-5_000 * 300_000 // 3_600_000)
    assert proven.outcome.gpu == "simulated"
    record = decode(
        node.ports.cabinet.get(f"jobs/{file.id}/auction-1") or b"",
        AuctionRecord,
        size_max=AUCTION_BYTES_MAX,
    )
    assert check_auction(record, node.net) == proven.request.bid
    assert len(record.bids) == 3


async def test_the_units_are_free_again_once_the_renter_has_consented(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner = await party.add(ask=300_000)
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    for _ in range(3):
        file = renter.node.jobs.submit(make_submission(renter.node))
        assert (await ended(renter, file.id)).state == "done"
    leases = owner.node.books.leases()
    assert [lease.reason for lease in leases] == ["consent"] * 3
    for lease in leases:  # what proves who owes what is kept, and not what was run
        folder = f"leases/{lease.id.hex()}"
        kept = owner.node.ports.cabinet.names(folder)
        assert kept == [f"{folder}/{name}" for name in ("began", "done", "metered", "outcome")]
    assert owner.node.ports.ledger.verify().broken is None


async def test_the_price_ceiling_is_kept_and_the_reason_is_told(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    await party.add(ask=300_000)
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    file = renter.node.jobs.submit(make_submission(renter.node, ask_max=Micros(299_999)))
    done = await ended(renter, file.id)
    assert done.state == "failed"
    assert done.why == "no match: 0 of 1 offers: 1 price"


async def test_two_renters_cannot_have_the_same_gpu(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner = await party.add(ask=300_000)
    renters = [await party.add(ask=None, gossip="auto") for _ in range(3)]
    await trio.sleep(LISTED_S)
    files = [renter.node.jobs.submit(make_submission(renter.node)) for renter in renters]
    await trio.sleep(4)
    now = owner.node.ports.clock.now()
    current = [lease for lease in owner.node.books.leases() if lease.ended_ms > now]
    assert len(current) == 1
    states = [
        renter.node.jobs.driver(f.id).file.state for renter, f in zip(renters, files, strict=True)
    ]
    assert sorted(states) == ["matching", "matching", "running"]


async def test_a_job_moves_when_its_owner_dies(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    def long(_run: Run) -> Script:
        return Script(lasts_ms=MillisSpan(50_000))

    first = await party.start(party.build(ask=300_000, script=long))
    second = await party.start(party.build(ask=400_000))
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    file = renter.node.jobs.submit(make_submission(renter.node))
    await trio.sleep(10)
    assert renter.node.jobs.driver(file.id).file.state == "running"
    await stop(first)
    [lease] = first.node.books.leases()
    done = await ended(renter, file.id)
    assert (done.state, done.attempt) == ("done", 2)
    raw = renter.node.ports.cabinet.get(f"jobs/{file.id}/receipt")
    assert check_receipt(raw or b"", renter.node.net).owner == second.node.identity.feed.public
    signed = cosigned(renter.node.ports.cabinet, lease.id)
    assert signed is not None
    # Who is dead earns nothing: no more than was co-signed last.
    assert done.paid_micro == unpack(signed.tick, first.node.net, Tick).body.amount_micro > 0
    metered = last_tick(first.node.ports.cabinet, first.node.net, lease.id)
    assert metered is not None
    assert done.paid_micro == metered.amount_micro


async def test_a_cancelled_job_stops_and_is_paid_for_what_it_used(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    def long(_run: Run) -> Script:
        return Script(lasts_ms=MillisSpan(50_000))

    await party.start(party.build(ask=300_000, script=long))
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    file = renter.node.jobs.submit(make_submission(renter.node))
    await trio.sleep(10)
    renter.node.jobs.driver(file.id).cancel()
    done = await ended(renter, file.id)
    assert (done.state, done.why) == ("failed", "cancelled")
    raw = renter.node.ports.cabinet.get(f"jobs/{file.id}/receipt")
    proven = check_receipt(raw or b"", renter.node.net)
    assert proven.outcome.cause == "stopped"
    assert 0 < proven.used_ms < 15_000


async def test_an_owner_that_sends_more_than_was_asked_for_is_left(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    outputs: dict[RunId, bytes] = {}

    def fills_disks(run: Run) -> Script:
        outputs[run.id] = bytes(run.limits.output_bytes + 1)
        return Script(lasts_ms=MillisSpan(5_000))

    await party.start(party.build(ask=300_000, script=fills_disks, outputs=outputs))
    second = await party.add(ask=400_000)
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    file = renter.node.jobs.submit(make_submission(renter.node))
    done = await ended(renter, file.id)
    assert (done.state, done.attempt) == ("done", 2)
    raw = renter.node.ports.cabinet.get(f"jobs/{file.id}/receipt")
    assert check_receipt(raw or b"", renter.node.net).owner == second.node.identity.feed.public


async def test_an_output_that_is_not_what_was_signed_moves_the_job(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    class Changing(dict[RunId, bytes]):
        """Another one each time it is read."""

        def get(self, run: RunId, _default: object = None) -> bytes:
            self[run] = self.setdefault(run, bytes(9))[1:] + b"x"
            return self[run]

    await party.start(party.build(ask=300_000, outputs=Changing()))
    await party.add(ask=400_000)
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    file = renter.node.jobs.submit(make_submission(renter.node))
    done = await ended(renter, file.id)
    assert (done.state, done.attempt) == ("done", 2)


async def test_a_run_that_can_no_longer_be_watched_is_ended_and_the_job_moves(
    party: Party, autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_well = FakeEngine.wait
    broken: list[RunId] = []

    async def wait(engine: FakeEngine, run: RunId) -> Ending:
        if not broken:
            broken.append(run)
            raise LocalFault("the record of the run cannot be read")
        return await wait_well(engine, run)

    monkeypatch.setattr(FakeEngine, "wait", wait)
    script = Script(lasts_ms=MillisSpan(30_000), obeys_stop=False)
    first = await party.start(party.build(ask=300_000, script=lambda _run: script))
    await party.add(ask=400_000)
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    file = renter.node.jobs.submit(make_submission(renter.node))
    done = await ended(renter, file.id)
    assert (done.state, done.attempt) == ("done", 2)
    assert (await first.node.ports.engine.wait(broken[0])).cause == "stopped"
    [lease] = first.node.books.leases()
    metered = first.node.ports.cabinet.get(f"leases/{lease.id.hex()}/metered")
    tick = decode(metered or b"", Metered, size_max=4_096).tick
    assert unpack(tick, first.node.net, Tick).body.used_ms == 0


async def test_an_engine_that_is_away_for_a_while_does_not_end_the_node(
    party: Party, autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = [Unavailable("the engine does not answer") for _ in range(6)]
    wait_well, stop_well = FakeEngine.wait, FakeEngine.stop

    async def wait(engine: FakeEngine, run: RunId) -> Ending:
        await trio.sleep(1)
        if len(away) > 3:
            raise away.pop()
        return await wait_well(engine, run)

    async def stop_run(engine: FakeEngine, run: RunId, *, grace_ms: MillisSpan) -> Ending:
        if away:
            raise away.pop()
        return await stop_well(engine, run, grace_ms=grace_ms)

    monkeypatch.setattr(FakeEngine, "wait", wait)
    monkeypatch.setattr(FakeEngine, "stop", stop_run)
    owner = await party.start(
        party.build(ask=300_000, script=lambda _run: Script(lasts_ms=MillisSpan(30_000)))
    )
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    file = renter.node.jobs.submit(make_submission(renter.node))
    await trio.sleep(10)
    renter.node.jobs.driver(file.id).cancel()
    done = await ended(renter, file.id)
    assert (done.state, done.why) == ("failed", "cancelled")
    assert (away, owner.ended.is_set()) == ([], False)
