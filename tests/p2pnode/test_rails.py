"""The test rail: holds once, pays once and on proof alone, and says that it is simulated."""

from typing import Any

import pytest
from msgspec import UNSET

from p2pnode.cabinet import MemoryCabinet
from p2pnode.rails import Basis, HoldOrder, Proved, Settled, TestRail, tell
from protocol.codec import encode
from protocol.errors import LocalFault, PeerFault
from protocol.rail import RailReceipt
from protocol.units import Digest, Micros, PublicKey
from protocol.wire import unpack
from tests.make_desk import Clock
from tests.make_evidence import proofs
from tests.make_ledger import HOUR, NET, OWNER, RENTER, STRANGER, at, opened_ledger, signer
from tests.make_receipt import story

STORY = story()
LEASE = STORY.granted.id
SETTLED = Settled(receipt=encode(STORY.receipt()))
COST = 41_667
"""Ten minutes at a quarter an hour."""


class Stand:
    """A rail with a hold of 50,000 for the lease, until two hours."""

    def __init__(self, *, held: bool = True) -> None:
        self.cabinet, self.clock = MemoryCabinet(), Clock(at(0))
        self.rail = self.revived()
        if held:
            self.hold()

    def revived(self) -> TestRail:
        """The rail after a restart."""
        return TestRail(signer=signer(9), net=NET, cabinet=self.cabinet, clock=self.clock)

    def hold(self, **changes: Any) -> bytes:
        fields: dict[str, Any] = {
            "lease": LEASE,
            "payer": RENTER.public,
            "payee": OWNER.public,
            "amount": Micros(50_000),
            "money": "USD",
            "expires_ms": at(2 * HOUR),
            **changes,
        }
        return self.rail.hold(HoldOrder(**fields), by=fields["payer"])

    def capture(
        self, amount: int = COST, basis: Basis = SETTLED, *, by: PublicKey = OWNER.public
    ) -> bytes:
        return self.rail.capture(LEASE, Micros(amount), basis, by=by)

    def void(self, *, by: PublicKey = OWNER.public) -> bytes:
        return self.rail.void(LEASE, by=by)


def read(raw: bytes) -> RailReceipt:
    return unpack(raw, NET, RailReceipt).body


def test_every_receipt_says_that_it_is_simulated() -> None:
    stand = Stand()
    held, captured = stand.hold(), stand.capture()
    other = Stand()
    for raw in (held, captured, other.void()):
        assert (read(raw).rail, read(raw).simulated) == ("test", "yes")
    hold = unpack(held, NET, RailReceipt)
    assert hold.signer == stand.rail.key
    assert (read(captured).hold, read(captured).amount_micro) == (hold.digest, COST)


def test_an_act_that_is_repeated_gives_the_same_receipt_after_a_restart_too() -> None:
    stand = Stand()
    held = stand.hold()
    stand.clock.at, stand.rail = at(HOUR), stand.revived()
    assert stand.hold() == held
    captured = stand.capture()
    stand.clock.at, stand.rail = at(3 * HOUR), stand.revived()
    assert stand.capture() == captured
    voiding = Stand()
    voided = voiding.void()
    voiding.clock.at, voiding.rail = at(HOUR), voiding.revived()
    assert voiding.void() == voided


def test_a_lease_has_one_hold() -> None:
    stand = Stand()
    for changes in ({"amount": Micros(50_001)}, {"expires_ms": at(HOUR)}, {"money": "EUR"}):
        with pytest.raises(LocalFault, match="another hold"):
            stand.hold(**changes)


def test_a_hold_is_of_the_payers_own_money_of_something_and_for_some_time() -> None:
    stand = Stand(held=False)
    order = HoldOrder(
        lease=LEASE,
        payer=RENTER.public,
        payee=OWNER.public,
        amount=Micros(1),
        money="USD",
        expires_ms=at(1),
    )
    with pytest.raises(LocalFault, match="Only the payer"):
        stand.rail.hold(order, by=OWNER.public)
    for changes in ({"amount": Micros(0)}, {"expires_ms": at(0)}):
        with pytest.raises(LocalFault, match="for some time"):
            stand.hold(**changes)
    with pytest.raises(PeerFault, match=r"rail\.parties"):
        stand.hold(payee=RENTER.public)
    assert stand.cabinet.names("rail") == []


