"""A GRANT that nobody accepts frees its units again, also when it came with a job."""

from pathlib import Path

import pytest
import trio

from p2pnode.execution.engine import Run
from p2pnode.execution.fake_engine import Script
from p2pnode.jobs.desk import LeaseOver
from p2pnode.matching.book import Offer
from p2pnode.matching.order import Order
from p2pnode.matching.quoting import LAPSE_MS
from p2pnode.matching.renter import Taking, Won
from p2pnode.network.memory_transport import MemoryHub
from protocol.auction import Need
from protocol.codec import encode
from protocol.job import Job, digest_of_job, seal_job
from protocol.units import MillisSpan
from tests.make_job import make_limits
from tests.make_node import Party, Started

JOB = encode(
    Job(argv=("true",), variables={}, limits=make_limits(time_ms=550_000), nonce=bytes(16))
)


@pytest.fixture
def party(tmp_path: Path, nursery: trio.Nursery) -> Party:
    return Party(tmp_path, nursery, MemoryHub())


async def rent_and_forget(renter: Started) -> Won:
    """A GRANT with a job in it, whose renter never says ACCEPT."""

    def seal(offer: Offer) -> bytes:
        return seal_job(JOB, to=offer.certificate.x25519, ephemeral=bytes(32))

    async def remember(_taking: Taking) -> None:
        await trio.lowlevel.checkpoint()

    order = Order(
        need=Need(gpus=1, vram_mib_min=8_000),
        tier="silver",
        span_ms=MillisSpan(600_000),
        notice_ms=MillisSpan(0),
        money="TEST",
        ask_max=None,
        total_max=None,
        job=digest_of_job(JOB),
    )
    await renter.node.look_around(order.wish())
    return await renter.node.renter.rent(order, seal_job=seal, remember=remember)


@pytest.mark.parametrize("lasts", [5_000, 500_000])
async def test_a_lease_with_a_job_lapses_if_its_renter_stays_away(
    party: Party, autojump_clock: trio.abc.Clock, lasts: int
) -> None:
    def script(_run: Run) -> Script:
        return Script(lasts_ms=MillisSpan(lasts))

    owner = await party.start(party.build(ask=300_000, script=script))
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(3)
    won = await rent_and_forget(renter)
    await trio.sleep(LAPSE_MS / 1_000 - 5)
    [lease] = owner.node.books.leases()
    assert (lease.is_accepted, lease.reason) == (False, None)
    await trio.sleep(30)
    [lease] = owner.node.books.leases()
    assert (lease.is_accepted, lease.reason) == (False, "unpaid")
    assert owner.node.provider.shelves
    assert owner.node.books.free_of(owner.node.provider.shelves[0].units) == 1
    with pytest.raises(LeaseOver):
        await renter.node.links.confirm(owner.peer, won.grant)
    assert not renter.node.ports.ledger.state.leases()[0].is_accepted


async def test_an_accepted_lease_does_not_lapse(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    def script(_run: Run) -> Script:
        return Script(lasts_ms=MillisSpan(500_000))

    owner = await party.start(party.build(ask=300_000, script=script))
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(3)
    won = await rent_and_forget(renter)
    await renter.node.links.confirm(owner.peer, won.grant)
    await trio.sleep(LAPSE_MS / 1_000 + 30)
    [lease] = owner.node.books.leases()
    assert (lease.is_accepted, lease.reason) == (True, None)
