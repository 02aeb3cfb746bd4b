"""A lease is stated while it runs: what is agreed was co-signed, and at the end is all of it."""

import dataclasses
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import permutations

import pytest
import trio
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from ledger.debts import debts_of
from ledger.fold import Lease
from ledger.receipt import check_receipt
from p2pnode.bills import ANSWERS_MAX
from protocol.codec import encode
from protocol.errors import PeerFault
from protocol.lease import charge
from protocol.lease_stream import CosignAsk
from protocol.tick import Outcome, Tick
from protocol.units import Micros, MillisSpan
from protocol.wire import Sealed, pack, unpack
from tests.make_history import share
from tests.make_ledger import HOUR, NET, OWNER, UNIT2, at
from tests.p2pnode.test_accounts import Side, leased, sides

PART = 7 * 60_000 + 1
"""What is used from one tick to the next; its price is not whole."""
PRICE = 250_000


class Deal:
    """A lease between two, its meter, and how both sides die and come back."""

    def __init__(self) -> None:
        self.owner, self.renter = sides()
        self.lease = leased(self.owner, self.renter)
        self.ticks: list[bytes] = []
        self.signed = 0

    def tick(self) -> Sealed[Tick]:
        """The owner meters a part more."""
        n = len(self.ticks) + 1
        self.ticks.append(sealed_tick(self.lease, n))
        self.owner.ticks[self.lease.id] = self.ticks[-1]
        return self.last()

    def last(self) -> Sealed[Tick]:
        return unpack(self.ticks[-1], NET, Tick)

    async def cosign(self, n: int) -> None:
        """The renter is asked to co-sign this tick, which may be an old one."""
        if not 0 <= n < len(self.ticks):
            return
        with suppress(PeerFault):  # An older one than the last is out of order.
            await self.renter.accounts.answer_tick(
                self.owner.peer, encode(CosignAsk(tick=self.ticks[n]))
            )
        self.signed = self.renter.accounts.owed(self.lease.id)

    def bill(self) -> None:
        if self.ticks:
            self.owner.accounts.bill(self.lease, self.last())

    def deliver(self) -> None:
        share(self.owner.ledger, self.renter.ledger)
        share(self.renter.ledger, self.owner.ledger)

    def agreed(self, side: Side) -> int:
        debts = debts_of(side.ledger.state, side.signer.public)
        return debts[0].agreed_micro if debts else 0

    async def settle(self) -> int:
        """The lease ends; the amount of a receipt that holds."""
        outcome = Outcome(
            lease=self.lease.id,
            cause="exit",
            exit_code=0,
            ended_ms=at(HOUR),
            engine="FakeEngine",
            isolation="process",
            enforced="nothing",
            gpu="simulated",
        )
        raw = await self.renter.accounts.settle(
            self.owner.peer, self.lease, pack(outcome, signer=OWNER, net=NET)
        )
        proven = check_receipt(raw, NET)
        assert proven.is_settled
        return proven.amount_micro


def sealed_tick(lease: Lease, n: int) -> bytes:
    used = MillisSpan(PART * n)
    amount = charge(used, lease.request.micro_per_gpu_hour)
    tick = Tick(lease=lease.id, n=n, used_ms=used, amount_micro=amount, at_ms=at(HOUR), head_seq=0)
    return pack(tick, signer=OWNER, net=NET)


Step = tuple[str, int]
OFTEN = ("tick", "cosign", "cosign", "bill", "deliver", "deliver")
"""A bill is answered only if all of these come, in this order."""
STEP = st.tuples(st.sampled_from([*OFTEN * 2, "owner dies", "renter dies"]), st.integers(0, 7))
STEPS = st.lists(STEP, max_size=10) | st.lists(STEP, min_size=10, max_size=30)


@given(STEPS)
def test_whatever_is_lost_repeated_or_late_what_is_agreed_was_cosigned_and_all_of_it_at_the_end(
    steps: list[Step],
) -> None:
    trio.run(_walk, steps)


def test_such_steps_have_bills_answered_before_the_end() -> None:
    once = settings(max_examples=200, phases=[Phase.generate], derandomize=True)
    find(STEPS, lambda steps: trio.run(_walk, steps) > 0, settings=once)


async def _walk(steps: list[Step]) -> int:
    """The most that was agreed before the end."""
    deal = Deal()
    most = 0
    for what, n in steps:
        match what:
            case "tick" if len(deal.ticks) < 7:  # Of the hour that the lease lasts.
                deal.tick()
            case "cosign" if deal.ticks:  # Mostly the last one.
                await deal.cosign(len(deal.ticks) - 1 - n % len(deal.ticks))
            case "bill":
                deal.bill()
            case "deliver":
                deal.deliver()
            case "owner dies":
                deal.owner.restart()
            case "renter dies":
                deal.renter.restart()
            case _:
                pass
        most = max(most, deal.agreed(deal.renter))
        assert most <= deal.signed
    deal.tick()
    deal.bill()
    deal.deliver()
    total = await deal.settle()
    deal.deliver()
    assert total == charge(MillisSpan(PART * len(deal.ticks)), Micros(PRICE))
    assert deal.agreed(deal.owner) == deal.agreed(deal.renter) == total
    assert deal.owner.ledger.offences() == []
    return most


