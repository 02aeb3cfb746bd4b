from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from ledger.bodies import (
    ACCEPT,
    GRANT,
    RELEASE,
    STATEMENT,
    Accept,
    Body,
    Genesis,
    GrantTurn,
    Release,
    consent_bytes,
    encode_body,
    kind_of,
    read_body,
    requested,
)
from ledger.entry import Entry
from ledger.intervals import Interval
from ledger.limits import BODY_BYTES_MAX, INTERVAL_BYTES_MAX, TURN_BYTES_MAX
from ledger.validity import check_body, is_consented
from ledger.witness_bodies import Cosigned, CosignedTurn, Cosigning
from protocol.codec import encode, encode_plain
from protocol.errors import PeerFault
from protocol.units import Digest, Millis, NetId, PublicKey, Signature
from tests.make_ledger import (
    HOUR,
    NET,
    OWNER,
    RENTER,
    STRANGER,
    THREE,
    UNIT,
    UNIT2,
    Feed,
    at,
    certificate,
    cosigned,
    genesis,
    grant,
    lease_request,
    release,
    sealed,
    statement,
    turn_of,
    witnessed,
)

replace = msgspec.structs.replace


def feed() -> Feed:
    new = Feed(OWNER)
    new.open()
    return new


def judge(body: Body, *, ts: int = 0) -> None:
    by = Feed(OWNER) if isinstance(body, Genesis) else feed()
    draft = by.draft(body, ts=ts)
    check_body(read_body(draft), draft.header, NET)


def refused(body: Body, rule: str, *, ts: int = 0) -> None:
    with pytest.raises(PeerFault) as caught:
        judge(body, ts=ts)
    assert caught.value.rule == rule


def a_release() -> tuple[Release, Entry]:
    by = feed()
    granted = by.add(grant())
    return release(turn_of(granted, grant()), granted), granted


def all_bodies() -> list[Body]:
    return [genesis(OWNER), grant(), a_release()[0], Accept(grant=Digest(bytes(32))), statement()]


def test_every_body_is_read_back_as_it_was_written() -> None:
    kinds = []
    for body in all_bodies():
        by = feed()
        assert read_body(by.draft(body)) == body
        kinds.append(kind_of(body))
    assert kinds == [0, GRANT, RELEASE, ACCEPT, STATEMENT]


def test_valid_bodies_hold() -> None:
    for body in (genesis(OWNER), grant(), Accept(grant=Digest(bytes(32))), statement()):
        judge(body)
    by = feed()
    granted = by.add(grant())
    draft = by.draft(release(turn_of(granted, grant()), granted))
    check_body(read_body(draft), draft.header, NET)


def test_a_body_has_integer_keys() -> None:
    assert encode_body(Accept(grant=Digest(bytes(32)))) == b"\xa1\x00\x58\x20" + bytes(32)


@pytest.mark.parametrize(
    ("raw", "rule"),
    [
        (encode_plain({"0": bytes(32)}), "codec.form"),
        (encode_plain({1: bytes(32)}), "codec.shape"),
        (encode_plain({0: bytes(31)}), "codec.shape"),
        (encode_plain({0: bytes(32), 1: 1}), "codec.shape"),
        (encode_plain([bytes(32)]), "codec.shape"),
        (b"\xa1\x18\x00\x58\x20" + bytes(32), "codec.form"),
        (b"\xa1\x00\xf6", "codec.shape"),
        (b"\xa1\x00", "codec.form"),
    ],
)
def test_other_encodings_of_a_known_kind_are_refused(raw: bytes, rule: str) -> None:
    with pytest.raises(PeerFault) as caught:
        read_body(feed().draft_raw(ACCEPT, raw))
    assert caught.value.rule == rule


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return {0: value}


@pytest.mark.parametrize(
    "plain",
    [{}, {23: 2**63 - 1}, {0: b"", 1: "text", 2: [{0: 0}]}, nested(4)],
)
def test_an_unknown_kind_is_kept_unread(plain: object) -> None:
    draft = feed().draft_raw(77, encode_plain(plain))
    assert read_body(draft) is None
    check_body(None, draft.header, NET)


@pytest.mark.parametrize(
    "raw",
    [
        encode_plain({24: 1}),
        encode_plain({0: -1}),
        encode_plain({0: 2**63}),
        encode_plain({0: True}),
        encode_plain({0: None}),
        encode_plain({0: "\xe9"}),
        encode_plain({0: 1.5}),
        encode_plain({"0": 1}),
        encode_plain({True: 1}),
        encode_plain({b"0": 1}),
        encode_plain({0: {24: 1}}),
        encode_plain(nested(5)),
        encode_plain([1]),
        encode_plain(1),
        b"\xa1\x18\x00\x01",
        b"\xa2\x01\x00\x00\x00",
    ],
)
def test_an_unknown_kind_keeps_to_the_subset(raw: bytes) -> None:
    with pytest.raises(PeerFault, match=r"body\.form"):
        read_body(feed().draft_raw(77, raw))