@pytest.mark.parametrize("amount", [0, COST + 1, 50_001])
def test_no_more_is_captured_than_both_have_signed(amount: int) -> None:
    with pytest.raises(LocalFault, match=f"{COST} micro-USD can be captured"):
        Stand().capture(amount)


def test_no_more_is_captured_than_is_held() -> None:
    stand = Stand(held=False)
    stand.hold(amount=Micros(10))
    with pytest.raises(LocalFault, match="10 micro-USD can be captured"):
        stand.capture(11)
    assert read(stand.capture(10)).amount_micro == 10


def test_a_hold_is_captured_once() -> None:
    stand = Stand()
    stand.capture(5)
    with pytest.raises(LocalFault, match="ended already"):
        stand.capture(6)
    with pytest.raises(LocalFault, match="ended already"):
        stand.void()


def test_nothing_is_captured_of_a_hold_that_is_over_or_void() -> None:
    stand = Stand()
    stand.clock.at = at(2 * HOUR)
    with pytest.raises(LocalFault, match="expired"):
        stand.capture()
    other = Stand()
    other.void()
    with pytest.raises(LocalFault, match="ended already"):
        other.capture()
    with pytest.raises(LocalFault, match="Nothing is held"):
        Stand(held=False).capture()


def test_a_receipt_that_is_not_settled_or_of_another_lease_pays_nothing() -> None:
    unsettled = STORY.receipt(owner_half=UNSET, renter_half=UNSET)
    with pytest.raises(LocalFault, match="lacks a half"):
        Stand().capture(1, Settled(receipt=encode(unsettled)))
    stand = Stand(held=False)
    stand.hold(lease=Digest(bytes(32)))
    with pytest.raises(LocalFault, match="another lease"):
        stand.rail.capture(Digest(bytes(32)), Micros(1), SETTLED, by=OWNER.public)
    with pytest.raises(PeerFault):
        Stand().capture(1, Settled(receipt=b"nothing"))


def test_proof_against_the_payer_pays_all_that_is_held_and_other_proof_nothing() -> None:
    against_owner, against_stranger = proofs()["A1"], proofs()["A13"]
    for evidence in (against_owner, against_stranger):
        with pytest.raises(LocalFault, match="not against the payer"):
            Stand().capture(1, Proved(evidence=evidence))
    with pytest.raises(PeerFault):
        Stand().capture(1, Proved(evidence=b"nothing"))
    stand = Stand(held=False)
    stand.hold(payer=STRANGER.public)
    assert read(stand.capture(50_000, Proved(evidence=against_stranger))).amount_micro == 50_000


def test_only_the_payee_captures_and_lets_go_until_the_hold_is_over() -> None:
    stand = Stand()
    for by in (RENTER.public, STRANGER.public):
        with pytest.raises(LocalFault, match="Only the payee"):
            stand.capture(by=by)
        with pytest.raises(LocalFault, match="Only the payee"):
            stand.void(by=by)
    stand.clock.at = at(2 * HOUR)
    assert read(stand.void(by=RENTER.public)).act == "void"


def test_a_rail_whose_disk_fails_hands_nothing_out() -> None:
    class Full(MemoryCabinet):
        def put(self, name: str, record: bytes) -> None:  # noqa: ARG002
            raise LocalFault("no room", "make room")

    stand = Stand(held=False)
    stand.cabinet = Full()
    stand.rail = stand.revived()
    with pytest.raises(LocalFault, match="no room"):
        stand.hold()


def test_either_party_tells_the_ledger_and_a_stranger_cannot() -> None:
    stand = Stand()
    for by in (OWNER, RENTER):
        ledger = opened_ledger(by)
        for raw in (stand.hold(), stand.capture()):
            tell(ledger, raw, at(0))
        assert [each.act for each in ledger.state.rail_told(LEASE)].count("capture") == 1
    with pytest.raises(PeerFault, match=r"rail\.parties"):
        tell(opened_ledger(STRANGER), stand.hold(), at(0))
