"""A6 and A7: broken chains, and leases that end before their time."""

import pytest
from msgspec import UNSET

from ledger.bodies import Grant, Release
from ledger.entry import Entry
from ledger.evidence import check
from ledger.unit_evidence import (
    BROKEN_CHAIN,
    EARLY_RELEASE,
    prove_broken_chain,
    prove_early_release,
)
from protocol.errors import PeerFault
from protocol.lease import LeaseRequest
from protocol.units import Digest
from tests.make_evidence import changed, consent, ended, feed, leased, sealed_tick, tick, void
from tests.make_ledger import (
    HOUR,
    NET,
    RENTER,
    STRANGER,
    UNIT,
    UNIT2,
    at,
    grant,
    lease_request,
    statement,
    turn_of,
)


def second(granted: Entry, body: Grant, **fields: object) -> Grant:
    """The GRANT that follows, with this in its turn otherwise."""
    following = grant(turn_of(granted, body), start=2 * HOUR, end=3 * HOUR, nonce=1)
    return changed(following, units=(changed(following.units[0], **fields),))


@pytest.mark.parametrize(
    "fields", [{"gprev": Digest(b"x" * 32)}, {"gseq": 2}, {"gseq": 2, "gprev": Digest(b"x" * 32)}]
)
def test_a6_a_turn_that_names_another_predecessor(fields: dict[str, object]) -> None:
    by, granted, body = leased()
    by.add(statement())
    after = by.add(second(granted, body, **fields))
    offence = check(prove_broken_chain(UNIT, granted, after), NET)
    assert (offence.rule, offence.key) == ("A6", BROKEN_CHAIN + UNIT + bytes(7) + b"\x01")


def test_a6_the_entry_named_is_not_about_the_unit() -> None:
    by, granted, body = leased()
    other = by.add(statement())
    after = by.add(second(granted, body, gseq=other.seq, gprev=other.id))
    assert check(prove_broken_chain(UNIT, other, after), NET).rule == "A6"


def test_a6_time_that_runs_back_within_a_chain() -> None:
    by = feed()
    body = grant(ts=0)
    granted = by.add(body, ts=500)
    after = by.add(second(granted, body), ts=0)
    assert check(prove_broken_chain(UNIT, granted, after), NET).rule == "A6"


def test_a6_honest_neighbours_prove_nothing() -> None:
    by, granted, body = leased()
    other = by.add(statement())
    after_body = second(granted, body)
    after = by.add(after_body)
    void(prove_broken_chain(UNIT, granted, after))
    void(prove_broken_chain(UNIT, other, after))
    void(prove_broken_chain(UNIT, after, granted))
    void(prove_broken_chain(UNIT, granted, granted))
    void(prove_broken_chain(UNIT2, granted, after))
    third = by.add(grant(turn_of(after, after_body), start=4 * HOUR, end=5 * HOUR, nonce=2))
    void(prove_broken_chain(UNIT, granted, third))
    stranger = feed(STRANGER)
    void(prove_broken_chain(UNIT, stranger.add(statement()), after))


def judged(
    release: dict[str, object],
    *,
    request: LeaseRequest | None = None,
    used: int | None = None,
    ts: int = 0,
) -> bool:
    """Whether this RELEASE of a lease from 1,000 on is proved to be without right."""
    by, granted, body = leased(request)
    if release.get("reason") == "consent" and "consent" not in release:
        release = {**release, "consent": consent(granted.id, 2_000)}
    freed = by.add(ended(granted, body, **release), ts=ts)
    message = None if used is None else sealed_tick(tick(granted.id, used=used))
    try:
        offence = check(prove_early_release(granted, freed, message), NET)
    except PeerFault as fault:
        if fault.rule != "evidence.void":
            raise
        return False
    assert (offence.rule, offence.key) == ("A7", EARLY_RELEASE + UNIT + bytes(7) + b"\x01")
    return True


def with_job() -> LeaseRequest:
    return changed(lease_request(), job=Digest(b"j" * 32))


def with_tier(tier: str) -> LeaseRequest:
    return changed(lease_request(), tier=tier)


def test_a7_the_end_of_a_lease_is_not_before_its_time() -> None:
    assert judged({"reason": "end"})
    assert judged({"reason": "end", "at_ms": at(1_000 + HOUR - 1)})
    assert not judged({"reason": "end", "at_ms": at(1_000 + HOUR)})


def test_a7_consent_is_the_renters_for_this_lease_and_time() -> None:
    assert not judged({"reason": "consent"})
    assert judged({"reason": "consent", "at_ms": at(1_999)})
    strangers = STRANGER.sign("release-consent", NET, b"")
    assert judged({"reason": "consent", "consent": strangers})


def test_a7_bronze_is_taken_back_after_notice_and_nothing_else_is() -> None:
    warned = {"reason": "preempted", "at_ms": at(30_000)}
    assert not judged(warned)
    assert judged(warned, ts=1)
    assert judged(warned, request=with_tier("silver"))
    assert judged(warned, request=with_tier("gold"))
    assert not judged(warned, used=29_000)
    assert judged(warned, used=29_001)


def test_a7_a_lease_without_a_job_lapses_after_its_time_and_not_before() -> None:
    lapsed = {"reason": "lapsed", "at_ms": at(61_000)}
    assert not judged(lapsed, ts=61_000)
    assert judged(lapsed, ts=60_999)
    assert judged({"reason": "lapsed", "at_ms": at(60_999)}, ts=61_000)
    assert judged(lapsed, ts=61_000, request=with_job())
    assert judged(lapsed, ts=61_000, used=0)


def test_a7_unpaid_is_contradicted_by_use_that_was_metered_later() -> None:
    assert not judged({"reason": "unpaid"})
    assert not judged({"reason": "unpaid"}, used=1_000)
    assert judged({"reason": "unpaid"}, used=1_001)


def test_a7_a_release_that_names_one_lease_and_frees_another() -> None:
    by, granted, body = leased()
    other_body = second(granted, body)
    other = by.add(other_body)
    turn = turn_of(other, other_body)
    named = ended(other, other_body, grant=granted.id, at_ms=at(1_000 + HOUR))
    assert named.units[0].lctr == 0
    mixed = changed(named, units=(changed(named.units[0], lctr=1),))
    freed = by.add(mixed)
    assert check(prove_early_release(granted, freed), NET).rule == "A7"
    assert check(prove_early_release(other, freed), NET).rule == "A7"
    right = by.branch().add(changed(named, grant=other.id, units=mixed.units, at_ms=at(3 * HOUR)))
    void(prove_early_release(other, right))
    void(prove_early_release(granted, right))
    assert turn.ctr == 1


def test_a7_other_entries_and_other_owners_prove_nothing() -> None:
    by, granted, body = leased()
    freed = by.add(ended(granted, body, reason="end"))
    void(prove_early_release(freed, granted))
    void(prove_early_release(granted, granted))
    theirs = feed(STRANGER).add(ended(granted, body, reason="end"))
    void(prove_early_release(granted, theirs))
    void(prove_early_release(granted, freed, sealed_tick(tick(granted.id), by=RENTER)))
    void(prove_early_release(granted, freed, sealed_tick(tick(Digest(bytes(32))))))
    void(prove_early_release(granted, freed, b""), "codec.form")


def test_a_release_without_units_of_the_lease_is_judged_by_name() -> None:
    by, granted, body = leased()
    good = ended(granted, body)
    stray = changed(good, units=(changed(good.units[0], unit=UNIT2),))
    assert isinstance(stray, Release)
    assert stray.consent is UNSET
    assert check(prove_early_release(granted, by.add(stray)), NET).rule == "A7"
