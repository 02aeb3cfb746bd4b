"""A receipt proves a lease and what is owed for it; altered in any part it proves nothing."""

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from ledger.limits import RECEIPT_BYTES_MAX
from ledger.receipt import check_receipt, net_named_by
from p2pnode.receipt_check import verify_receipt
from protocol.codec import encode
from protocol.errors import LocalFault, PeerFault
from protocol.lease import charge
from protocol.units import Micros, NetId
from tests.ledger_vectors import FOLDER
from tests.make_ledger import NET, OWNER, RENTER, lease_request
from tests.make_receipt import PRICE, USED, altered, cosign, sealed_tick, story, tick, unsettled

STORY = story()
ALTERED = altered(STORY)
UNSETTLED = unsettled(STORY)
WHOLE = encode(STORY.receipt())
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


def test_a_cosign_without_its_tick_is_refused() -> None:
    lone = replace(UNSETTLED["no halves and no tick"], cosign=cosign(tick(STORY.granted.id)))
    assert refused(encode(lone)) == "receipt.cosign"


def test_a_tick_without_cosign_counts_for_nothing_and_is_judged() -> None:
    lone = UNSETTLED["no halves and no cosign"]
    assert not check_receipt(encode(lone), NET).is_metered
    dear = tick(STORY.granted.id, amount_micro=Micros(1))
    assert refused(encode(replace(lone, tick=sealed_tick(dear)))) == "receipt.amount"
    theirs = sealed_tick(tick(STORY.granted.id), by=RENTER)
    assert refused(encode(replace(lone, tick=theirs))) == "receipt.tick"


@pytest.mark.parametrize("side", ["owner_half", "renter_half"])
def test_a_lone_half_is_judged(side: str) -> None:
    lone = UNSETTLED["no halves"]
    of_other = {"owner_half": STORY.owners, "renter_half": STORY.renters}[side](
        lease=STORY.other.id
    )
    assert refused(encode(replace(lone, **{side: of_other}))) == "receipt.half"
    assert refused(encode(replace(lone, **{side: STORY.granted.raw}))) == "receipt.half"


def test_a_receipt_of_another_version_is_told_from_a_damaged_one() -> None:
    assert WHOLE[:4] == bytes([0xAA]) + b"\x61v\x01"
    assert refused(WHOLE[:3] + b"\x02" + WHOLE[4:]) == "receipt.version"


def test_a_receipt_names_its_network() -> None:
    assert net_named_by(WHOLE) == NET


def test_an_earlier_tick_proves_less() -> None:
    early = tick(STORY.granted.id, n=1, used_ms=1_000)
    receipt = replace(UNSETTLED["no halves"], tick=sealed_tick(early), cosign=cosign(early))
    assert check_receipt(encode(receipt), NET).amount_micro == charge(early.used_ms, PRICE)


def test_a_receipt_is_of_one_network() -> None:
    assert refused(encode(STORY.receipt()), NetId(bytes(32))) == "entry.seal"


def test_a_receipt_that_is_too_long_is_not_parsed() -> None:
    assert refused(bytes(RECEIPT_BYTES_MAX + 1)) == "codec.size"


def mutations(raw: bytes, count: int) -> Iterator[tuple[int, int]]:
    """Places and new values of one byte, each once: every place, each bit of it, and any value."""
    drawn = random.Random(raw)
    seen = {(place, raw[place]) for place in range(len(raw))}
    while len(seen) < len(raw) + count:
        place = len(seen) % len(raw)
        flips = (1 << drawn.randrange(8), drawn.randrange(1, 256))
        change = (place, raw[place] ^ drawn.choice(flips))
        if change not in seen:
            seen.add(change)
            yield change


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "count"), [("whole", 10_000), *((name, 400) for name in UNSETTLED)]
)
def test_no_altered_byte_goes_unseen(name: str, count: int) -> None:
    whole = WHOLE if name == "whole" else encode(UNSETTLED[name])
    check_receipt(whole, NET)
    tried = 0
    for place, value in mutations(whole, count):
        with pytest.raises(PeerFault):
            check_receipt(whole[:place] + bytes([value]) + whole[place + 1 :], NET)
        tried += 1
    assert tried == count


@pytest.mark.slow
def test_no_altered_byte_goes_unseen_where_the_file_itself_names_the_network() -> None:
    """As `p2pnode receipt verify` without `--network`: of which it is, is altered too."""
    assert verify_receipt(WHOLE, None).network.id == NET.hex()
    of_network = [place for place in range(len(WHOLE)) if WHOLE.startswith(NET, place)]
    assert len(of_network) >= 2
    changes = random.Random(WHOLE).sample(list(mutations(WHOLE, 2 * len(WHOLE))), 1_000)
    changes += [(at + n, WHOLE[at + n] ^ 1) for at in of_network for n in range(len(NET))]
    for place, value in changes:
        with pytest.raises(LocalFault, match=r"does not hold|not known here"):
            verify_receipt(WHOLE[:place] + bytes([value]) + WHOLE[place + 1 :], None)


def test_no_shortened_or_lengthened_receipt_holds() -> None:
    for size in range(len(WHOLE)):
        refused(WHOLE[:size])
    for byte in range(256):
        refused(WHOLE + bytes([byte]))


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
    assert [each.hex() for each in proven.witnesses] == case["witnesses"]
    assert proven.is_witnessed is case["is_witnessed"]