@given(st.binary(min_size=1, max_size=80), st.sampled_from([0, 10, 11, 12, 20, 77]))
def test_any_body_is_read_or_a_fault(raw: bytes, kind: int) -> None:
    try:
        body = read_body(feed().draft_raw(kind, raw))
    except PeerFault:
        return
    assert body is None or encode_body(body) == raw


PLAIN = st.recursive(
    st.integers(0, 2**63 - 1) | st.binary(max_size=8) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.integers(0, 30), inner, max_size=3)
    ),
    max_leaves=8,
)


def is_subset(value: object, room: int = 5) -> bool:
    """As SPEC.md says it, in the plainest way."""
    if isinstance(value, dict):
        keys = all(key <= 23 for key in value)
        return keys and room > 0 and all(is_subset(each, room - 1) for each in value.values())
    if isinstance(value, list):
        return room > 0 and all(is_subset(each, room - 1) for each in value)
    return not isinstance(value, str) or value.isascii()


@given(st.dictionaries(st.integers(0, 30), PLAIN, max_size=3))
def test_canonical_maps_of_an_unknown_kind_are_judged_by_content(plain: object) -> None:
    draft = feed().draft_raw(77, encode_plain(plain))
    if is_subset(plain):
        assert read_body(draft) is None
    else:
        with pytest.raises(PeerFault):
            read_body(draft)


def test_a_genesis_carries_a_certificate_of_its_feed_in_force() -> None:
    refused(replace(genesis(OWNER), certificate=certificate(STRANGER)), "genesis.feed")
    refused(genesis(OWNER), "certificate.time", ts=-1_001)
    other = certificate(OWNER, net=NetId(bytes(32)))
    refused(replace(genesis(OWNER), certificate=other), "certificate.net")


def with_turn(**fields: object) -> Body:
    body = grant()
    return replace(body, units=(replace(body.units[0], **fields),))


def test_a_grant_is_within_its_interval() -> None:
    judge(grant(start=0))
    refused(grant(start=0), "grant.interval", ts=1)
    refused(grant(start=1_000, end=1_000, opens=()), "grant.interval")
    refused(replace(grant(), end_ms=at(HOUR)), "grant.open")
    shorter = grant(opens=((1_000, HOUR, 0),))
    refused(replace(shorter, end_ms=at(HOUR)), "grant.interval")
    refused(grant(opens=()), "grant.open")


def test_a_grant_embeds_a_request_that_agrees_with_it() -> None:
    judge(grant(), ts=1_000)
    cases = {
        "grant.owner": sealed(lease_request(owner=STRANGER)),
        "grant.units": sealed(lease_request(((UNIT2, 0),))),
        "grant.interval": sealed(lease_request(start=999)),
        "grant.late": sealed(lease_request(issued=-2_001)),
        "seal.bad": sealed(lease_request(), net=NetId(bytes(32))),
        "codec.form": b"\xff",
    }
    for rule, request in cases.items():
        refused(replace(grant(), request=request), rule)
    judge(replace(grant(), request=sealed(lease_request(issued=-2_000))))
    refused(with_turn(ctr=1, gseq=0), "turn.chain")


def test_a_units_turn_points_back() -> None:
    by = feed()
    by.add(statement())
    good = grant(turn_of(by.add(grant()), grant()), start=2 * HOUR, end=3 * HOUR)
    draft = by.draft(good)
    check_body(good, draft.header, NET)
    refused(good, "turn.chain")
    refused(with_turn(gseq=1), "turn.chain")
    refused(with_turn(gprev=Digest(b"p" * 32)), "turn.chain")
    twice = replace(grant(), units=(grant().units[0], grant().units[0]))
    refused(twice, "turn.units")


@pytest.mark.parametrize(
    "opens",
    [
        ((1_000, 1_000 + HOUR, 0), (500, 600, 0)),
        ((500, 500, 0), (1_000, 1_000 + HOUR, 0)),
        ((-5, 0, 0), (1_000, 1_000 + HOUR, 0)),
        ((500, 600, 1), (1_000, 1_000 + HOUR, 0)),
    ],
    ids=["unsorted", "empty", "over", "of a later turn"],
)
def test_open_intervals_are_in_form(opens: tuple[tuple[int, int, int], ...]) -> None:
    refused(grant(opens=opens), "turn.open")


def test_a_grant_names_the_witnesses_that_its_request_names_and_no_others() -> None:
    good = witnessed(grant())
    judge(good)
    refused(replace(good, witnesses=THREE[:2]), "grant.witness")
    refused(replace(good, quorum=3), "grant.witness")
    refused(replace(good, witnesses=UNSET, quorum=UNSET), "grant.witness")
    refused(replace(grant(), witnesses=THREE, quorum=2), "grant.witness")


