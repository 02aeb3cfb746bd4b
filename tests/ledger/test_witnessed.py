"""Cosignatures in the record: who has signed, who has signed twice, and how many can have."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.bodies import Accept, Grant
from ledger.entry import Entry
from ledger.evidence import check
from ledger.ledger import Ledger
from protocol.lease import witnesses_fault
from protocol.signing import Signer
from protocol.units import PublicKey
from tests.make_ledger import (
    NET,
    OWNER,
    RENTER,
    STRANGER,
    WITNESSES,
    Feed,
    at,
    cosigned,
    grant,
    lease_request,
    opened_ledger,
    signer,
    witnessed,
)


def opened(by: Signer) -> Feed:
    feed = Feed(by)
    feed.open()
    return feed


def two_grants(of: tuple[Signer, ...] = WITNESSES, quorum: int = 2) -> list[tuple[Entry, Grant]]:
    """An owner's two GRANTs of one turn, in two branches."""
    named = tuple(each.public for each in of)
    feed = opened(OWNER)
    bodies = [witnessed(grant(nonce=n), of=named, quorum=quorum) for n in (0, 1)]
    return [(feed.branch().add(body), body) for body in bodies]


def replica(*entries: Entry) -> Ledger:
    """A ledger of a bystander into which these come, with the entries 0 of their feeds."""
    ledger = opened_ledger(signer(9))
    for opener in {entry.feed: None for entry in entries}:
        by = next(s for s in (OWNER, RENTER, STRANGER, *WITNESSES) if s.public == opener)
        ledger.ingest(Feed(by).open().raw)
    for entry in entries:
        ledger.ingest(entry.raw)
    return ledger


def accepted(of: tuple[Entry, Grant], by: Signer, *witnesses: Signer) -> Entry:
    granted, body = of
    shown = cosigned(granted, body, by=witnesses)
    return opened(by).add(Accept(grant=granted.id, cosigned=shown))


def test_a_lease_is_cosigned_by_those_of_its_witnesses_whom_its_renter_shows() -> None:
    one, _ = two_grants()
    first, second, _ = WITNESSES
    ledger = replica(one[0], accepted(one, RENTER, first, second))
    assert ledger.state.witnessed(one[0].id) == tuple(sorted((first.public, second.public)))
    assert ledger.verify().broken is None


def test_what_strangers_sign_or_show_counts_nothing() -> None:
    one, _ = two_grants()
    ledger = replica(one[0], accepted(one, RENTER, STRANGER))
    assert ledger.state.witnessed(one[0].id) == ()
    ledger = replica(one[0], accepted(one, STRANGER, *WITNESSES))
    assert ledger.state.witnessed(one[0].id) == ()


def test_a_witness_that_signs_two_grants_of_a_turn_is_exposed_by_the_two_acceptances() -> None:
    one, other = two_grants()
    first, second, third = WITNESSES
    entries = (accepted(one, RENTER, first, second), accepted(other, STRANGER, second, third))
    for order in (entries, entries[::-1]):
        ledger = replica(*order)
        (offence,) = ledger.offences()
        assert (offence.rule, offence.offender) == ("A13", second.public)


def test_two_signatures_for_one_grant_at_two_times_are_no_offence() -> None:
    (granted, body), _ = two_grants()
    feed = opened(RENTER)
    accepts = [
        feed.add(Accept(grant=granted.id, cosigned=cosigned(granted, body, at_ms=ms)))
        for ms in (5, 6)
    ]
    assert replica(granted, *accepts).offences() == []


def test_our_own_acceptance_is_written_though_a_witness_in_it_signed_twice() -> None:
    one, other = two_grants()
    mine = opened_ledger(RENTER)
    theirs = Feed(STRANGER)
    mine.ingest(theirs.open().raw)
    shown = cosigned(*other)
    mine.ingest(theirs.add(Accept(grant=other[0].id, cosigned=shown)).raw)
    entry = mine.accept(one[0].id, at(0), cosigned=cosigned(*one))
    assert mine.accept(one[0].id, at(1)) == entry
    assert mine.verify().broken is None


@given(st.data())
def test_both_grants_get_a_quorum_only_if_more_than_f_witnesses_sign_twice(
    data: st.DataObject,
) -> None:
    """With t > (n + f) / 2, whoever signs: and each that signed twice is exposed."""
    n = data.draw(st.integers(1, 8))
    quorum = data.draw(st.integers(n // 2 + 1, n))
    f = 2 * quorum - n - 1  # the most liars that this quorum bears
    names = tuple(signer(number) for number in range(30, 30 + n))
    subsets = st.lists(st.sampled_from(names), unique=True, min_size=quorum)
    ours, theirs = data.draw(subsets), data.draw(subsets)
    twice = [each.public for each in ours if each in theirs]
    assert 2 * quorum > n + f
    assert len(twice) > f
    one, other = two_grants(names, quorum)
    ledger = replica(accepted(one, RENTER, *ours), accepted(other, STRANGER, *theirs))
    exposed = [each.offender for each in ledger.offences() if each.rule == "A13"]
    assert sorted(exposed) == sorted(twice)
    assert all(check(raw, NET).rule == "A13" for raw in ledger.evidence())


@pytest.mark.parametrize("n", range(1, 9))
def test_a_quorum_that_is_allowed_always_has_a_witness_in_common_with_another(n: int) -> None:
    names: tuple[PublicKey, ...] = tuple(signer(number).public for number in range(30, 30 + n))
    for quorum in range(1, n + 1):
        request = lease_request(witnesses=names, quorum=quorum)
        pairs = combinations(combinations(range(n), quorum), 2)
        is_safe = all(set(one) & set(other) for one, other in pairs)
        is_alone = 2 * quorum > n
        assert (witnesses_fault(request, RENTER.public) is None) == is_alone
        assert is_safe or not is_alone
