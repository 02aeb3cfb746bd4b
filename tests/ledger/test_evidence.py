from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.bodies import Grant, encode_body
from ledger.entry import Entry, seal
from ledger.evidence import check
from ledger.fork_evidence import FORK, TwoHeaders, prove_fork
from ledger.limits import EVIDENCE_BYTES_MAX
from ledger.unit_evidence import (
    OVERLAP,
    SAME_COUNTER,
    OneEntry,
    TwoEntries,
    prove_bad_turn,
    prove_same_counter,
)
from protocol.codec import encode, encode_plain
from protocol.errors import PeerFault
from protocol.units import NetId, Signature
from tests.make_evidence import void
from tests.make_ledger import (
    HOUR,
    NET,
    OWNER,
    STRANGER,
    UNIT,
    UNIT2,
    Feed,
    grant,
    release,
    statement,
    turn_of,
)


def feed() -> Feed:
    new = Feed(OWNER)
    new.open()
    return new


def headers(rule: int, one: Entry, other: Entry) -> bytes:
    return encode(
        TwoHeaders(
            rule,  # type: ignore[arg-type]
            one.draft.hdr,
            one.signature,
            other.draft.hdr,
            other.signature,
        )
    )


def forked() -> tuple[Entry, Entry]:
    by = feed()
    other = by.branch()
    return by.add(statement(used=1)), other.add(statement(used=2))


def test_a1_two_entries_at_one_place() -> None:
    one, other = forked()
    raw = prove_fork(one, other)
    assert raw is not None
    assert raw == prove_fork(other, one)
    assert len(raw) <= 400
    offence = check(raw, NET)
    assert (offence.rule, offence.offender, offence.key) == ("A1", OWNER.public, FORK)
    assert offence.seq == 1


def test_a1_honest_neighbours_prove_nothing() -> None:
    by = feed()
    one, other = by.add(statement()), by.add(statement(ctr=1))
    assert prove_fork(one, other) is None
    assert prove_fork(one, one) is None
    void(headers(1, one, other))
    void(headers(1, one, one))
    void(headers(1, *sorted(forked(), key=lambda entry: entry.draft.hdr, reverse=True)))
    stranger = Feed(STRANGER)
    stranger.open()
    theirs = stranger.add(statement())
    assert prove_fork(one, theirs) is None
    void(headers(1, one, theirs))


def test_a_second_signature_over_one_header_proves_nothing() -> None:
    one, _ = forked()
    resigned = msgspec.structs.replace(one, signature=Signature(bytes(64)))
    assert prove_fork(one, resigned) is None
    void(headers(1, one, one))
    void(headers(1, one, resigned), "evidence.seal")


def test_a2_a_link_to_another_entry() -> None:
    by = feed()
    other = by.branch()
    one = by.add(statement(used=1))
    other.add(statement(used=2))
    after = other.add(statement(ctr=1))
    raw = prove_fork(after, one)
    assert raw is not None
    assert check(raw, NET) == replace(check(raw, NET), rule="A2", key=FORK, seq=1)


def test_a2_honest_neighbours_prove_nothing() -> None:
    by = feed()
    first = by.add(statement())
    second, third = by.add(statement(ctr=1)), by.add(statement(ctr=2))
    assert prove_fork(first, third) is None
    void(headers(2, first, second))
    void(headers(2, second, first))
    void(headers(2, first, third))


def test_evidence_holds_in_its_own_network_only() -> None:
    raw = prove_fork(*forked())
    assert raw is not None
    with pytest.raises(PeerFault, match=r"evidence\.seal"):
        check(raw, NetId(bytes(32)))


def twice() -> tuple[Entry, Entry]:
    """Two grants of one turn, one after the other in one feed that is not forked."""
    by = feed()
    return by.add(grant()), by.add(grant(start=2 * HOUR, end=3 * HOUR, nonce=1))


def test_a4_one_counter_twice() -> None:
    raw = prove_same_counter(UNIT, *twice())
    assert raw == prove_same_counter(UNIT, *reversed(twice()))
    offence = check(raw, NET)
    assert (offence.rule, offence.offender, offence.seq) == ("A4", OWNER.public, None)
    assert offence.key == SAME_COUNTER + UNIT + bytes(8)


def test_a4_a_grant_and_a_release_of_one_counter() -> None:
    by = feed()
    first = grant()
    granted = by.add(first)
    turn = turn_of(granted, first)
    one = by.add(grant(turn, start=2 * HOUR, end=3 * HOUR))
    other = by.add(release(turn, granted))
    assert check(prove_same_counter(UNIT, one, other), NET).key.endswith(b"\x01")


def test_a4_honest_neighbours_prove_nothing() -> None:
    one, other = chain()
    void(prove_same_counter(UNIT, one, other))
    void(prove_same_counter(UNIT, one, one))
    first, second = sorted(twice(), key=lambda entry: entry.draft.hdr)
    void(encode(TwoEntries(4, UNIT, second.raw, first.raw)))
    void(prove_same_counter(UNIT2, *twice()))
    stranger = Feed(STRANGER)
    stranger.open()
    void(prove_same_counter(UNIT, first, stranger.add(grant())))


