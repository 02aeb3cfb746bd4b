"""Jobs whose leases are witnessed, over whole nodes in memory on virtual time."""

from pathlib import Path

import pytest
import trio

from ledger import reasons
from ledger.attested import non_deliveries
from ledger.receipt import check_receipt
from p2pnode.execution.engine import Run
from p2pnode.execution.fake_engine import Script
from p2pnode.network.memory_transport import MemoryHub
from p2pnode.receipt_check import verify_receipt
from p2pnode.reputation_views import reputation_of
from protocol.units import MillisSpan, PublicKey
from tests.make_job import make_submission
from tests.make_node import LISTED_S, Party, Started, ended, stop

DEAR = 900_000
"""More than any job here pays, so these only witness; their adverts tell where they are."""


@pytest.fixture
def party(tmp_path: Path, nursery: trio.Nursery) -> Party:
    return Party(tmp_path, nursery, MemoryHub())


def feed_of(started: Started) -> PublicKey:
    return started.node.identity.feed.public


async def test_a_witnessed_lease_is_accepted_with_its_cosignatures_and_the_receipt_has_them(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner, *witnesses = [await party.add(ask=ask) for ask in (300_000, DEAR, DEAR, DEAR)]
    renter = await party.add(ask=None)
    await trio.sleep(60)
    named = tuple(feed_of(each) for each in witnesses)
    job = make_submission(renter.node, witnesses=named, quorum=2)
    done = await ended(renter, renter.node.jobs.submit(job).id)
    assert (done.state, done.why) == ("done", "")
    raw = renter.node.ports.cabinet.get(f"jobs/{done.id}/receipt")
    assert raw is not None
    proven = check_receipt(raw, renter.node.net)
    assert proven.is_witnessed
    assert 2 <= len(proven.witnesses) <= 3
    assert set(proven.witnesses) <= set(named)
    (said,) = (each for each in verify_receipt(raw, None).statements if each.by == "witnesses")
    assert said.class_ == "proved"
    assert said.text.startswith(f"{len(proven.witnesses)} of 3 witnesses")
    assert sum(each.node.witness.cosigned for each in witnesses) >= 2
    assert owner.node.ports.ledger.state.witnessed(proven.lease) == proven.witnesses


async def test_witnesses_that_never_met_the_owner_cosign_its_lease(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    renter = await party.add(ask=None)  # Everybody is connected to the first.
    owner = await party.add(ask=300_000)
    light = [await party.add(ask=None, gossip="auto") for _ in range(3)]
    await trio.sleep(60)
    for each in light:
        assert each.node.ports.ledger.head(feed_of(owner)) is None
    job = make_submission(renter.node, witnesses=tuple(feed_of(each) for each in light), quorum=2)
    done = await ended(renter, renter.node.jobs.submit(job).id)
    assert (done.state, done.why) == ("done", "")
    assert sum(each.node.witness.cosigned for each in light) >= 2


async def test_without_the_quorum_no_lease_is_accepted_and_the_reason_is_told(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owners = [await party.add(ask=ask) for ask in (300_000, 400_000)]
    witnesses = [await party.add(ask=DEAR) for _ in range(3)]
    renter = await party.add(ask=None)
    await trio.sleep(60)
    for gone in witnesses[:2]:
        await stop(gone)
    named = tuple(feed_of(each) for each in witnesses)
    job = make_submission(renter.node, witnesses=named, quorum=2)
    done = await ended(renter, renter.node.jobs.submit(job).id)
    assert done.state == "failed"
    assert "2 unwitnessed" in done.why
    for owner in owners:
        leases = owner.node.books.leases()
        assert leases
        assert not any(lease.is_accepted for lease in leases)
        assert all(lease.reason == "consent" for lease in leases)


async def test_an_owner_is_no_witness_of_its_own_lease(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner = await party.add(ask=300_000)
    renter = await party.add(ask=None)
    await trio.sleep(LISTED_S)
    job = make_submission(renter.node, witnesses=(feed_of(owner),), quorum=1)
    done = await ended(renter, renter.node.jobs.submit(job).id)
    assert done.why == "no match: 0 of 1 offers: 1 witness"


async def test_witnesses_of_a_lost_owner_attest_it_and_the_renter_moves(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    def long(_run: Run) -> Script:
        return Script(lasts_ms=MillisSpan(500_000))

    owner = await party.start(party.build(ask=300_000, script=long, period=60_000))
    witnesses = [await party.add(ask=DEAR) for _ in range(3)]
    renter = await party.add(ask=None)
    await trio.sleep(60)
    named = tuple(feed_of(each) for each in witnesses)
    job = make_submission(renter.node, witnesses=named, quorum=2)
    file = renter.node.jobs.submit(job)
    await trio.sleep(20)
    driver = renter.node.jobs.driver(file.id)
    assert driver.file.state == "running"
    lost = feed_of(owner)
    await stop(owner)
    assert (await ended(renter, file.id)).state == "failed"
    await trio.sleep(120)
    state = renter.node.ports.ledger.state
    (fact,) = non_deliveries(state)
    assert (fact.owner, fact.n, fact.quorum) == (lost, 3, 2)
    assert fact.is_enough
    document = reputation_of(renter.node, lost.hex(), why=True)
    assert [each.claim for each in document.attested] == ["attested"]
    assert document.attested[0].text.endswith(f"attested {fact.k} of 3")
    assert (document.standing, document.kept_ppm, document.offences) == ("good", 1_000_000, ())
    assert document.failures_seen == 1  # its own observation, told apart
    probes = tuple(each.hex() for each in fact.by)
    assert (document.attested[0].probes, document.attested[0].left_out) == (probes, 0)
    why = {each.name: each for each in document.why}
    assert (why["bad_micro"].entries, why["bad_micro"].note) == (probes, reasons.OWN_TOO)
    assert (why["failures_seen"].entries, why["failures_seen"].note) == ((), reasons.OWN)
