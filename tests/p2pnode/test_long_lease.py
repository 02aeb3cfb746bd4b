"""Leases of minutes and of months settle to the millionth, and what is kept does not grow by ticks.

Whole nodes in memory on virtual time. The loops of an idle node are slowed down, or two months of
them would take hours; nothing that is metered, signed or stated is touched.
"""

from pathlib import Path

import pytest
import trio
from msgspec.structs import replace

from ledger.debts import Debt, debts_of, lines_of
from ledger.fold import Lease
from ledger.fork_evidence import prove_fork
from ledger.receipt import Proven, check_receipt
from ledger.rules import BUNDLES
from p2pnode import image_stock, latency, own_terms, own_use, traffic
from p2pnode.accounts import cosigned
from p2pnode.api.money_documents import ConfirmOrder
from p2pnode.cabinet import MemoryCabinet
from p2pnode.config import Config
from p2pnode.execution import lease_door
from p2pnode.execution.fake_engine import Script
from p2pnode.execution.meter import METERED_BYTES_MAX, Metered
from p2pnode.matching import offer_sync
from p2pnode.money_views import money_views
from p2pnode.network import peers
from p2pnode.network.memory_transport import MemoryHub
from p2pnode.replication import replication, spread
from protocol.codec import decode
from protocol.genesis import Bounds, Genesis
from protocol.limits import SEAL_BYTES, TICK_BYTES_MAX
from protocol.signing import is_signed
from protocol.tick import COSIGN_DOMAIN, Tick
from protocol.units import MillisSpan, Signature
from protocol.wire import Envelope, unpack
from tests.make_job import make_limits, make_submission
from tests.make_ledger import Feed, statement
from tests.make_node import Party, Started

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
ASK = 333_333
MONEY = "USD"
BILLS = 240
"""Of sixty days: one each six hours, the last of which is the end."""
IDLE_S = 1_800
"""How often an idle node looks around, once the job runs."""


@pytest.fixture
def party(tmp_path: Path, nursery: trio.Nursery) -> Party:
    genesis = Genesis(name="long", kind="test", nonce=bytes(16), bounds=Bounds(), money=MONEY)
    return Party(tmp_path, nursery, MemoryHub(), genesis=genesis)