def test_a_quorum_is_more_than_half_of_witnesses_that_are_no_parties() -> None:
    one = THREE[0]
    judge(witnessed(grant(), of=(one,), quorum=1))
    refused(witnessed(grant(), of=THREE[:2], quorum=1), "grant.witness")
    refused(witnessed(grant(), quorum=4), "grant.witness")
    refused(witnessed(grant(), of=(one, one)), "grant.witness")
    refused(witnessed(grant(), of=(OWNER.public,), quorum=1), "grant.witness")
    refused(witnessed(grant(), of=(RENTER.public,), quorum=1), "grant.witness")


def test_an_acceptance_shows_what_witnesses_signed_each_once_and_in_order() -> None:
    by = feed()
    body = witnessed(grant())
    granted = by.add(body)
    signed = cosigned(granted, body)

    def accept(by_whom: Cosigned) -> Accept:
        return Accept(grant=granted.id, cosigned=by_whom)

    def with_(*cosignings: Cosigning) -> Accept:
        return accept(replace_cosigned(signed, by=cosignings))

    one, two, three = signed.by
    judge(accept(signed))
    judge(with_(two))
    refused(with_(two, one), "accept.witness")
    refused(with_(one, one), "accept.witness")
    refused(with_(Cosigning(one.witness, one.at_ms, one.by * 2)), "accept.witness")
    refused(with_(Cosigning(one.witness, two.at_ms, two.by)), "accept.witness")
    refused(with_(Cosigning(three.witness, at(6), three.by)), "accept.witness")
    refused(Accept(grant=Digest(bytes(32)), cosigned=signed), "accept.witness")
    refused(accept(replace_cosigned(signed, turns=signed.turns * 2)), "accept.witness")
    refused(accept(replace_cosigned(signed, owner=STRANGER.public)), "accept.witness")


def replace_cosigned(of: Cosigned, **changes: Any) -> Cosigned:
    fields = {"owner": of.owner, "turns": of.turns, "by": of.by, **changes}
    return Cosigned(**fields)


def test_the_largest_acceptance_fits_its_bound() -> None:
    turn = CosignedTurn(UNIT, 2**62)
    one = Cosigning(OWNER.public, Millis(2**62), (Signature(bytes(64)),) * 8)
    largest = Accept(
        grant=Digest(bytes(32)), cosigned=Cosigned(OWNER.public, (turn,) * 8, (one,) * 8)
    )
    assert len(encode_body(largest)) <= BODY_BYTES_MAX


def test_a_release_ends_an_earlier_lease_and_carries_consent_if_it_says_so() -> None:
    good, granted = a_release()

    def judged(body: Release) -> None:
        by = feed()
        by.add(grant())
        draft = by.draft(body)
        check_body(body, draft.header, NET)

    judged(good)
    for body, rule in (
        (replace(good, units=(replace(good.units[0], lctr=1),)), "release.counter"),
        (replace(good, reason="consent"), "release.consent"),
        (replace(good, consent=granted.signature), "release.consent"),
    ):
        with pytest.raises(PeerFault) as caught:
            judged(body)
        assert caught.value.rule == rule
    judged(replace(good, reason="consent", consent=granted.signature))


def test_consent_is_the_renters_and_names_units_and_time() -> None:
    body, granted = a_release()
    signed = consent_bytes(granted.id, ((UNIT, 0),), body.at_ms)
    consent = RENTER.sign("release-consent", NET, signed)
    agreed = replace(body, reason="consent", consent=consent)
    assert is_consented(agreed, RENTER.public, NET)
    assert not is_consented(agreed, STRANGER.public, NET)
    assert not is_consented(replace(agreed, at_ms=at(1_999)), RENTER.public, NET)
    assert not is_consented(body, RENTER.public, NET)


def test_an_account_has_two_sides() -> None:
    refused(statement(OWNER), "statement.peer")


def test_a_grant_says_who_rents_and_for_what() -> None:
    renter, request = requested(grant())
    assert renter == RENTER.public
    assert request == lease_request()


def test_the_largest_grant_fits_its_bound() -> None:
    interval = Interval(at(2**60), at(2**61), 2**62)
    assert len(encode(interval)) <= INTERVAL_BYTES_MAX
    turn = GrantTurn(UNIT, 2**62, 2**62, Digest(bytes(32)), (interval,) * 16)
    assert len(encode(turn)) <= TURN_BYTES_MAX + 16 * INTERVAL_BYTES_MAX
    largest = replace(
        grant(),
        units=(turn,) * 8,
        request=bytes(3_600),
        witnesses=(PublicKey(bytes(32)),) * 8,
        quorum=8,
    )
    assert len(encode_body(largest)) <= BODY_BYTES_MAX
    assert largest.witnesses is not UNSET
