"""How far a renter may run up a debt, before a lease is given and while it runs."""

from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from ledger.bodies import Statement, consent_bytes
from ledger.ledger import Ledger
from ledger.rail_bodies import RailHold
from p2pnode.credit_line import CreditLine, Terms
from p2pnode.quantities import Money
from p2pnode.rails import tell
from protocol.lease import LeaseRequest
from protocol.rail import RailReceipt
from protocol.rules import BUNDLE
from protocol.units import Digest, Micros, Millis, MillisSpan, PublicKey
from protocol.wire import unpack
from tests.make_evidence import sealed_receipt
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
    lease_request,
    opened_ledger,
    sealed,
    signer,
    statement,
)

PRICE = 250_000
"""Of an hour of one unit, as `lease_request` has it."""
DAY = 24 * HOUR


class Owner:
    """An owner's ledger, its policy, and what would come from elsewhere."""

    def __init__(
        self,
        newcomer: Money | None = None,
        *,
        billing: int = DAY,
        rails: tuple[PublicKey, ...] = (),
    ) -> None:
        self.ledger: Ledger = opened_ledger()
        self.time = at(0)
        self.trust = 0
        self.meter: dict[Digest, int] = {}
        self.over: dict[Digest, None] = {}
        self.line = CreditLine(
            ledger=self.ledger,
            terms=Terms(billing_ms=MillisSpan(billing), newcomer=newcomer, rails=rails),
            credit=self.credit,
            metered=lambda lease: Micros(self.meter.get(lease, 0)),
            is_over=lambda lease: lease in self.over,
            clock=self,
        )

    def now(self) -> Millis:
        return self.time

    def credit(self, renter: PublicKey, money: str) -> int:
        assert (renter, money) == (RENTER.public, "USD")
        return self.trust

    def refuses(self, request: LeaseRequest) -> str | None:
        return self.line.refusal(request, RENTER.public)

    def is_late(self) -> bool:
        debt = self.line.debt(RENTER.public, "USD")
        assert debt is not None
        return self.line.is_late(debt)

    def owe(self, amount: int, *, paid: int = 0, ctr: int = 1) -> None:
        """Both have signed so much, and so much of it is paid."""
        said = Statement(
            peer=RENTER.public,
            ctr=ctr,
            used_ms=MillisSpan(1),
            amount_micro=Micros(amount),
            money="USD",
            paid_micro=Micros(paid) if paid else UNSET,
        )
        half = self.ledger.append(said, self.time)
        renter = Feed(RENTER)
        entries = [renter.open(), renter.add(statement(OWNER, ctr=0, used=0))]
        answer = replace(said, peer=OWNER.public, half=half.id)
        for entry in (*entries, renter.add(answer)):
            self.ledger.ingest(entry.raw)


def hours(count: int, *, unit: bytes = UNIT, nonce: int = 0) -> LeaseRequest:
    return lease_request(((unit, 0),), end=1_000 + count * HOUR, nonce=nonce)


def test_a_stranger_may_owe_one_billing_period() -> None:
    owner = Owner()
    assert owner.refuses(hours(24)) is None
    # Of a longer lease one period can be owed before it is paid.
    assert owner.refuses(hours(24 * 60)) is None
    owner.ledger.grant(sealed(hours(24)), at(0))
    assert owner.refuses(hours(1, unit=UNIT2, nonce=1)) is not None


def test_what_is_paid_may_be_owed_again() -> None:
    owner = Owner(Money(Micros(PRICE), "USD"))
    owner.owe(PRICE)
    why = owner.refuses(hours(1))
    assert why == "would owe 0.50 USD, and may owe 0.25 USD"
    owner.ledger.append(
        Statement(
            peer=RENTER.public, ctr=2, used_ms=MillisSpan(1), amount_micro=Micros(PRICE),
            money="USD", paid_micro=Micros(PRICE),
        ),
        owner.time,
    )  # fmt: skip
    assert owner.refuses(hours(1)) is None


def test_trust_adds_to_what_a_newcomer_may_owe() -> None:
    owner = Owner(Money(Micros(PRICE), "USD"))
    assert owner.refuses(hours(2)) is not None
    owner.trust = PRICE
    assert owner.refuses(hours(2)) is None


