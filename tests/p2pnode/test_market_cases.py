"""Public complaints about other markets, as what must hold in this one. See the id of each."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trio

from p2pnode.gpus import SimulatedGpus
from p2pnode.matching.free_units import free_units
from p2pnode.matching.order import Choice
from p2pnode.matching.renter import NoMatch
from p2pnode.matching.search import Wish, search
from p2pnode.network.memory_transport import MemoryHub
from p2pnode.why_views import why_no_match
from p2pnode.work_views import bids_of, market_of, no_work
from protocol.auction import Need
from protocol.lease import LeaseRequest
from protocol.scoring import check_auction
from protocol.units import Mebibytes, Micros, Millis, MillisSpan, PeerId
from tests import make
from tests.make_desk import Clock, Owner, order, posting, renter, shelf
from tests.make_job import make_limits, make_submission
from tests.make_node import Party, Started, ended, stop
from tests.p2pnode.test_search import make_offer


def need(**changes: Any) -> Need:
    return Need(**{"gpus": 1, "vram_mib_min": 22_889, **changes})


async def test_b1_an_owner_with_one_of_the_models_is_matched(
    autojump_clock: trio.abc.Clock,
) -> None:
    owner = Owner(number=10, clock=Clock())
    won = await renter([owner], Clock()).rent(
        order(need=make.need(models=("A100", "RTX4090"))),
        seal_job=lambda _offer: None,
        remember=_forget,
    )
    assert won.taking.owner == owner.key.public


def test_b8_a_node_of_eight_slices_that_are_all_free_takes_a_job_for_the_whole() -> None:
    units = tuple(bytes([number]) * 16 for number in range(8))
    offer = make_offer(units=8, free=8)
    assert search([offer], Wish(gpus=8)).fits == [offer]
    whole = free_units(
        shelf(units=units), lambda _unit: None, start=make.NOW, end=Millis(make.NOW + 1)
    )
    assert len(whole) == 8


async def test_b15_an_owner_that_was_full_bids_again_when_it_is_free(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    party = Party(tmp_path, nursery, MemoryHub())
    await party.add(ask=300_000)
    one, other = await party.add(ask=None), await party.add(ask=None)
    await trio.sleep(5)
    first = one.node.jobs.submit(make_submission(one.node))
    await trio.sleep(3)
    second = other.node.jobs.submit(make_submission(other.node, patience_ms=MillisSpan(600_000)))
    assert (await ended(one, first.id)).state == "done"
    assert (await ended(other, second.id)).state == "done"


async def test_b17_who_is_outbid_sees_that_and_no_error(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    party = Party(tmp_path, nursery, MemoryHub())
    cheap, dear = await party.add(ask=300_000), await party.add(ask=400_000)
    client = await party.add(ask=None)
    await trio.sleep(5)
    job = client.node.jobs.submit(make_submission(client.node))
    assert (await ended(client, job.id)).state == "done"
    await trio.sleep(30)
    assert bids_of(cheap.node, since_ms=0, limit=9).counts == {"WON": 1}
    lost = bids_of(dear.node, since_ms=0, limit=9)
    assert lost.counts == {"OUTBID": 1}
    assert (lost.items[0].rival_micro, lost.items[0].rank, lost.fill_ppm) == (300_000, 2, 0)
    told = no_work(dear.node, since_ms=0)
    assert (told.causes, told.floor_micro, told.floor_wins) == ({"price": 1}, 299_999, 1)
    assert told.alert is None


async def test_b18_an_owner_that_must_not_sign_is_told_that_it_evaluates_nothing(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    party = Party(tmp_path, nursery, MemoryHub())
    owner = await party.add(ask=300_000)
    client = await party.add(ask=None)
    await trio.sleep(5)
    owner.node.rejoin._over = trio.Event()
    client.node.jobs.submit(make_submission(client.node, patience_ms=MillisSpan(60_000)))
    await trio.sleep(30)
    told = no_work(owner.node, since_ms=0)
    assert told.alert == "BIDDER_STALLED"
    assert told.seen == 0


async def test_b20_the_reason_is_the_funnel_and_it_is_gone_once_there_is_a_match(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    party = Party(tmp_path, nursery, MemoryHub())
    await party.add(ask=500_001)
    client = await party.add(ask=None)
    await trio.sleep(5)
    job = client.node.jobs.submit(make_submission(client.node, patience_ms=MillisSpan(600_000)))
    await trio.sleep(4)
    told = await why_no_match(client.node, job.id)
    assert (told.is_matched, told.seen, told.fits) == (False, 1, 0)
    assert {each.name: each.failed for each in told.funnel if each.failed} == {
        "price": {"price": 1}
    }
    assert told.missed == {"price": 1}
    assert [(change.options, change.matches) for change in told.changes] == [
        (("--max-price '0.500001 TEST/gpu-h'",), 1),
        (("--tier silver,bronze",), 1),  # bronze is asked half of it
    ]
    assert f"{told.waited_ms // 1_000}" in {"3", "4"}
    await party.add(ask=400_000)
    driver = client.node.jobs.driver(job.id)
    while driver.file.state == "matching":
        await driver.changed.wait()
    told = await why_no_match(client.node, job.id)
    assert (told.is_matched, told.funnel, told.changes, told.missed) == (True, (), (), {})


async def test_a_light_client_is_told_of_what_would_fit_in_another_class_and_what_it_cannot_see(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    party = Party(tmp_path, nursery, MemoryHub())
    await party.add(ask=300_000)
    client = await party.add(ask=None, gossip="off")
    await trio.sleep(10)
    wanted = make_submission(client.node, need=need(vram_mib_min=81_559))
    told = await why_no_match(client.node, client.node.jobs.submit(wanted).id)
    assert told.seen == 1
    assert [change.options for change in told.changes] == [("--vram 24564MiB",)]
    assert "light client" in told.unseen


async def test_every_refusal_of_the_last_auction_is_kept_signed_and_shown(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    party = Party(tmp_path, nursery, MemoryHub())
    owner = await party.add(ask=300_000)
    client = await party.add(ask=None)
    await trio.sleep(5)
    owner.node.desk._bars = lambda _renter: "we do not deal"
    job = client.node.jobs.submit(make_submission(client.node))
    assert (await ended(client, job.id)).state == "failed"
    told = await why_no_match(client.node, job.id)
    assert told.fits == 1
    assert [(each.owner, each.reason, each.detail) for each in told.refusals] == [
        (owner.node.identity.feed.public.hex(), "POLICY", "we do not deal")
    ]
    assert told.changes == ()


async def test_b21_the_next_best_is_tried_where_an_owner_is_gone(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    party = Party(tmp_path, nursery, MemoryHub())
    gone, there = await party.add(ask=300_000), await party.add(ask=400_000)
    client = await party.add(ask=None)
    await trio.sleep(5)
    # Killed: its advert is alive still, and nobody answers.
    gone.node.desk._clock = _Never()
    job = client.node.jobs.submit(make_submission(client.node))
    file = await ended(client, job.id)
    assert file.state == "done"
    assert file.taking.owner == there.node.identity.feed.public  # type: ignore[union-attr]


class _Never:
    """A clock of an owner that breaks whenever it is asked."""

    def now(self) -> Millis:
        raise AssertionError("this owner is gone")


async def test_c2_bids_that_nobody_takes_hold_nothing(autojump_clock: trio.abc.Clock) -> None:
    owner = Owner(number=10, clock=Clock())
    for number in range(100):
        reply = await owner.ask("rfq", owner.rfq(nonce=number.to_bytes(16, "big")))
        assert isinstance(reply.yes, bytes)
    won = await renter([owner], owner.clock).rent(
        order(), seal_job=lambda _offer: None, remember=_forget
    )
    assert won.taking.owner == owner.key.public
    later = Millis(make.NOW + 60_000)
    results = [note.result for note in owner.journal.since(0, later)]
    assert results == ["lost"] * 100 + ["won"]


async def test_c5_an_owner_out_of_reach_is_left_alone_until_it_is_heard_of(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    party = Party(tmp_path, nursery, MemoryHub())
    seer = await party.add(ask=None)
    owner = await party.add(ask=300_000)
    await trio.sleep(5)
    (offer,) = seer.node.market.offers()
    wanted = seer.node.jobs.submit(make_submission(seer.node)).order(make.NOW)
    assert seer.node.market.shut_out(offer, wanted) is None
    seer.node.market.note_silent(offer.signer)
    assert seer.node.market.shut_out(offer, wanted) == "out of reach"
    owner.node.provider.refresh()
    await trio.sleep(3)
    assert seer.node.market.shut_out(offer, wanted) is None
    seer.node.market.note_silent(offer.signer)
    await trio.sleep(16)
    assert seer.node.market.shut_out(offer, wanted) is None


async def test_c8_with_half_of_the_owners_gone_jobs_still_run(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    hub = MemoryHub()
    party = Party(tmp_path, nursery, hub)
    client = await party.add(ask=None)
    owners = [await party.add(ask=300_000 + 1_000 * number) for number in range(8)]
    await trio.sleep(5)
    for owner in owners[::2]:
        hub.leave(owner.peer)
        hub.sit(owner.peer, _Gone())  # type: ignore[arg-type]
    jobs = [client.node.jobs.submit(make_submission(client.node)) for _ in range(4)]
    states = [(await ended(client, job.id)).state for job in jobs]
    assert states == ["done"] * 4


async def test_c6_adverts_of_an_earlier_run_are_gone_at_the_first_of_the_next(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    party = Party(tmp_path, nursery, MemoryHub())
    seer = await party.add(ask=None)
    owner = await party.add(ask=300_000)
    await trio.sleep(5)
    await stop(owner)
    again = await party.start(party.revive(owner.node))
    await trio.sleep(5)
    (offer,) = seer.node.market.offers()
    assert offer.signer == again.node.identity.feed.public
    assert offer.advert.incarnation == again.node.provider._incarnation
    assert offer.is_open


async def test_c10_a_node_with_one_gpu_leased_offers_the_others_at_once(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    party = Party(tmp_path, nursery, MemoryHub())
    gpus = SimulatedGpus(model="RTX 4090", vram=Mebibytes(24_564), count=4)
    owner = await party.start(party.build(ask=300_000, gpu=gpus))
    client = await party.add(ask=None)
    await trio.sleep(5)
    job = client.node.jobs.submit(make_submission(client.node, limits=make_limits(time_ms=600_000)))
    await _leased(client, job.id)
    await trio.sleep(2)
    (offer,) = client.node.market.offers()
    assert (offer.signer, offer.advert.free) == (owner.node.identity.feed.public, 3)


async def test_the_market_is_shown_by_class_with_depth_and_what_was_paid(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    party = Party(tmp_path, nursery, MemoryHub())
    for ask in (300_000, 400_000):
        await party.add(ask=ask)
    client = await party.add(ask=None)
    await trio.sleep(5)
    job = client.node.jobs.submit(make_submission(client.node))
    assert (await ended(client, job.id)).state == "done"
    await trio.sleep(30)
    shown = market_of(client.node, since_ms=0)
    (silver,) = [row for row in shown.asks if row.tier == "silver"]
    assert (silver.gpu_class, silver.offers, silver.free) == (24, 2, 2)
    assert (silver.ask_lowest, silver.ask_highest) == (300_000, 400_000)
    assert [(step.ask_micro, step.free) for step in silver.depth] == [(300_000, 1), (400_000, 2)]
    (cleared,) = shown.cleared
    assert (cleared.gpu_class, cleared.leases, cleared.median) == (24, 1, 300_000)


async def test_any_of_several_tiers_is_taken_at_the_cheapest_and_bids_say_which(
    autojump_clock: trio.abc.Clock,
) -> None:

    owner = Owner(number=10, clock=Clock())
    asked = renter([owner], Clock())
    both = order(choice=Choice(or_tiers=("bronze",)))
    won = await asked.rent(both, seal_job=lambda _offer: None, remember=_forget)
    assert won.bid.tier == "silver"
    assert check_auction(won.record, make.NET) == won.record.chosen[-1]


async def test_an_owner_in_other_money_is_asked_in_its_own_at_a_pinned_rate(
    autojump_clock: trio.abc.Clock,
) -> None:
    owner = Owner(number=10, clock=Clock(), by=posting(money="TEST"))
    asked = renter([owner], Clock())
    in_dollars = order(money="USD")
    with pytest.raises(NoMatch) as failed:
        await asked.rent(in_dollars, seal_job=lambda _offer: None, remember=_forget)
    assert failed.value.why == {"money": 1}
    pinned = order(
        money="USD", choice=Choice(rates=(("TEST", Micros(500_000)),)), ask_max=Micros(200_000)
    )
    won = await asked.rent(pinned, seal_job=lambda _offer: None, remember=_forget)
    assert (won.bid.money, won.bid.micro_per_gpu_hour) == ("TEST", 390_000)
    assert check_auction(won.record, make.NET) == won.record.chosen[-1]
    assert won.record.weights.rates == (("TEST", 500_000),)


async def test_a_renter_that_wants_nobody_far_measures_those_that_fit(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    party = Party(tmp_path, nursery, MemoryHub())
    await party.add(ask=300_000)
    client = await party.add(ask=None)
    await trio.sleep(5)
    near = make_submission(client.node, choice=Choice(rtt_ms_max=1_000))
    assert (await ended(client, client.node.jobs.submit(near).id)).state == "done"
    (offer,) = client.node.market.offers()
    known = client.node.market.known_of(offer).rtt_ms
    assert known is not None
    assert known <= 1_000


async def test_preferences_rank_and_rule_nothing_out(autojump_clock: trio.abc.Clock) -> None:
    cheap, dear = (
        Owner(number=number, clock=Clock(), by=posting(ask=Micros(ask)))
        for number, ask in ((10, 390_000), (11, 392_000))
    )
    preferred = renter([cheap, dear], Clock())
    # Both are in DE: a preference that neither meets decides nothing, and one is taken.
    anywhere = order(choice=Choice(prefer=("region=US",)))
    won = await preferred.rent(anywhere, seal_job=lambda _offer: None, remember=_forget)
    assert {heard.judged.unmet_ppm for heard in won.record.bids} == {50_000}
    met = order(choice=Choice(prefer=("region=EU:20%", "model=H100:3%")))
    won = await preferred.rent(met, seal_job=lambda _offer: None, remember=_forget)
    assert {heard.judged.unmet_ppm for heard in won.record.bids} == {30_000}


@dataclass
class _Gone:
    """A seat on the hub from which nobody answers and to which nobody is connected."""

    address: str = "/memory/gone"
    judges: dict[str, object] = field(default_factory=dict)
    handlers: dict[str, object] = field(default_factory=dict)
    connected: dict[PeerId, None] = field(default_factory=dict)
    seen: dict[tuple[PeerId, str, bytes], None] = field(default_factory=dict)


async def _forget(_taking: object) -> None:
    """As one that never crashes may."""


async def _leased(started: Started, job: str) -> LeaseRequest:
    while True:
        file = started.node.jobs.driver(job).file
        lease = (
            started.node.ports.ledger.lease(file.lease) if isinstance(file.lease, bytes) else None
        )
        if lease is not None:
            return lease.request
        await trio.sleep(0.1)
