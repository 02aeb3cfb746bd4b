"""A8, A9, A13 and A16: what an author sealed outside its feed, held against it."""

import pytest

from ledger.evidence import check
from ledger.message_evidence import (
    BROKEN_BID,
    FALSE_TIME,
    prove_bad_reveal,
    prove_broken_bid,
    prove_cosigned_twice,
    prove_false_time,
)
from protocol.errors import PeerFault
from protocol.lease import UnitTurn
from protocol.units import Digest
from protocol.wire import pack
from tests.make_evidence import (
    bid,
    changed,
    commit,
    cosign,
    digest_of,
    feed,
    leased,
    reveal,
    sealed_bid,
    sealed_tick,
    signed_cosign,
    tick,
    void,
)
from tests.make_ledger import NET, OWNER, RENTER, STRANGER, UNIT, UNIT2, at, statement

SALT = bytes(16)


def test_a8_a_firm_bid_whose_turn_went_to_somebody_else() -> None:
    _, granted, _ = leased()
    offence = check(prove_broken_bid(sealed_bid(), granted), NET)
    assert (offence.rule, offence.offender) == ("A8", OWNER.public)
    assert offence.key[:1] == BROKEN_BID
    assert len(offence.key) == 33


@pytest.mark.parametrize(
    "fields",
    [
        {"renter": RENTER.public},
        {"units": (UnitTurn(unit=UNIT, ctr=1),)},
        {"units": (UnitTurn(unit=UNIT2, ctr=0),)},
        {"valid_until_ms": at(-1), "issued_ms": at(-9)},
        {"issued_ms": at(1)},
    ],
)
def test_a8_bids_that_were_kept_or_promised_something_else(fields: dict[str, object]) -> None:
    _, granted, _ = leased()
    void(prove_broken_bid(sealed_bid(**fields), granted))


def test_a8_a_bid_that_is_not_exclusive_or_not_the_owners() -> None:
    by, granted, _ = leased()
    shared = changed(bid())
    plain = {name: getattr(shared, name) for name in shared.__struct_fields__}
    plain.pop("exclusive")
    void(prove_broken_bid(pack(type(shared)(**plain), signer=OWNER, net=NET), granted))
    void(prove_broken_bid(pack(bid(), signer=STRANGER, net=NET), granted))
    void(prove_broken_bid(sealed_bid(), by.add(statement())))
    void(prove_broken_bid(sealed_tick(tick(granted.id)), granted), "seal.kind")


def test_a9_what_is_shown_is_not_what_was_hidden() -> None:
    committed = commit(SALT, b"one")
    named = digest_of(committed)
    assert check(prove_bad_reveal(committed, reveal(named, SALT, b"two")), NET).rule == "A9"
    other_salt = b"another-16-bytes"
    assert check(prove_bad_reveal(committed, reveal(named, other_salt, b"one")), NET).rule == "A9"
    void(prove_bad_reveal(committed, reveal(named, SALT, b"one")))
    void(prove_bad_reveal(committed, reveal(Digest(bytes(32)), SALT, b"two")))
    void(prove_bad_reveal(committed, reveal(named, SALT, b"two", by=STRANGER)))


def test_a13_a_witness_that_signs_two_grants_of_one_turn() -> None:
    one, other = signed_cosign(cosign(b"1" * 32)), signed_cosign(cosign(b"2" * 32))
    raw = prove_cosigned_twice(STRANGER.public, one, other)
    assert raw == prove_cosigned_twice(STRANGER.public, other, one)
    assert check(raw, NET).offender == STRANGER.public
    void(prove_cosigned_twice(STRANGER.public, one, one))
    void(prove_cosigned_twice(RENTER.public, one, other), "evidence.seal")
    later = signed_cosign(cosign(b"2" * 32, ctr=1))
    void(prove_cosigned_twice(STRANGER.public, one, later))
    same = signed_cosign(changed(cosign(b"1" * 32), at_ms=at(6)))
    void(prove_cosigned_twice(STRANGER.public, one, same))


def test_a16_a_tick_gives_the_lie_to_an_entry_and_an_entry_to_a_tick() -> None:
    by = feed()
    by.ts = 1_000
    one = by.add(statement())
    lease = one.id

    def judged(at_ms: int, height: int) -> str | None:
        raw = prove_false_time(sealed_tick(tick(lease, at_ms=at_ms, height=height)), one)
        try:
            offence = check(raw, NET)
        except PeerFault as fault:
            return fault.rule
        assert offence.key == FALSE_TIME + bytes(7) + b"\x01"
        return offence.rule

    # The entry stands at place 1 and says 1,000.
    assert judged(at_ms=999, height=1) == "A16"
    assert judged(at_ms=1_000, height=1) == "evidence.void"
    assert judged(at_ms=1_000, height=0) == "evidence.void"
    assert judged(at_ms=1_001, height=0) == "A16"
    assert judged(at_ms=999, height=0) == "evidence.void"
    assert judged(at_ms=1_001, height=1) == "evidence.void"


def test_a16_a_bid_counts_only_against_what_was_written_before_it() -> None:
    """Nobody keeps the bids it made, so time may run back over one in a crash."""
    by = feed()
    by.ts = 1_000
    one = by.add(statement())
    before = sealed_bid(head_seq=1, issued_ms=at(999), valid_until_ms=at(2_000))
    assert check(prove_false_time(before, one), NET).rule == "A16"
    void(prove_false_time(sealed_bid(head_seq=0, issued_ms=at(1_500)), one))


def test_a16_two_authors_or_another_message_prove_nothing() -> None:
    _, granted, _ = leased()
    void(prove_false_time(sealed_tick(tick(granted.id, at_ms=-1), by=STRANGER), granted))
    void(prove_false_time(commit(SALT, b""), granted), "seal.kind")
