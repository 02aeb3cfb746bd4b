"""Gold: reserved in advance, starts on time, quoted without looking at the others' bids."""

import dataclasses
from pathlib import Path

import pytest
import trio
from msgspec.structs import replace

from ledger.debts import debt_of
from ledger.evidence import check
from p2pnode.api.owner_documents import AskChange
from p2pnode.config import Config
from p2pnode.execution.engine import Run, RunId
from p2pnode.execution.fake_engine import Script
from p2pnode.job_views import JobViews
from p2pnode.jobs.baggage import FileBaggage
from p2pnode.matching.hidden_bids import HiddenBids
from p2pnode.matching.strategies import share_of
from p2pnode.network.memory_transport import MemoryHub
from p2pnode.node import Node
from p2pnode.owner_views import OwnerViews
from p2pnode.receipt_check import verify_receipt
from p2pnode.status import offer_of, offered
from protocol.advert import remedy_for
from protocol.auction import BidReveal
from protocol.codec import decode
from protocol.errors import LocalFault
from protocol.lease import remedy_of
from protocol.limits import AUCTION_BYTES_MAX
from protocol.scoring import AuctionRecord
from protocol.signing import Signer
from protocol.units import Digest, Micros, Millis, MillisSpan, PublicKey
from protocol.wire import pack, unpack
from tests.make_job import make_limits, make_submission
from tests.make_node import LISTED_S, Party, Started, ended, stop

MINUTE = 60_000
GAP_MS = 25 * MINUTE
SHORT_MS = MillisSpan(20 * MINUTE)


@pytest.fixture
def party(tmp_path: Path, nursery: trio.Nursery) -> Party:
    return Party(tmp_path, nursery, MemoryHub())


def with_gold(config: Config) -> Config:
    return replace(config, pricing=replace(config.pricing, tiers=("gold", "silver", "bronze")))


def owner_of(party: Party, ask: int, lasts_ms: int = SHORT_MS) -> Node:
    def script(_run: Run) -> Script:
        return Script(lasts_ms=MillisSpan(lasts_ms))

    return party.build(ask=ask, script=script, choose=with_gold)


def reserve(renter: Started, *, in_ms: int, lasts_ms: int = SHORT_MS) -> str:
    return submit(
        renter,
        tier="gold",
        start_ms=Millis(renter.node.ports.clock.now() + in_ms),
        limits=make_limits(time_ms=lasts_ms),
    )


def submit(renter: Started, **changes: object) -> str:
    wanted = {"ask_max": Micros(900_000), "limits": make_limits(time_ms=SHORT_MS), **changes}
    return renter.node.jobs.submit(make_submission(renter.node, **wanted)).id


def state_of(renter: Started, job: str) -> str:
    return renter.node.jobs.driver(job).file.state


