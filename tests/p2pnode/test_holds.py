"""Exclusive bids keep units for one renter, and an owner never forgets one before its time."""

import pytest

from p2pnode.cabinet import MemoryCabinet
from p2pnode.matching.holds import IN_VAIN_MAX, REST_MS, UNITS_HELD_MAX, Holds
from p2pnode.matching.quoting import HOLD_MS
from protocol.auction import Bid, BidDrop, Refusal, Reply, Rfq
from protocol.codec import encode
from protocol.lease import UnitTurn
from protocol.signing import Signer, peer_id_of
from protocol.units import Millis
from protocol.wire import Sealed, pack, unpack
from tests import make
from tests.make import NET, NOW, RENTER, STRANGER
from tests.make_desk import Clock, Owner
from tests.p2pnode.test_desk import request_for


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def owner(clock: Clock) -> Owner:
    return Owner(10, clock)


async def ask(owner: Owner, by: Signer, gpus: int, *, hold: bool) -> Reply:
    """What the owner answers to this renter, asked now."""
    now = owner.clock.at
    rfq = make.rfq(
        owner=owner.key.public,
        need=make.need(gpus=gpus),
        **({"hold": "yes"} if hold else {}),
        start_ms=now,
        end_ms=Millis(now + 3_600_000),
        issued_ms=now,
        not_after_ms=Millis(now + 1_000),
    )
    raw = pack(rfq, signer=by, net=NET)
    return await owner.ask("rfq", raw, peer=peer_id_of(by.public))


def bid_in(reply: Reply) -> Sealed[Bid]:
    assert isinstance(reply.yes, bytes)
    return unpack(reply.yes, NET, Bid)


def no_in(reply: Reply) -> tuple[str, object]:
    assert isinstance(reply.no, bytes)
    refusal = unpack(reply.no, NET, Refusal).body
    return refusal.reason, refusal.detail


async def test_held_units_are_offered_to_nobody_else_until_the_bid_is_over(
    owner: Owner, clock: Clock
) -> None:
    held = bid_in(await ask(owner, RENTER, 1, hold=True))
    assert held.body.exclusive == "yes"
    assert held.body.valid_until_ms == NOW + HOLD_MS
    other = bid_in(await ask(owner, STRANGER, 1, hold=False))
    assert not {turn.unit for turn in held.body.units} & {turn.unit for turn in other.body.units}
    assert no_in(await ask(owner, STRANGER, 2, hold=False))[0] == "TAKEN"
    clock.at = Millis(NOW + HOLD_MS + 1)
    assert len(bid_in(await ask(owner, STRANGER, 2, hold=False)).body.units) == 2


async def test_a_bid_of_before_is_not_granted_over_a_hold(owner: Owner, clock: Clock) -> None:
    plain = bid_in(await ask(owner, RENTER, 2, hold=False))
    bid_in(await ask(owner, STRANGER, 1, hold=True))
    reply = await owner.ask("lease.take", owner.take(request_for(plain, clock)))
    assert no_in(reply)[0] == "TAKEN"
    assert owner.granted == []


async def test_the_holder_gets_what_it_holds(owner: Owner, clock: Clock) -> None:
    held = bid_in(await ask(owner, RENTER, 2, hold=True))
    reply = await owner.ask("lease.take", owner.take(request_for(held, clock)))
    assert isinstance(reply.yes, bytes)
    # What is leased is the ledger's to know from here on.
    assert owner.desk._holds.units(clock.at) == frozenset()


async def test_only_the_holder_lets_go(owner: Owner) -> None:
    held = bid_in(await ask(owner, RENTER, 2, hold=True))
    drop = encode(BidDrop(bid=held.digest))
    await owner.desk.handlers["bid.drop"](peer_id_of(STRANGER.public), drop)
    assert no_in(await ask(owner, STRANGER, 1, hold=False))[0] == "TAKEN"
    await owner.desk.handlers["bid.drop"](peer_id_of(RENTER.public), drop)
    assert len(bid_in(await ask(owner, STRANGER, 2, hold=False)).body.units) == 2


async def test_c2_holds_that_are_never_taken_lower_the_capacity_for_a_moment_only(
    owner: Owner, clock: Clock
) -> None:
    for _ in range(IN_VAIN_MAX):
        bid_in(await ask(owner, RENTER, 2, hold=True))
        clock.at = Millis(clock.at + HOLD_MS + 1)
    reason, detail = no_in(await ask(owner, RENTER, 2, hold=True))
    assert (reason, detail) == ("BUSY", f"the last {IN_VAIN_MAX} holds gave no lease")
    assert len(bid_in(await ask(owner, RENTER, 2, hold=False)).body.units) == 2
    clock.at = Millis(clock.at + REST_MS)
    assert bid_in(await ask(owner, RENTER, 2, hold=True)).body.exclusive == "yes"


async def test_c2_abandoned_bids_do_not_lower_the_capacity(owner: Owner) -> None:
    for _ in range(500):
        await ask(owner, RENTER, 2, hold=False)
    assert len(bid_in(await ask(owner, STRANGER, 2, hold=False)).body.units) == 2


def a_hold(number: int, until: Millis, by: Signer = RENTER) -> Sealed[Bid]:
    turns = (UnitTurn(unit=number.to_bytes(16, "big"), ctr=1),)
    bid = make.bid(units=turns, renter=by.public, valid_until_ms=until, exclusive="yes")
    return unpack(pack(bid, signer=make.signer(10), net=NET), NET, Bid)


def test_a_hold_outlives_a_crash_of_the_owner() -> None:
    cabinet = MemoryCabinet()
    hold = a_hold(1, Millis(NOW + HOLD_MS))
    Holds(cabinet).keep(hold)
    revived = Holds(cabinet)
    assert revived.units(NOW) == {hold.body.units[0].unit}
    assert revived.units(Millis(NOW + HOLD_MS)) == {hold.body.units[0].unit}
    assert revived.units(Millis(NOW + HOLD_MS + 1)) == frozenset()
    assert cabinet.names("holds") == []


def test_one_renter_holds_only_so_much_at_once() -> None:
    holds = Holds(MemoryCabinet())
    for number in range(UNITS_HELD_MAX):
        assert holds.why_not(RENTER.public, 1, NOW) is None
        holds.keep(a_hold(number, Millis(NOW + HOLD_MS)))
    assert holds.why_not(RENTER.public, 1, NOW) == f"holds {UNITS_HELD_MAX} GPUs already"
    assert holds.why_not(STRANGER.public, 1, NOW) is None


def test_a_question_without_a_hold_is_as_before() -> None:
    assert "hold" not in str(encode(make.rfq()))
    raw = pack(make.rfq(hold="yes"), signer=RENTER, net=NET)
    assert unpack(raw, NET, Rfq).body.hold == "yes"