def test_a_sum_in_other_money_is_no_credit() -> None:
    owner = Owner(Money(Micros(10**9), "EUR"))
    assert owner.refuses(hours(1)) is not None


def test_who_has_not_paid_for_too_long_gets_nothing_however_much_it_may_owe() -> None:
    owner = Owner(Money(Micros(10**9), "USD"))
    owner.owe(5)
    due = at(DAY + BUNDLE.overdue_epochs * BUNDLE.epoch_ms)
    owner.time = due
    assert not owner.is_late()
    assert owner.refuses(hours(1)) is None
    owner.time = Millis(due + 1)
    assert owner.is_late()
    assert owner.refuses(hours(1)) == "0.000005 USD have not been paid for too long"


def test_a_lease_ends_when_more_has_been_metered_than_may_be_owed() -> None:
    owner = Owner(billing=HOUR)
    granted = owner.ledger.grant(sealed(hours(3)), at(0))
    lease = owner.ledger.lease(granted.id)
    assert lease is not None
    owner.meter[granted.id] = PRICE
    assert not owner.line.is_enough(lease)
    owner.meter[granted.id] = PRICE + 1
    assert owner.line.is_enough(lease)
    owner.trust = 1
    assert not owner.line.is_enough(lease)


def test_what_a_renter_that_stays_away_has_not_signed_counts_until_it_is_claimed() -> None:
    owner = Owner(Money(Micros(PRICE), "USD"))
    granted = owner.ledger.grant(sealed(hours(3)), at(0))
    owner.time = at(HOUR)
    owner.ledger.release(granted.id, owner.time, at_ms=owner.time, reason="unpaid")
    owner.meter[granted.id] = PRICE
    why = owner.refuses(hours(1, unit=UNIT2, nonce=1))
    assert why == "would owe 0.50 USD, and may owe 0.25 USD"
    # Nothing more comes of it.
    owner.meter[granted.id] = 0
    assert owner.refuses(hours(1, unit=UNIT2, nonce=1)) is None


def test_money_of_a_test_network_is_never_at_risk() -> None:
    owner = Owner(Money(Micros(0), "TEST"))
    assert owner.refuses(replace(hours(24), money="TEST")) is None
    own = owner.line.refusal(hours(24), OWNER.public)
    assert own is None


def test_what_is_stated_of_a_lease_that_goes_on_is_owed_once() -> None:
    owner = Owner(billing=HOUR)
    granted = owner.ledger.grant(sealed(hours(3)), at(0))
    lease = owner.ledger.lease(granted.id)
    assert lease is not None
    bill = Statement(
        peer=RENTER.public, ctr=1, used_ms=MillisSpan(HOUR), amount_micro=Micros(PRICE),
        money="USD", lease=granted.id, tick=Digest(bytes(32)),
    )  # fmt: skip
    owner.ledger.append(bill, owner.time)
    owner.meter[granted.id] = PRICE
    assert not owner.line.is_enough(lease)
    owner.meter[granted.id] = PRICE + 1
    assert owner.line.is_enough(lease)
    paid = replace(bill, ctr=2, lease=UNSET, tick=UNSET, paid_micro=Micros(PRICE))
    owner.ledger.append(paid, owner.time)
    assert not owner.line.is_enough(lease)
    # The rest of a lease that goes on can still come to be owed; once its job is over it cannot.
    assert owner.refuses(hours(1, unit=UNIT2, nonce=1)) is not None
    owner.over[granted.id] = None
    assert owner.refuses(hours(1, unit=UNIT2, nonce=1)) is None


RAIL = signer(9)


def held(lease: Digest, amount: int = 100_000, **changes: Any) -> bytes:
    """A hold of the renter's money for us, by RAIL, which is over at 5,000."""
    fields = {
        "lease": lease,
        "amount_micro": Micros(amount),
        "expires_ms": at(5_000),
        "simulated": UNSET,
        **changes,
    }
    return sealed_receipt(**fields)


