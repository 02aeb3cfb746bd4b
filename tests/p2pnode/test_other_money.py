"""A lease in another money counts against a job's limits at the rate that its renter pinned."""

from pathlib import Path

import pytest
import trio

from p2pnode.execution.engine import Run
from p2pnode.execution.fake_engine import Script
from p2pnode.matching.order import Choice
from p2pnode.network.memory_transport import MemoryHub
from p2pnode.quantities import Money
from p2pnode.why_views import why_no_match
from protocol.lease import charge
from protocol.units import Micros, MillisSpan
from tests.make_job import make_jobfile, make_submission
from tests.make_node import LISTED_S, Party, ended, stop
from tests.p2pnode.test_own_prices import priced

INR = Micros(12_000)
"""What one rupee is worth, in millionths of the network's money."""


@pytest.fixture
def party(tmp_path: Path, nursery: trio.Nursery) -> Party:
    return Party(tmp_path, nursery, MemoryHub())


def test_a_sum_is_worth_what_the_rate_says_rounded_up() -> None:
    file = make_jobfile(choice=Choice(rates=(("INR", INR),)))
    assert file.worth(Micros(250_000_000), "INR") == 3_000_000
    assert file.worth(Micros(1), "INR") == 1
    assert file.worth(Micros(77), "TEST") == 77


async def test_what_is_paid_in_rupees_leaves_the_rest_of_the_limit(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    def long(_run: Run) -> Script:
        return Script(lasts_ms=MillisSpan(40_000))

    await party.add(ask=None)  # whom everybody calls first
    ask = Money(Micros(25_000_000), "INR")
    rupees = await party.start(party.build(ask=1, script=long, choose=priced(ask=ask)))
    renter = await party.add(ask=None)
    await trio.sleep(LISTED_S)
    job = make_submission(
        renter.node,
        choice=Choice(rates=(("INR", INR),)),
        total_max=Micros(1_000_000),
        patience_ms=MillisSpan(60_000),
    )
    file = renter.node.jobs.submit(job)
    await trio.sleep(20)
    [lease] = rupees.node.books.leases()
    assert lease.request.money == "INR"
    await stop(rupees)
    await party.start(party.build(ask=300_000, script=long))
    done = await ended(renter, file.id)
    assert (done.state, done.attempt) == ("done", 2)
    owed = renter.node.accounts.owed(lease.id)
    assert 0 < owed <= charge(MillisSpan(40_000), Micros(25_000_000))
    assert done.paid_micro == -(-owed * INR // 1_000_000)


async def test_why_says_in_the_renters_money_what_would_match_at_the_pinned_rate(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    ask = Money(Micros(25_000_000), "INR")
    await party.start(party.build(ask=1, choose=priced(ask=ask)))
    renter = await party.add(ask=None)
    await trio.sleep(LISTED_S)
    wanted = {"ask_max": Micros(200_000), "patience_ms": MillisSpan(600_000)}
    plain = renter.node.jobs.submit(make_submission(renter.node, **wanted))
    await trio.sleep(4)
    told = await why_no_match(renter.node, plain.id)
    assert told.missed == {"money": 1}
    pinned = Choice(rates=(("INR", INR),))
    file = renter.node.jobs.submit(make_submission(renter.node, choice=pinned, **wanted))
    await trio.sleep(4)
    told = await why_no_match(renter.node, file.id)
    # 25 rupees at 0.012 are 0.30; bronze is half of it.
    assert told.missed == {"price": 1}
    assert "--max-price '0.30 TEST/gpu-h'" in [" ".join(each.options) for each in told.changes]