@pytest.mark.parametrize("order", list(permutations(range(3))))
async def test_ticks_and_bills_in_any_order_and_twice_are_paid_once(order: tuple[int, ...]) -> None:
    deal = Deal()
    for _ in range(3):
        deal.tick()

    async def last_tick() -> None:
        await deal.cosign(2)

    async def first_tick() -> None:
        await deal.cosign(0)

    async def bill() -> None:
        deal.bill()
        deal.deliver()

    acts: list[Callable[[], Awaitable[None]]] = [last_tick, first_tick, bill]
    for index in (*order, *order):
        await acts[index]()
    assert await deal.settle() == charge(MillisSpan(3 * PART), Micros(PRICE))
    deal.deliver()
    assert deal.agreed(deal.owner) == charge(MillisSpan(3 * PART), Micros(PRICE))


async def test_two_leases_of_one_account_are_billed_in_turns() -> None:
    deal = Deal()
    other = Deal()
    other.owner, other.renter = deal.owner, deal.renter
    other.lease = leased(deal.owner, deal.renter, unit=UNIT2, nonce=1)
    for each in (deal, other, deal, other):
        each.tick()
        await each.cosign(len(each.ticks) - 1)
        each.bill()
        each.deliver()
    parts = [await each.settle() for each in (other, deal)]
    deal.deliver()
    assert deal.agreed(deal.owner) == sum(parts) == 2 * parts[0]


async def test_a_bill_beyond_what_was_cosigned_waits_until_it_is_cosigned() -> None:
    deal = Deal()
    deal.tick()
    await deal.cosign(0)
    deal.tick()
    deal.bill()
    deal.deliver()
    await deal.cosign(0)
    deal.deliver()
    assert deal.agreed(deal.owner) == 0
    await deal.cosign(1)
    deal.deliver()
    assert deal.agreed(deal.owner) == deal.last().body.amount_micro


async def test_a_bill_that_is_no_price_of_its_use_is_not_answered() -> None:
    deal = Deal()
    tick = deal.tick()
    await deal.cosign(0)
    dear = replace(tick.body, amount_micro=Micros(tick.body.amount_micro - 1))
    deal.owner.accounts.bill(deal.lease, dataclasses.replace(tick, body=dear))
    deal.deliver()
    await deal.cosign(0)
    deal.deliver()
    assert deal.agreed(deal.owner) == 0


def confirm(deal: Deal, *, paid: int) -> None:
    """The owner writes one more half, by which so much has been paid in all."""
    owner, renter = deal.owner.ledger, deal.renter.signer.public
    last = owner.state.last_half(OWNER.public, renter, money=deal.lease.request.money)
    assert last is not None
    said = last.statement
    more = replace(
        said,
        ctr=said.ctr + 1,
        lease=UNSET,
        tick=UNSET,
        paid_micro=Micros(paid) if paid else UNSET,
    )
    owner.append(more, at(HOUR))


def answered(deal: Deal) -> int:
    state, renter = deal.renter.ledger.state, deal.renter.signer.public
    money = deal.lease.request.money
    return len(state.halves(renter, OWNER.public, money=money, is_answer=True))


async def test_one_question_is_answered_by_a_few_halves_and_the_next_by_the_rest() -> None:
    deal = Deal()
    deal.tick()
    deal.bill()
    for paid in range(1, ANSWERS_MAX + 5):
        confirm(deal, paid=paid)
    deal.deliver()
    await deal.cosign(0)
    assert answered(deal) == ANSWERS_MAX
    await deal.cosign(0)
    assert answered(deal) == ANSWERS_MAX + 5
    assert await deal.settle() == deal.last().body.amount_micro


@pytest.mark.parametrize("paid", [0, 7])
async def test_a_half_that_confirms_nothing_is_not_answered(paid: int) -> None:
    deal = Deal()
    deal.tick()
    deal.bill()
    if paid:
        confirm(deal, paid=paid)
    deal.deliver()
    await deal.cosign(0)
    before = answered(deal)
    assert before == (2 if paid else 1)
    confirm(deal, paid=paid)
    deal.deliver()
    await deal.cosign(0)
    assert answered(deal) == before


async def test_while_its_feed_is_held_a_renter_cosigns_and_answers_its_bills_afterwards() -> None:
    deal = Deal()
    deal.tick()
    deal.bill()
    deal.deliver()
    before = deal.renter.ledger.head(deal.renter.signer.public)
    deal.renter.ledger.hold("Others are asked.")
    await deal.cosign(0)
    assert deal.signed > 0
    assert deal.renter.ledger.head(deal.renter.signer.public) == before
    deal.renter.ledger.hold(None)
    await deal.cosign(0)
    deal.deliver()
    assert deal.agreed(deal.owner) == deal.signed