def test_a4_needs_whole_and_signed_entries() -> None:
    one, other = twice()
    forged = seal(other.draft, signer=STRANGER, net=NET)
    void(prove_same_counter(UNIT, one, forged), "entry.seal")
    swapped = msgspec.structs.replace(
        other, draft=msgspec.structs.replace(other.draft, body=one.draft.body)
    )
    void(prove_same_counter(UNIT, one, swapped), "entry.body")
    by = feed()
    void(prove_same_counter(UNIT, by.add(statement()), by.add(statement(ctr=1))))


def chain(**second: object) -> tuple[Entry, Entry]:
    """Two grants of a unit that follow each other; `second` changes the second."""
    by = feed()
    first = grant()
    granted = by.add(first)
    fields: dict[str, object] = {"start": 2 * HOUR, "end": 3 * HOUR, **second}
    return granted, by.add(grant(turn_of(granted, first), **fields))  # type: ignore[arg-type]


def test_a5_overlapping_leases() -> None:
    _, overlapping = chain(start=2_000)
    offence = check(prove_bad_turn(UNIT, overlapping), NET)
    assert (offence.rule, offence.offender) == ("A5", OWNER.public)
    assert offence.key == OVERLAP + UNIT + bytes(7) + b"\x01"


def test_a5_a_lease_left_out() -> None:
    before, hiding = chain(start=2_000, opens=((2_000, 3 * HOUR, 1),))
    void(prove_bad_turn(UNIT, hiding))
    assert check(prove_bad_turn(UNIT, before, hiding), NET).rule == "A5"


def test_a5_a_first_turn_with_a_lease_that_nobody_granted() -> None:
    made_up = feed().add(grant(opens=((500, 600, 0), (1_000, 1_000 + HOUR, 0))))
    assert check(prove_bad_turn(UNIT, made_up), NET).key == OVERLAP + UNIT + bytes(8)


def test_a5_a_release_that_frees_more_than_it_ends() -> None:
    by = feed()
    body = grant()
    granted = by.add(body)
    turn = turn_of(granted, body)
    honest = by.branch().add(release(turn, granted, at_ms=2_000))
    void(prove_bad_turn(UNIT, granted, honest))
    freeing = by.add(release(turn, granted, at_ms=2_000, opens=()))
    assert check(prove_bad_turn(UNIT, granted, freeing), NET).rule == "A5"


def test_a5_honest_neighbours_prove_nothing() -> None:
    one, other = chain()
    void(prove_bad_turn(UNIT, one))
    void(prove_bad_turn(UNIT, other))
    void(prove_bad_turn(UNIT, one, other))
    void(prove_bad_turn(UNIT, other, one))
    void(prove_bad_turn(UNIT, one, one))
    _, touching = chain(start=1_000 + HOUR)
    void(prove_bad_turn(UNIT, touching))
    stranger = Feed(STRANGER)
    stranger.open()
    theirs = stranger.add(grant())
    void(prove_bad_turn(UNIT, theirs, other))


def test_a5_time_passing_ends_a_lease() -> None:
    by = feed()
    first = grant()
    granted = by.add(first)
    by.ts = 2 * HOUR
    later = by.add(grant(turn_of(granted, first), start=2 * HOUR, end=3 * HOUR, ts=2 * HOUR))
    void(prove_bad_turn(UNIT, granted, later))


@pytest.mark.parametrize(
    "raw",
    [
        encode_plain([]),
        encode_plain(1),
        encode_plain([3, b"", b""]),
        encode_plain([1, b"", bytes(64), b""]),
        encode_plain([True, b"", bytes(64), b"", bytes(64)]),
        encode_plain([4, UNIT, b""]),
        encode_plain([5, UNIT]),
        encode_plain([5, UNIT[:15], b""]),
        encode_plain({1: 2}),
    ],
)
def test_other_forms_are_refused(raw: bytes) -> None:
    void(raw, "evidence.form")


def test_longer_encodings_and_sizes_are_refused() -> None:
    raw = prove_fork(*forked())
    assert raw is not None
    void(raw[:1] + b"\x18\x01" + raw[2:], "evidence.form")
    void(raw + b"\0", "evidence.form")
    void(bytes(EVIDENCE_BYTES_MAX + 1), "evidence.size")


def proofs() -> list[bytes]:
    fork = prove_fork(*forked())
    assert fork is not None
    one, other = chain(start=2_000)
    return [
        fork,
        prove_same_counter(UNIT, *twice()),
        prove_bad_turn(UNIT, other),
        prove_bad_turn(UNIT, *chain(start=2_000, opens=((2_000, 3 * HOUR, 1),))),
        prove_bad_turn(UNIT, one),
    ]


@given(st.binary(max_size=200))
def test_checking_is_total(raw: bytes) -> None:
    with pytest.raises(PeerFault):
        check(raw, NET)


@given(st.data())
def test_changed_evidence_accuses_nobody_else(data: st.DataObject) -> None:
    raw = bytearray(data.draw(st.sampled_from(PROOFS)))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        offence = check(bytes(raw), NET)
    except PeerFault:
        return
    assert offence.offender == OWNER.public


PROOFS = proofs()


def test_the_largest_pair_fits() -> None:
    one, other = twice()
    body = msgspec.structs.replace(grant(), request=bytes(3_600))
    assert isinstance(body, Grant)
    assert len(encode_body(body)) > 3_600
    assert len(encode(TwoEntries(4, UNIT, one.raw, other.raw))) < EVIDENCE_BYTES_MAX
    assert len(encode(OneEntry(5, UNIT, one.raw))) < EVIDENCE_BYTES_MAX