@pytest.mark.slow
async def test_a_bronze_job_fills_the_gap_before_a_reservation_which_starts_on_time(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner = await party.start(owner_of(party, 300_000))
    renter = await party.add(ask=None, gossip="auto")
    other = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    gold = reserve(renter, in_ms=GAP_MS + 10_000)
    await trio.sleep(5)
    assert state_of(renter, gold) == "staging"
    [reserved] = owner.node.books.leases()
    assert reserved.request.tier == "gold"
    assert reserved.request.micro_per_gpu_hour == share_of(Micros(300_000), "gold")
    # Two minutes more would not fit; of twenty it is sure that they do.
    long = submit(other, tier="bronze", notice_ms=MillisSpan(0), limits=make_limits(time_ms=GAP_MS))
    assert "taken" in (await ended(other, long)).why
    short = submit(other, tier="bronze")
    await trio.sleep(5)
    assert state_of(other, short) == "running"
    await trio.sleep((GAP_MS + SHORT_MS) / 1_000)
    done, filled = await ended(renter, gold), await ended(other, short)
    assert (done.state, filled.state, filled.attempt) == ("done", "done", 1)
    run = RunId(reserved.id.hex())
    ending = await owner.node.ports.engine.wait(run)
    assert ending.started_ms == reserved.request.start_ms
    assert [lease.reason for lease in owner.node.books.leases()] == ["consent"] * 2


@pytest.mark.slow
async def test_bronze_that_is_in_the_way_later_gives_its_unit_back_in_time(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner = await party.start(owner_of(party, 300_000, lasts_ms=3 * 60 * MINUTE))
    renter = await party.add(ask=None, gossip="auto")
    other = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    bronze = submit(
        other,
        tier="bronze",
        notice_ms=MillisSpan(30_000),
        limits=make_limits(time_ms=4 * 60 * MINUTE),
    )
    await trio.sleep(5)
    gold = reserve(renter, in_ms=2 * 60 * MINUTE, lasts_ms=4 * 60 * MINUTE)
    await trio.sleep(5)
    assert state_of(renter, gold) == "staging"
    [given, reserved] = sorted(owner.node.books.leases(), key=lambda each: each.request.start_ms)
    assert (given.reason, given.ended_ms) == ("preempted", reserved.request.start_ms)
    # It goes on until then, and is told an hour before.
    engine = owner.node.ports.engine
    run = RunId(given.id.hex())
    await trio.sleep(50 * 60)
    assert engine.notices(run) == ()  # type: ignore[attr-defined]
    await trio.sleep(20 * 60)
    assert len(engine.notices(run)) == 1  # type: ignore[attr-defined]
    assert state_of(other, bronze) == "running"
    await trio.sleep(55 * 60)
    assert (await engine.wait(run)).ended_ms == reserved.request.start_ms
    assert state_of(renter, gold) == "running"
    assert owner.node.ports.ledger.offences() == []


@pytest.mark.slow
async def test_a_reservation_outlives_its_owners_and_its_renters_restart(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner = await party.start(owner_of(party, 300_000))
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    gold = reserve(renter, in_ms=GAP_MS)
    await trio.sleep(5)
    [reserved] = owner.node.books.leases()
    await stop(owner)
    await stop(renter)
    await trio.sleep(600)
    owner = await party.start(party.revive(owner.node))
    renter = await party.start(party.revive(renter.node))
    await trio.sleep((GAP_MS + SHORT_MS) / 1_000)
    done = await ended(renter, gold)
    assert (done.state, done.attempt) == ("done", 1)
    ending = await owner.node.ports.engine.wait(RunId(reserved.id.hex()))
    assert ending.started_ms == reserved.request.start_ms


async def test_a_reservation_that_is_cancelled_frees_the_unit_at_once_for_nothing(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner = await party.start(owner_of(party, 300_000))
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    gold = reserve(renter, in_ms=24 * 60 * MINUTE)
    await trio.sleep(5)
    renter.node.jobs.driver(gold).cancel()
    with trio.fail_after(15):
        done = await ended(renter, gold)
    assert (done.state, done.why) == ("failed", "cancelled")
    await trio.sleep(1)
    [lease] = owner.node.books.leases()
    assert lease.reason == "consent"
    assert lease.ended_ms < lease.request.start_ms
    assert renter.node.accounts.owed(lease.id) == 0


async def test_gold_names_its_remedy_and_silver_has_none(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner = await party.start(owner_of(party, 360_000, lasts_ms=1_000))
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    for tier in ("silver", "gold"):
        assert (await ended(renter, submit(renter, tier=tier))).state == "done"
    silver, gold = sorted(owner.node.books.leases(), key=lambda each: each.request.start_ms)
    assert remedy_of(silver.request) == 0
    # A tenth of 22 minutes at 0.45 an hour.
    assert remedy_of(gold.request) == 22 * 450_000 // 60 // 10


async def test_an_owner_sets_its_remedy_for_new_leases_and_says_so_beforehand(
    party: Party, tmp_path: Path, autojump_clock: trio.abc.Clock
) -> None:
    owner = await party.start(owner_of(party, 360_000, lasts_ms=MINUTE))
    renter = await party.add(ask=None, gossip="on")
    await trio.sleep(LISTED_S)
    [offer] = renter.node.market.offers()
    assert remedy_for(offer.advert) == 100_000
    running = submit(renter, tier="gold")
    await trio.sleep(10)
    views = OwnerViews(owner.node, lambda: offered(owner.node))
    views.set_ask(AskChange(gold_remedy_ppm=250_000))
    assert views.ask().gold_remedy_ppm == 250_000
    await trio.sleep(3)
    document = offer_of(renter.node, offer.head[0].hex()[:8]).offer
    assert document.gold_remedy_ppm == 250_000
    assert (await ended(renter, running)).state == "done"
    [before] = owner.node.books.leases()
    assert before.request.remedy_ppm == 100_000
    # It holds after a restart too, until it is reset.
    await stop(owner)
    owner = await party.start(party.revive(owner.node))
    await trio.sleep(LISTED_S)
    later = submit(renter, tier="gold")
    await trio.sleep(10)
    [lease] = [each for each in owner.node.books.leases() if each.id != before.id]
    assert remedy_of(lease.request) == 22 * 450_000 // 60 // 4
    shown = JobViews(renter.node, FileBaggage(tmp_path))
    assert shown.show(later).remedy_micro == remedy_of(lease.request)
    owner.node.terms.prices.reset()
    assert owner.node.terms.posting.remedy_ppm == 100_000
    assert lease.request.remedy_ppm == 250_000


@pytest.mark.parametrize("ppm", [0, 9_999, 1_000_001])
async def test_a_remedy_beyond_the_bounds_is_refused(
    party: Party, ppm: int, autojump_clock: trio.abc.Clock
) -> None:
    owner = await party.start(owner_of(party, 360_000))
    views = OwnerViews(owner.node, lambda: offered(owner.node))
    with pytest.raises(LocalFault, match="from 1% to 100%"):
        views.set_ask(AskChange(gold_remedy_ppm=ppm))
    plain = await party.add(ask=300_000)
    with pytest.raises(LocalFault, match="offers no gold"):
        OwnerViews(plain.node, lambda: offered(plain.node)).set_ask(
            AskChange(gold_remedy_ppm=200_000)
        )


async def test_a_gold_bid_that_names_less_than_its_advert_is_left_out(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    mean = await party.start(owner_of(party, 300_000, lasts_ms=1_000))
    fair = await party.start(owner_of(party, 400_000, lasts_ms=1_000))
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    # It bids by another word than it has advertised, and advertises no more.
    provider = mean.node.provider
    provider.posting = dataclasses.replace(provider.posting, remedy_ppm=99_999)
    assert (await ended(renter, submit(renter, tier="gold"))).state == "done"
    assert [lease.owner for lease in renter.node.ports.ledger.state.leases()] == [
        fair.node.identity.feed.public
    ]
    await stop(fair)
    alone = await ended(renter, submit(renter, tier="gold", patience_ms=MillisSpan(1_000)))
    assert "1 remedy" in alone.why


async def test_an_owner_that_shows_another_bid_than_it_hid_is_proved_a_cheat(
    party: Party, autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    cheat = await party.start(owner_of(party, 300_000, lasts_ms=1_000))
    honest = await party.start(owner_of(party, 400_000, lasts_ms=1_000))
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    show = HiddenBids.reveal

    def reveal(hidden: HiddenBids, commit: Digest, by: PublicKey) -> bytes:
        raw = show(hidden, commit, by)
        signer: Signer = hidden._signer
        if signer.public != cheat.node.identity.feed.public:
            return raw
        body = unpack(raw, hidden._net, BidReveal).body
        return pack(replace(body, salt=bytes(16)), signer=signer, net=hidden._net)

    monkeypatch.setattr(HiddenBids, "reveal", reveal)
    done = await ended(renter, submit(renter, tier="gold"))
    assert done.state == "done"
    assert [lease.owner for lease in renter.node.ports.ledger.state.leases()] == [
        honest.node.identity.feed.public
    ]
    [offence] = [check(raw, renter.node.net) for raw in renter.node.ports.ledger.evidence()]
    assert (offence.offender, offence.rule) == (cheat.node.identity.feed.public, "A9")


async def test_gold_bids_are_kept_so_that_the_choice_can_be_checked(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    for ask in (300_000, 400_000):
        await party.start(owner_of(party, ask, lasts_ms=1_000))
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    job = submit(renter, tier="gold")
    assert (await ended(renter, job)).state == "done"
    raw = renter.node.ports.cabinet.get(f"jobs/{job}/auction-1")
    record = decode(raw or b"", AuctionRecord, size_max=AUCTION_BYTES_MAX)
    assert len(record.bids) == 2


@pytest.mark.parametrize("dies", [False, True], ids=["told", "killed between"])
async def test_a_host_that_fails_a_gold_job_lets_off_what_it_named_once(
    party: Party,
    autojump_clock: trio.abc.Clock,
    monkeypatch: pytest.MonkeyPatch,
    dies: bool,
) -> None:
    def fails(_run: Run) -> Script:
        return Script(lasts_ms=SHORT_MS, cause="engine", exit_code=None)

    owner = await party.start(party.build(ask=300_000, script=fails, choose=with_gold))
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    limits = make_limits(time_ms=SHORT_MS)
    job = submit(renter, tier="gold", limits=limits, patience_ms=MillisSpan(1_000))
    await trio.sleep(SHORT_MS / 1_000 + 30)
    assert (await ended(renter, job)).state == "failed"
    [lease] = owner.node.books.leases()
    remedy = remedy_of(lease.request)
    used = owner.node.books.metered(lease.id)
    assert 0 < remedy < used
    if dies:
        await stop(owner)
        # As if it had died before it noted that the lease is done: all of its end comes again.
        owner.node.ports.cabinet.remove(f"leases/{lease.id.hex()}/done")
        owner = await party.start(party.revive(owner.node))
    await trio.sleep(10)
    for here in (owner.node, renter.node):
        feeds = owner.node.ports.ledger.feed, renter.node.ports.ledger.feed
        debt = debt_of(here.ports.ledger.state, *feeds, "TEST")
        assert debt is not None
        assert (debt.stated_micro, debt.paid_micro) == (used, remedy)
    raw = renter.node.ports.cabinet.get(f"jobs/{job}/receipt")
    document = verify_receipt(raw or b"", None)
    assert document.delivered.remedy_due_micro == remedy
    assert [each.class_ for each in document.statements if "lets off" in each.text] == [
        "proved",
        "proved",
    ]
