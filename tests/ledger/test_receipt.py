"""A receipt proves a lease and what is owed for it; altered in any part it proves nothing."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ledger.receipt import RECEIPT_BYTES_MAX, check_receipt
from protocol.codec import encode
from protocol.errors import PeerFault
from protocol.lease import charge
from protocol.units import NetId
from tests.ledger_vectors import FOLDER
from tests.make_ledger import NET, OWNER, RENTER, lease_request
from tests.make_receipt import PRICE, USED, altered, cosign, sealed_tick, story, tick, unsettled

STORY = story()
ALTERED = altered(STORY)
UNSETTLED = unsettled(STORY)
CASES = json.loads((FOLDER / "receipts.json").read_text())


def refused(raw: bytes, net: NetId = NET) -> str:
    with pytest.raises(PeerFault) as caught:
        check_receipt(raw, net)
    return caught.value.rule


def test_a_whole_receipt_says_who_owes_whom_what() -> None:
    proven = check_receipt(encode(STORY.receipt()), NET)
    assert proven.lease == STORY.granted.id
    assert (proven.owner, proven.renter) == (OWNER.public, RENTER.public)
    assert proven.request == lease_request()
    assert (proven.used_ms, proven.amount_micro) == (USED, charge(USED, PRICE))
    assert proven.outcome.cause == "exit"
    assert proven.is_settled


@pytest.mark.parametrize("name", ALTERED)
def test_a_receipt_with_one_part_altered_is_refused(name: str) -> None:
    receipt, rule = ALTERED[name]
    assert refused(encode(receipt)) == rule


@pytest.mark.parametrize("name", UNSETTLED)
def test_what_was_never_signed_leaves_a_receipt_unsettled(name: str) -> None:
    proven = check_receipt(encode(UNSETTLED[name]), NET)
    assert not proven.is_settled
    is_cosigned = "tick" not in name and "cosign" not in name
    assert proven.amount_micro == (charge(USED, PRICE) if is_cosigned else 0)
    assert proven.used_ms == (USED if is_cosigned else 0)


def test_a_cosign_without_its_tick_counts_for_nothing() -> None:
    lone = replace(UNSETTLED["no halves and no tick"], cosign=cosign(tick(STORY.granted.id)))
    assert check_receipt(encode(lone), NET).amount_micro == 0


def test_an_earlier_tick_proves_less() -> None:
    early = tick(STORY.granted.id, n=1, used_ms=1_000)
    receipt = replace(UNSETTLED["no halves"], tick=sealed_tick(early), cosign=cosign(early))
    assert check_receipt(encode(receipt), NET).amount_micro == charge(early.used_ms, PRICE)


def test_a_receipt_is_of_one_network() -> None:
    assert refused(encode(STORY.receipt()), NetId(bytes(32))) == "entry.seal"


def test_a_receipt_that_is_too_long_is_not_parsed() -> None:
    assert refused(bytes(RECEIPT_BYTES_MAX + 1)) == "codec.size"


WHOLE = encode(STORY.receipt())


@settings(max_examples=50)
@given(place=st.integers(0, len(WHOLE) - 1), flip=st.integers(1, 255))
def test_no_altered_byte_goes_unseen(place: int, flip: int) -> None:
    raw = WHOLE[:place] + bytes([WHOLE[place] ^ flip]) + WHOLE[place + 1 :]
    refused(raw)


@pytest.mark.parametrize("case", CASES["cases"], ids=lambda case: case["name"])
def test_receipts_are_judged_as_the_vectors_say(case: dict[str, Any]) -> None:
    raw, net = bytes.fromhex(case["bytes"]), NetId(bytes.fromhex(CASES["net"]))
    if case["rule"] is not None:
        assert refused(raw, net) == case["rule"]
        return
    proven = check_receipt(raw, net)
    assert proven.lease.hex() == case["lease"]
    assert (proven.owner.hex(), proven.renter.hex()) == (case["owner"], case["renter"])
    assert (proven.used_ms, proven.amount_micro) == (case["used_ms"], case["amount_micro"])
    assert proven.is_settled is case["is_settled"]