def with_hold(rails: tuple[PublicKey, ...] = (RAIL.public,)) -> tuple[Owner, Digest, int]:
    """An owner with a lease, and what its renter may owe without any hold."""
    owner = Owner(rails=rails)
    lease = owner.ledger.grant(sealed(hours(1)), at(0)).id
    return owner, lease, owner.line.limit(RENTER.public, hours(1))


def limit(owner: Owner) -> int:
    return owner.line.limit(RENTER.public, hours(1))


def test_a_live_hold_of_a_trusted_rail_adds_to_what_a_renter_may_owe() -> None:
    owner, lease, before = with_hold()
    tell(owner.ledger, held(lease), at(0))
    assert limit(owner) == before + 100_000
    owner.time = at(4_999)
    assert limit(owner) == before + 100_000
    owner.time = at(5_000)
    assert limit(owner) == before


def test_it_counts_whoever_of_the_two_tells_of_it_and_once() -> None:
    owner, lease, before = with_hold()
    renter = Feed(RENTER)
    owner.ledger.ingest(renter.open().raw)
    owner.ledger.ingest(renter.add(RailHold(receipt=held(lease))).raw)
    assert limit(owner) == before + 100_000
    tell(owner.ledger, held(lease), at(0))
    assert limit(owner) == before + 100_000


def test_a_hold_counts_as_far_as_its_lease_can_cost() -> None:
    owner, lease, before = with_hold()
    tell(owner.ledger, held(lease, 10 * PRICE), at(0))
    assert limit(owner) == before + PRICE


def test_a_hold_for_a_lease_that_is_over_counts_what_is_stated_of_it_and_not_paid() -> None:
    owner, lease, before = with_hold()
    tell(owner.ledger, held(lease, PRICE), at(0))
    assert limit(owner) == before + PRICE
    owner.time = at(2_000)
    owner.over[lease] = None
    owner.meter[lease] = 70
    assert limit(owner) == before + 70
    consent_to_end(owner, lease)
    bill = Statement(
        peer=RENTER.public, ctr=1, used_ms=MillisSpan(1_000), amount_micro=Micros(70),
        money="USD", lease=lease, tick=Digest(bytes(32)),
    )  # fmt: skip
    assert limit(owner) == before
    owner.ledger.append(bill, owner.time)
    assert limit(owner) == before + 70
    paid = replace(bill, ctr=2, lease=UNSET, tick=UNSET, paid_micro=Micros(30))
    owner.ledger.append(paid, owner.time)
    assert limit(owner) == before + 40
    owner.ledger.append(replace(paid, ctr=3, paid_micro=Micros(70)), owner.time)
    assert limit(owner) == before


def consent_to_end(owner: Owner, lease: Digest) -> None:
    """The renter lets the units go now."""
    known = owner.ledger.lease(lease)
    assert known is not None
    units = tuple((each.unit, each.ctr) for each in known.request.units)
    consent = RENTER.sign("release-consent", NET, consent_bytes(lease, units, owner.time))
    owner.ledger.release(lease, owner.time, at_ms=owner.time, reason="consent", consent=consent)


@pytest.mark.parametrize(
    "changes",
    [
        {"simulated": "yes"},
        {"money": "EUR"},
        {"payer": STRANGER.public},
        {"payer": OWNER.public, "payee": RENTER.public},
        {"lease": Digest(bytes(32))},
    ],
    ids=["simulated", "other money", "another payer", "the other way", "another lease"],
)
def test_other_holds_count_nothing(changes: dict[str, Any]) -> None:
    owner, lease, before = with_hold()
    tell(owner.ledger, held(changes.pop("lease", lease), **changes), at(0))
    assert limit(owner) == before


def test_a_rail_that_the_owner_does_not_trust_counts_nothing() -> None:
    owner, lease, before = with_hold(rails=(STRANGER.public,))
    tell(owner.ledger, held(lease), at(0))
    assert limit(owner) == before


@pytest.mark.parametrize("act", ["capture", "void"])
def test_a_hold_that_has_ended_counts_nothing(act: str) -> None:
    owner, lease, before = with_hold()
    raw = held(lease)
    tell(owner.ledger, raw, at(0))
    hold = unpack(raw, NET, RailReceipt).digest
    tell(owner.ledger, held(lease, act=act, hold=hold), at(0))
    assert limit(owner) == before
