"""Two peers close their accounts: in whatever order their leases end, and in both directions."""

from typing import Any

import pytest
from msgspec.structs import replace

from ledger.entry import Link
from ledger.fold import Lease
from ledger.ledger import Taken
from ledger.receipt import check_receipt
from p2pnode.accounts import Accounts, Reach
from p2pnode.cabinet import MemoryCabinet
from p2pnode.network.exchange import Refused
from protocol.certificate import Certificate, read_certificate
from protocol.codec import decode, encode
from protocol.errors import PeerFault, Unavailable
from protocol.genesis import Bounds, Genesis
from protocol.lease import charge
from protocol.lease_stream import CosignAsk, Cosigned, LeaseName, Settle
from protocol.signing import Signer, digest, is_signed
from protocol.tick import COSIGN_DOMAIN, Outcome, Tick
from protocol.units import Digest, Millis, MillisSpan, PeerId, PublicKey
from protocol.wire import Sealed, pack, unpack
from tests.make_history import share
from tests.make_ledger import (
    HOUR,
    NET,
    OWNER,
    RENTER,
    STRANGER,
    UNIT,
    UNIT2,
    Feed,
    at,
    certificate,
    lease_request,
    opened_ledger,
    sealed,
)

GENESIS = Genesis(name="accounts", kind="test", nonce=bytes(16), bounds=Bounds(), money="USD")


class Clock:
    def now(self) -> Millis:
        return at(HOUR)


class Side:
    """One peer: its ledger, its accounts, and the ticks that it has metered."""

    def __init__(self, signer: Signer) -> None:
        self.signer = signer
        self.ledger = opened_ledger(signer)
        self.ticks: dict[Digest, bytes] = {}
        self.other: Side | None = None
        self.is_cut_off = False
        self.fits = True
        """Whether the ticks of the other fit its feed."""
        self.cabinet = MemoryCabinet()
        self.restart()

    def restart(self) -> None:
        """Another life, of which only ledger and cabinet are left."""
        self.accounts = Accounts(
            ledger=self.ledger,
            fits=lambda _raw: self.fits,
            signer=self.signer,
            certificate=certificate(self.signer),
            genesis=GENESIS,
            cabinet=self.cabinet,
            reach=Reach(
                ask=self._ask, fetch=self._fetch, tell=lambda _peer: None, who_is=self._who_is
            ),
            clock=Clock(),
        )

    @property
    def peer(self) -> PeerId:
        return read_certificate(certificate(self.signer), NET).peer_id

    async def _ask(self, _peer: PeerId, kind: str, body: bytes) -> bytes:
        assert self.other is not None
        if kind == "lease.settle":
            asked = decode(body, Settle, size_max=512)
            if self.other.ticks.pop(asked.lease, None) is None:
                raise Refused("lease.unknown")
            return b""
        tick = self.other.ticks.get(decode(body, LeaseName, size_max=512).lease)
        if tick is None:
            raise Refused("lease.unknown")
        return encode(CosignAsk(tick=tick))

    async def _fetch(self, _peer: PeerId, _feed: PublicKey) -> None:
        assert self.other is not None
        if self.is_cut_off:
            raise Unavailable("the connection was lost")
        share(self.other.ledger, self.ledger)

    def _who_is(self, _peer: PeerId) -> Certificate:
        assert self.other is not None
        return read_certificate(certificate(self.other.signer), NET)


def sides() -> tuple[Side, Side]:
    owner, renter = Side(OWNER), Side(RENTER)
    owner.other, renter.other = renter, owner
    return owner, renter


def leased(owner: Side, renter: Side, *, unit: bytes = UNIT, nonce: int = 0) -> Lease:
    """A lease of an hour, known to both and accepted."""
    request = replace(lease_request(((unit, 0),), nonce=nonce, owner=owner.signer), tier="silver")
    granted = owner.ledger.grant(sealed(request, by=renter.signer), at(0))
    share(owner.ledger, renter.ledger)
    renter.ledger.accept(granted.id, at(0))
    share(renter.ledger, owner.ledger)
    lease = owner.ledger.lease(granted.id)
    assert lease is not None
    return lease