class Let:
    """An owner and a renter, and a job of `lasts` ms that runs in between."""

    def __init__(self, party: Party, *, lasts: int, period: int, billing: int = DAY) -> None:
        self._party = party
        self._lasts = MillisSpan(lasts)
        self._period = MillisSpan(period)
        self._billing = MillisSpan(billing)
        self.owner: Started
        self.renter: Started
        self.job = ""

    async def begin(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The job runs."""
        script = Script(lasts_ms=self._lasts)
        built = self._party.build(ask=ASK, script=lambda _run: script, choose=self._choose)
        self.owner = await self._party.start(built)
        renter = self._party.build(ask=None, gossip="auto", choose=self._choose)
        self.renter = await self._party.start(renter)
        await trio.sleep(5)
        self.submit()
        await trio.sleep(10)
        assert self.state == "running"
        for module, name in (
            (peers, "LOOK_S"),
            (lease_door, "LOG_POLL_S"),
            (offer_sync, "ROUND_S"),
            (replication, "ROUND_S"),
            (spread, "SPREAD_S"),
            (traffic, "SAMPLE_S"),
            (latency, "PROBE_S"),
            (image_stock, "LOOK_S"),
            (own_use, "LOOK_S"),
            (own_terms, "PRICES_S"),
        ):
            monkeypatch.setattr(module, name, IDLE_S)

    def submit(self) -> None:
        """One more job of the renter's, which lasts as long."""
        limits = make_limits(time_ms=self._lasts + MINUTE)
        wanted = make_submission(self.renter.node, limits=limits, money=MONEY)
        self.job = self.renter.node.jobs.submit(wanted).id

    async def wait_until(self, state: str) -> None:
        """The job has come to this state."""
        driver = self.renter.node.jobs.driver(self.job)
        while driver.file.state != state:
            await driver.changed.wait()

    async def die(self, node: Started) -> None:
        node.scope.cancel()
        await node.ended.wait()

    async def reborn(self, node: Started) -> Started:
        """The next life of this node, over what is on its disk; its runs went on."""
        await self.die(node)
        return await self._party.start(self._party.revive(node.node))

    def _choose(self, config: Config) -> Config:
        return replace(
            config,
            network=replace(config.network, heartbeat=MillisSpan(HOUR)),
            pricing=replace(
                config.pricing,
                period=self._period,
                billing=self._billing,
                max_lease=MillisSpan(61 * DAY),
            ),
        )

    @property
    def state(self) -> str:
        return self.renter.node.jobs.driver(self.job).file.state

    def debt(self, of: Started) -> Debt:
        [debt] = debts_of(of.node.ports.ledger.state, of.node.identity.feed.public)
        return debt

    def receipt(self) -> Proven:
        raw = self.renter.node.ports.cabinet.get(f"jobs/{self.job}/receipt")
        assert raw is not None
        return check_receipt(raw, self.owner.node.net)

    def records(self) -> int:
        """How many records both keep beside their ledgers."""
        nodes = (self.owner.node, self.renter.node)
        cabinets = [node.ports.cabinet for node in nodes]
        return sum(len(each._records) for each in cabinets if isinstance(each, MemoryCabinet))

    def pay(self) -> int:
        """What is due has arrived, by the owner's word; how much that was."""
        due = self.debt(self.owner).due_micro
        if due:
            peer = self.renter.node.identity.feed.public.hex()
            order = ConfirmOrder(peer=peer, amount_micro=due, money=MONEY)
            money_views(self.owner.node).confirm(order)
        return due


def price(used_ms: int) -> int:
    return -(-used_ms * ASK // HOUR)


async def test_five_minutes_settle_to_the_millionth(
    party: Party, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock
) -> None:
    let = Let(party, lasts=5 * MINUTE - 7, period=10_000)
    await let.begin(monkeypatch)
    await trio.sleep(20 * 60)
    check_settled(let, used_ms=5 * MINUTE - 7, bills=1)


def check_settled(let: Let, *, used_ms: int, bills: int) -> None:
    """Receipt, both sides' accounts and lines say the price of the use, and nothing else."""
    assert let.state == "done"
    proven = let.receipt()
    assert (proven.used_ms, proven.amount_micro) == (used_ms, price(used_ms))
    assert proven.is_settled
    mine, theirs = let.debt(let.owner), let.debt(let.renter)
    assert mine == theirs
    assert (mine.used_ms, mine.agreed_micro, mine.claimed_micro) == (used_ms, price(used_ms), 0)
    let.pay()
    assert let.debt(let.owner).due_micro == 0
    lines = lines_of(let.owner.node.ports.ledger.state, let.owner.node.identity.feed.public)
    assert sum(line.amount_micro for line in lines) == price(used_ms)
    assert sum(line.paid_micro for line in lines) == price(used_ms)
    assert len([line for line in lines if line.lease]) == bills
    for node in (let.owner.node, let.renter.node):
        assert node.ports.ledger.offences() == []


async def test_sixty_days_are_billed_paid_and_settled_while_they_last(
    party: Party, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock
) -> None:
    let = Let(party, lasts=60 * DAY - 1_237, period=HOUR)
    await let.begin(monkeypatch)
    records: list[int] = []
    paid = 0
    for half_day in range(1, 120):
        await trio.sleep(DAY / 2_000)
        assert let.state == "running"
        # What was stated last is answered with the next tick.
        unanswered = 7 * HOUR + MINUTE
        assert let.debt(let.owner).agreed_micro >= price(half_day * DAY // 2 - unanswered)
        paid += let.pay()
        records.append(let.records())
    assert paid > price(59 * DAY)
    await trio.sleep(DAY / 2_000 + 2 * 3_600)
    check_settled(let, used_ms=60 * DAY - 1_237, bills=BILLS)
    assert max(records) == records[0]
    # GENESIS, CAPACITY, GRANT and RELEASE; the bills and the payments; none for a tick.
    head = let.owner.node.ports.ledger.head(let.owner.node.identity.feed.public)
    assert head is not None
    assert head.seq + 1 == 4 + BILLS + len(records) + 1


async def test_who_does_not_pay_a_long_lease_loses_it_when_one_billing_period_is_owed(
    party: Party, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock
) -> None:
    let = Let(party, lasts=60 * DAY, period=HOUR)
    await let.begin(monkeypatch)
    await trio.sleep(3 * DAY / 1_000)
    [lease] = let.owner.node.books.leases()
    # Who ends it says why, and the renter has it from there, not from its own consent later on.
    assert lease.reason == "unpaid"
    told = let.renter.node.ports.ledger.lease(lease.id)
    assert told is not None
    assert told.reason == "unpaid"
    assert price(DAY) < let.debt(let.renter).due_micro <= price(DAY + HOUR + MINUTE)


async def test_a_lease_whose_sides_die_between_bills_settles_all_the_same(
    party: Party, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock
) -> None:
    let = Let(party, lasts=4 * DAY - 11, period=HOUR)
    await let.begin(monkeypatch)
    for quarter in range(1, 16):
        await trio.sleep(DAY / 4_000)
        assert let.state == "running"
        let.pay()
        if quarter % 3 == 0:
            let.owner = await let.reborn(let.owner)
        if quarter % 4 == 0:
            let.renter = await let.reborn(let.renter)
    await trio.sleep(DAY / 4_000 + 2 * 3_600)
    check_settled(let, used_ms=4 * DAY - 11, bills=16)


def co_signed(of: Started, lease: Lease) -> Tick:
    """The last tick, by what this side alone has kept: signed by the owner and by the renter."""
    cabinet, net = of.node.ports.cabinet, of.node.net
    if of.node.identity.feed.public == lease.owner:
        raw = cabinet.get(f"leases/{lease.id.hex()}/metered")
        metered = decode(raw or b"", Metered, size_max=METERED_BYTES_MAX)
        tick, by = metered.tick, metered.cosign
    else:
        kept = cosigned(cabinet, lease.id)
        assert kept is not None
        tick, by = kept.tick, kept.by
    sealed = unpack(tick, net, Tick)
    assert sealed.signer == lease.owner
    said = decode(tick, Envelope, size_max=TICK_BYTES_MAX + SEAL_BYTES).b
    assert is_signed(lease.renter, COSIGN_DOMAIN, net, said, by=Signature(by))
    return sealed.body


async def test_an_owner_that_was_away_for_ninety_days_is_owed_what_was_co_signed_last(
    party: Party, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock
) -> None:
    """It dies when the job is over and nothing is settled yet; either side alone has the sum."""
    used = 5 * MINUTE - 7
    let = Let(party, lasts=used, period=10_000)
    await let.begin(monkeypatch)
    await let.wait_until("settling")
    await let.die(let.owner)
    [lease] = let.owner.node.books.leases()
    await trio.sleep(90 * DAY / 1_000)
    monkeypatch.undo()
    assert let.state == "done"
    assert let.renter.node.ports.cabinet.get(f"jobs/{let.job}/receipt") is None
    let.renter = await let.reborn(let.renter)
    assert co_signed(let.renter, lease).amount_micro == price(used)
    await let.die(let.renter)
    let.owner = await let.reborn(let.owner)
    await trio.sleep(60)
    assert co_signed(let.owner, lease) == co_signed(let.renter, lease)
    assert let.debt(let.owner).claimed_micro == price(used)
    # Whenever the two meet again, the renter answers what it has co-signed.
    let.renter = await let.reborn(let.renter)
    await trio.sleep(10 * 60)
    let.owner.node.provider.refresh()  # or it tells of its offer once an hour
    await trio.sleep(10)
    let.submit()
    await trio.sleep(20 * 60)
    assert let.state == "done"
    mine, theirs = let.debt(let.owner), let.debt(let.renter)
    assert mine == theirs
    assert (mine.used_ms, mine.agreed_micro, mine.claimed_micro) == (2 * used, 2 * price(used), 0)
    lines = lines_of(let.renter.node.ports.ledger.state, let.renter.node.identity.feed.public)
    assert [(line.amount_micro, line.is_agreed) for line in lines] == [(price(used), True)] * 2
    assert lines[0].lease == lease.id
    for node in (let.owner.node, let.renter.node):
        assert node.ports.ledger.offences() == []


async def test_an_owner_whose_feed_is_forked_goes_on_while_its_leases_last(
    party: Party, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock
) -> None:
    let = Let(party, lasts=4 * HOUR, period=30 * MINUTE, billing=5 * HOUR)
    await let.begin(monkeypatch)
    await trio.sleep(30 * 60)
    owner = let.owner.node
    feed = Feed(owner.identity.feed, net=owner.net, rules=next(iter(BUNDLES)))
    feed.open()
    other = feed.branch()
    proof = prove_fork(feed.add(statement(used=1)), other.add(statement(used=2)))
    assert proof is not None
    owner.ports.ledger.accuse(proof)
    assert owner.ports.ledger.fault() is not None
    await trio.sleep(3 * 3_600)
    assert let.state == "running"
    await trio.sleep(2 * 3_600)
    assert not let.owner.ended.is_set()
