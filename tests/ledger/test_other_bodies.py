"""Kinds beside leases and accounts: each rule, the smallest change that breaks it."""

import pytest
from msgspec import UNSET

from ledger.bodies import Body, encode_body, kind_of, read_body
from ledger.capability_bodies import CapacityUnit, Challenge, RowAnswer
from ledger.continuity_bodies import RulesSignal, UnitRow
from ledger.limits import BODY_BYTES_MAX, CAPACITY_UNITS_MAX, COSIGNS_MAX
from ledger.rail_bodies import RailCapture, RailHold, RailVoid
from ledger.validity import check_body
from ledger.witness_bodies import Cosign, CosignLog
from protocol.codec import encode
from protocol.errors import PeerFault
from protocol.limits import COSIGN_BYTES_MAX
from protocol.units import Digest, PublicKey
from tests.make_evidence import (
    DEVICE,
    LEASE,
    SEED,
    answer,
    capacity,
    changed,
    claim,
    cosign,
    feed,
    past,
    probe,
    sealed_receipt,
    successor,
)
from tests.make_ledger import NET, OWNER, RENTER, STRANGER, UNIT, UNIT2, at, certificate


def refusal(body: Body) -> str | None:
    """The rule that refuses this body in OWNER's feed, after three entries; None if none does."""
    by = past().feed
    draft = by.draft(body)
    assert read_body(draft) == body
    try:
        check_body(body, draft.header, NET)
    except PeerFault as fault:
        return fault.rule
    return None


GOOD: list[Body] = [
    capacity(),
    claim(),
    Challenge(claim=LEASE, seed=SEED),
    answer(feed().add(claim())),
    CosignLog(items=(cosign(b"1" * 32), cosign(b"2" * 32, ctr=1))),
    probe(),
    RailHold(receipt=sealed_receipt()),
    RailCapture(receipt=sealed_receipt(act="capture", hold=DEVICE)),
    RailVoid(receipt=sealed_receipt(act="void", hold=DEVICE)),
    past().checkpoint(),
    successor(),
    RulesSignal(bundle=SEED),
]


@pytest.mark.parametrize("body", GOOD, ids=lambda body: type(body).__name__)
def test_each_kind_is_read_as_it_was_written(body: Body) -> None:
    assert refusal(body) is None
    assert len(encode_body(body)) <= BODY_BYTES_MAX


def test_kinds_have_the_numbers_of_the_specification() -> None:
    numbers = [kind_of(body) for body in GOOD]
    assert numbers == [2, 30, 31, 32, 40, 41, 50, 51, 52, 60, 61, 70]


def two_units(second: CapacityUnit) -> Body:
    return changed(capacity(), units=(*capacity().units, second))


CHECKPOINT = past().checkpoint()
UNIT_ROW, ACCOUNT_ROW = CHECKPOINT.units[0], CHECKPOINT.accounts[0]


def with_rows(*rows: UnitRow) -> Body:
    return changed(CHECKPOINT, units=rows)


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        (two_units(CapacityUnit(UNIT, SEED, "card", 1)), "capacity.units"),
        (two_units(CapacityUnit(UNIT2, DEVICE, "card", 1)), "capacity.units"),
        (changed(GOOD[3], rows=(RowAnswer(1, SEED), RowAnswer(1, DEVICE))), "response.rows"),
        (CosignLog(items=(cosign(b"1" * 32), cosign(b"2" * 32))), "cosign.twice"),
        (RailHold(receipt=sealed_receipt(act="void", hold=DEVICE)), "rail.act"),
        (RailVoid(receipt=sealed_receipt(act="capture", hold=DEVICE)), "rail.act"),
        (RailHold(receipt=sealed_receipt(hold=DEVICE)), "rail.hold"),
        (RailCapture(receipt=sealed_receipt(act="capture")), "rail.hold"),
        (RailHold(receipt=sealed_receipt(expires_ms=at(0))), "rail.span"),
        (RailHold(receipt=sealed_receipt(payer=OWNER.public)), "rail.parties"),
        (RailHold(receipt=sealed_receipt(payee=STRANGER.public)), "rail.parties"),
        (RailHold(receipt=b"\xff"), "codec.form"),
        (changed(CHECKPOINT, upto=3), "checkpoint.place"),
        (changed(CHECKPOINT, start=b"a", stop=b"a", units=(), accounts=()), "checkpoint.range"),
        (with_rows(UNIT_ROW, UNIT_ROW), "checkpoint.rows"),
        (with_rows(changed(UNIT_ROW, unit=UNIT2), UNIT_ROW), "checkpoint.rows"),
        (changed(CHECKPOINT, start=b"b"), "checkpoint.rows"),
        (changed(CHECKPOINT, stop=b"b"), "checkpoint.rows"),
        (with_rows(changed(UNIT_ROW, seq=3)), "checkpoint.rows"),
        (changed(CHECKPOINT, accounts=(changed(ACCOUNT_ROW, seq=3),)), "checkpoint.rows"),
        (successor(OWNER), "successor.feed"),
        (successor(into=STRANGER), "successor.seal"),
        (successor(at_ms=at(1)), "successor.seal"),
        (successor(certificate=certificate(STRANGER)), "successor.seal"),
        (successor(certificate=b"\xff"), "codec.form"),
    ],
)
def test_each_rule_has_a_smallest_breach(body: Body, rule: str) -> None:
    assert refusal(body) == rule


def test_a_successor_names_each_unit_once() -> None:
    said = successor()
    assert refusal(changed(said, units=said.units * 2)) == "successor.units"


def test_the_payer_may_tell_of_a_hold_too() -> None:
    assert (
        refusal(RailHold(receipt=sealed_receipt(payer=OWNER.public, payee=RENTER.public))) is None
    )


def test_the_largest_bodies_fit() -> None:
    unit = CapacityUnit(UNIT, DEVICE, "m" * 64, 2**62)
    many = changed(capacity(), units=(unit,) * CAPACITY_UNITS_MAX)
    assert len(encode_body(many)) <= BODY_BYTES_MAX
    one = Cosign(PublicKey(bytes(32)), UNIT, 2**62, Digest(bytes(32)), at(2**61))
    assert len(encode(one)) <= COSIGN_BYTES_MAX
    assert len(encode_body(CosignLog(items=(one,) * COSIGNS_MAX))) <= BODY_BYTES_MAX
    assert CHECKPOINT.stop is UNSET