def ended(owner: Side, lease: Lease, *, used: int) -> bytes:
    """The lease ends: a last tick, the owner's half; the sealed outcome."""
    tick = Tick(
        lease=lease.id,
        n=1,
        used_ms=MillisSpan(used),
        amount_micro=charge(MillisSpan(used), lease.request.micro_per_gpu_hour),
        at_ms=at(HOUR),
        head_seq=0,
    )
    raw = pack(tick, signer=owner.signer, net=NET)
    owner.ticks[lease.id] = raw
    read: Sealed[Tick] = unpack(raw, NET, Tick)
    owner.accounts.bill(lease, read)
    outcome = Outcome(
        lease=lease.id,
        cause="exit",
        exit_code=0,
        ended_ms=at(HOUR),
        engine="FakeEngine",
        isolation="process",
        enforced="nothing",
        gpu="simulated",
    )
    return pack(outcome, signer=owner.signer, net=NET)


def check_settled(receipt: bytes, *, used: int) -> None:
    proven = check_receipt(receipt, NET)
    assert proven.is_settled
    assert proven.used_ms == used


async def test_leases_are_settled_in_any_order() -> None:
    owner, renter = sides()
    first, second = leased(owner, renter), leased(owner, renter, unit=UNIT2, nonce=1)
    outcomes = [ended(owner, lease, used=used) for lease, used in ((first, 7), (second, 9))]
    later = await renter.accounts.settle(owner.peer, second, outcomes[1])
    earlier = await renter.accounts.settle(owner.peer, first, outcomes[0])
    check_settled(later, used=9)
    check_settled(earlier, used=7)


async def test_an_account_has_two_directions() -> None:
    one, other = sides()
    rented, let = leased(one, other), leased(other, one, nonce=1)
    outcomes = ended(one, rented, used=7), ended(other, let, used=9)
    check_settled(await other.accounts.settle(one.peer, rented, outcomes[0]), used=7)
    check_settled(await one.accounts.settle(other.peer, let, outcomes[1]), used=9)
    for side in (one, other):
        share(one.ledger, side.ledger)
        share(other.ledger, side.ledger)
        owed = side.ledger.state.last_half(OWNER.public, RENTER.public, money="USD")
        assert owed is not None
        assert owed.statement.used_ms == 7


async def test_a_renter_that_died_after_its_consent_settles_when_it_is_back() -> None:
    owner, renter = sides()
    lease = leased(owner, renter)
    outcome = ended(owner, lease, used=7)
    renter.is_cut_off = True
    with pytest.raises(Unavailable, match="connection"):
        await renter.accounts.settle(owner.peer, lease, outcome)
    assert owner.ticks == {}
    renter.is_cut_off = False
    check_settled(await renter.accounts.settle(owner.peer, lease, outcome), used=7)


async def test_what_was_never_metered_with_us_is_not_answered() -> None:
    owner, renter = sides()
    first, second = leased(owner, renter), leased(owner, renter, unit=UNIT2, nonce=1)
    ended(owner, first, used=7)
    outcome = ended(owner, second, used=9)
    del owner.ticks[first.id]
    with pytest.raises(Unavailable):
        await renter.accounts.settle(owner.peer, second, outcome)
    assert (
        renter.ledger.state.halves(RENTER.public, OWNER.public, money="USD", is_answer=True) == []
    )


def tick_of(lease: Lease, /, **changes: Any) -> Tick:
    used = MillisSpan(changes.get("used_ms", 60_000))
    amount = charge(used, lease.request.micro_per_gpu_hour)
    good = Tick(lease=lease.id, n=2, used_ms=used, amount_micro=amount, at_ms=at(HOUR), head_seq=0)
    return replace(good, **changes)


