"""The rules that the model states by itself, A6 and A7, are the ledger's: compared one by one."""

from functools import cache
from itertools import product

import pytest
from msgspec import UNSET, structs

from ledger.bodies import Grant, GrantTurn, Release
from ledger.early_release import Freed, Leased, has_right, misnamed_turn
from ledger.entry import Draft, Entry, Header
from ledger.units_chain import breaks_chain
from protocol.units import Digest, Millis, MillisSpan, PublicKey, Signature
from tests.make_evidence import consent, tick
from tests.make_ledger import (
    NET,
    OWNER,
    STRANGER,
    Feed,
    at,
    grant,
    lease_request,
    release,
    sealed,
    turn_of,
)
from tests.model.model_entries import NO_ID, UNIT, Chain, ModelEntry, Place, Releasing
from tests.model.predicates import ALL, NO_TICK, Terms, accuses_place, is_named_once, is_right
from tests.model.search import Bound, clean_chains, places

NO_SIGNATURE = Signature(bytes(64))


@cache
def as_entry(seq: int, entry_id: Digest, ts: int) -> Entry:
    """An entry of which only this much is asked."""
    header = Header(
        v=1,
        feed=PublicKey(bytes(32)),
        seq=seq,
        prev=NO_ID,
        ts_ms=Millis(ts),
        kind=77,
        rules=bytes(8),
        body_hash=NO_ID,
        body_len=1,
    )
    return Entry(draft=Draft(header=header, hdr=b"", body=b"", id=entry_id), signature=NO_SIGNATURE)


def is_broken(chain: Chain, place: Place, ts: int) -> bool:
    """Whether the ledger finds A6 in a further turn with this place."""
    after = as_entry(len(chain) + 1, Digest(b"\xee" * 32), ts)
    turn = GrantTurn(UNIT, place.ctr, place.gseq, place.gprev, ())
    return any(
        breaks_chain(as_entry(each.seq, each.id, each.ts), each.body, after, turn) for each in chain
    )


@pytest.mark.slow
def test_a6_is_the_ledgers() -> None:
    count = broken = 0
    for chain in clean_chains(Bound(entries=3, end=2), ALL):
        counters = {each.turn.ctr for each in chain if each.body is not None}
        for place, ts in product(places(chain, 3, ALL), range(3)):
            if place.ctr in counters:
                continue  # That is A4.
            count += 1
            ours = any(accuses_place(each, place, ts, ALL) for each in chain)
            assert ours == is_broken(chain, place, ts), (chain, place, ts)
            broken += ours
    print(f"A6 compared on {count:,} turns, {broken:,} of them broken")  # noqa: T201
    assert 0 < broken < count > 10_000


START, END = 1, 3
REASONS = ("consent", "preempted", "lapsed", "unpaid", "end")


def leased(terms: Terms) -> Leased:
    """A lease from 1 to 3 with these terms, by its real entry and sealed request."""
    wanted = structs.replace(
        lease_request(start=START, end=END),
        tier="bronze" if terms.is_bronze else "silver",
        notice_ms=MillisSpan(terms.notice),
        lapse_ms=MillisSpan(terms.lapse),
        job=Digest(b"j" * 32) if terms.has_job else UNSET,
    )
    feed = Feed(OWNER)
    feed.open()
    body = structs.replace(grant(start=START, end=END), request=sealed(wanted))
    return Leased(entry=feed.add(body), grant=body)


def freed(lease: Leased, act: Releasing, signature: Signature | None) -> Freed:
    """The RELEASE that does this."""
    after = turn_of(lease.entry, lease.grant)
    body: Release = structs.replace(
        release(after, lease.entry, at_ms=act.at, lctr=act.lctr),
        reason=act.reason,
        consent=UNSET if signature is None else signature,
        grant=act.grant,
    )
    return Freed(entry=as_entry(2, Digest(b"\xee" * 32), at(act.ts)), release=body)


TERMS = [
    Terms(notice=notice, lapse=lapse, is_bronze=is_bronze, has_job=has_job)
    for notice, lapse, is_bronze, has_job in product((0, 1), (0, 1), (True, False), (True, False))
]


@pytest.mark.slow
@pytest.mark.parametrize("terms", TERMS, ids=str)
def test_a7_is_the_ledgers(terms: Terms) -> None:
    lease = leased(terms)
    granting = ModelEntry(id=lease.entry.id, seq=1, prev=NO_ID, ts=0, body=model_body())
    ticks = {NO_TICK: None} | {
        end: tick(lease.entry.id, used=end - START) for end in range(START + 1, END + 2)
    }
    allowed = count = 0
    for reason, end, ts, covered in product(REASONS, range(5), range(5), ticks):
        act = Releasing(ts=ts, at=end, grant=lease.entry.id, lctr=0, reason=reason)
        signature = consent(lease.entry.id, end) if reason == "consent" else None
        theirs = has_right(lease, freed(lease, act, signature), ticks[covered], NET)
        assert is_right(granting, act, covered, terms) == theirs, (act, covered)
        count, allowed = count + 1, allowed + theirs
    assert 0 < allowed < count


def test_a7_consent_is_the_renters_own_and_for_that_time() -> None:
    lease = leased(Terms())
    act = Releasing(ts=0, at=2, grant=lease.entry.id, lctr=0, reason="consent")
    for signature in (
        consent(lease.entry.id, 2, by=STRANGER),
        consent(lease.entry.id, 1),
        consent(Digest(bytes(32)), 2),
    ):
        assert not has_right(lease, freed(lease, act, signature), None, NET)


@pytest.mark.parametrize(("is_it", "lctr"), list(product((True, False), (0, 1))))
def test_a7_a_release_that_names_its_lease_by_half_is_found_by_both(is_it: bool, lctr: int) -> None:
    lease = leased(Terms())
    named = lease.entry.id if is_it else Digest(b"x" * 32)
    act = Releasing(ts=0, at=2, grant=named, lctr=lctr)
    granting = ModelEntry(id=lease.entry.id, seq=1, prev=NO_ID, ts=0, body=model_body())
    theirs = misnamed_turn(lease, freed(lease, act, None).release) is not None
    assert is_named_once(granting, act) == theirs == (is_it != (lctr == 0))


def model_body() -> Grant:
    """The same lease in the model's small times."""
    turn = GrantTurn(UNIT, 0, 0, NO_ID, ())
    return Grant(units=(turn,), start_ms=Millis(START), end_ms=Millis(END), request=b"")