async def cosigned(of: Side, by: Side, tick: Tick, *, signer: Signer = OWNER) -> bytes:
    """The renter's answer to the question `tick`; it holds over the tick's body."""
    raw = pack(tick, signer=signer, net=NET)
    answer = await by.accounts.answer_tick(of.peer, encode(CosignAsk(tick=raw)))
    signature = decode(answer, Cosigned, size_max=512).by
    assert is_signed(by.signer.public, COSIGN_DOMAIN, NET, encode(tick), by=signature)
    return signature


async def test_a_tick_is_cosigned_once_and_the_same_way_again() -> None:
    owner, renter = sides()
    lease = leased(owner, renter)
    assert renter.accounts.owed(lease.id) == 0
    tick = tick_of(lease)
    assert await cosigned(owner, renter, tick) == await cosigned(owner, renter, tick)
    assert renter.accounts.owed(lease.id) == tick.amount_micro


@pytest.mark.parametrize(
    ("changes", "signer", "rule"),
    [
        ({"lease": Digest(bytes(32))}, OWNER, "tick.lease"),
        ({}, STRANGER, "tick.signer"),
        ({"n": 1}, OWNER, "tick.order"),
        ({"n": 2, "head_seq": 9}, OWNER, "tick.order"),
        ({"n": 3, "used_ms": 59_999}, OWNER, "tick.order"),
        ({"n": 3, "amount_micro": 1}, OWNER, "tick.amount"),
        ({"n": 3, "used_ms": HOUR}, OWNER, "tick.span"),
        ({"n": 3, "at_ms": at(HOUR + 30_001)}, OWNER, "tick.future"),
    ],
)
async def test_a_tick_that_breaks_a_rule_is_not_cosigned(
    changes: dict[str, Any], signer: Signer, rule: str
) -> None:
    owner, renter = sides()
    lease = leased(owner, renter)
    first = tick_of(lease)
    await cosigned(owner, renter, first)
    with pytest.raises(PeerFault) as caught:
        await cosigned(owner, renter, tick_of(lease, **changes), signer=signer)
    assert caught.value.rule == rule
    assert renter.accounts.owed(lease.id) == first.amount_micro


async def test_a_tick_that_gives_the_lie_to_its_owners_feed_is_not_cosigned() -> None:
    owner, renter = sides()
    lease = leased(owner, renter)
    renter.fits = False
    with pytest.raises(PeerFault, match=r"tick\.time"):
        await cosigned(owner, renter, tick_of(lease))
    assert renter.accounts.owed(lease.id) == 0


async def test_a_half_with_a_counter_that_was_answered_is_not_answered() -> None:
    owner, renter = sides()
    first, second = leased(owner, renter), leased(owner, renter, unit=UNIT2, nonce=1)
    outcome = ended(owner, first, used=7)
    await renter.accounts.settle(owner.peer, first, outcome)
    answered = owner.ledger.state.last_half(OWNER.public, RENTER.public, money="USD")
    head = owner.ledger.head(OWNER.public)
    assert answered is not None
    assert head is not None
    said = tick_of(second)
    owner.ticks[second.id] = pack(said, signer=OWNER, net=NET)
    feed = Feed(OWNER, last=Link(seq=head.seq, id=head.id, ts_ms=at(HOUR)), ts=HOUR)
    again = replace(answered.statement, lease=second.id, tick=digest("tick", encode(said)))
    assert renter.ledger.ingest(feed.add(again).raw) is Taken.NEW
    with pytest.raises(PeerFault, match=r"statement\.order"):
        await renter.accounts.settle(owner.peer, second, outcome)


async def test_a_half_that_grows_by_more_than_the_tick_is_not_answered() -> None:
    owner, renter = sides()
    lease = leased(owner, renter)
    outcome = ended(owner, lease, used=7)
    owner.ticks[lease.id] = pack(tick_of(lease, used_ms=6), signer=OWNER, net=NET)
    with pytest.raises(PeerFault, match=r"statement\.amount"):
        await renter.accounts.settle(owner.peer, lease, outcome)
