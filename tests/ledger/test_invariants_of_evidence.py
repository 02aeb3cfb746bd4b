"""Invariants I1 to I3: who is accused, and of what. The others are in `test_invariants`.

Machines of their own: I1 `test_author_machine`, I1 and I2 `tests/model`.
"""

from contextlib import suppress
from hashlib import sha512

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from nacl.bindings import (
    crypto_core_ed25519_scalar_add,
    crypto_core_ed25519_scalar_mul,
    crypto_core_ed25519_scalar_reduce,
    crypto_scalarmult_ed25519_base_noclamp,
)

from ledger.entry import Entry
from ledger.evidence import check
from ledger.fork_evidence import TwoHeaders, prove_fork
from ledger.guard import MemoryGuard
from ledger.ledger import Ledger, Taken
from ledger.store import MemoryStore
from ledger.unit_evidence import prove_bad_turn
from protocol.codec import encode
from protocol.errors import LocalFault, PeerFault
from protocol.signing import preimage
from protocol.units import Signature
from tests.make_ledger import (
    HOUR,
    NET,
    OWNER,
    STRANGER,
    UNIT,
    Feed,
    at,
    genesis,
    grant,
    ledger,
    opened_ledger,
    sealed_request,
    signer,
    statement,
    take,
    turn_of,
)
from tests.make_ledger_faults import Crash, FaultyGuard, FaultyStore, Fuse, copy_of


@pytest.mark.parametrize("is_rolled_back", [False, True], ids=["crash", "rollback"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("n", [1, 2])
def test_i1_an_honest_author_is_never_accused(n: int, after: bool, is_rolled_back: bool) -> None:
    store, guard, peer = MemoryStore(), MemoryGuard(), ledger(STRANGER)
    mine = ledger(OWNER, store=store, guard=guard)
    mine.append(genesis(OWNER), at(0))
    backup = copy_of(store)
    mine.grant(sealed_request(), at(0))
    fuse = Fuse(n, after=after)
    fragile = ledger(OWNER, store=FaultyStore(store, fuse), guard=FaultyGuard(guard, fuse))
    with pytest.raises(Crash):
        fragile.append(statement(used=1), at(0))
    for raw in store_entries(ledger(OWNER, store=store, guard=guard)):
        assert peer.ingest(raw) is Taken.NEW
    again = ledger(OWNER, store=backup if is_rolled_back else store, guard=guard)
    with suppress(LocalFault):  # Refused, if what was signed cannot be signed again as it was.
        again.append(statement(ctr=1, used=2), at(0))
    for raw in store_entries(peer):
        again.ingest(raw)
    again.append(statement(ctr=2, used=3), at(0))
    for raw in store_entries(again):
        peer.ingest(raw)
    assert peer.evidence() == again.evidence() == []
    assert peer.head(OWNER.public) == again.head(OWNER.public)


def store_entries(of: Ledger) -> list[bytes]:
    return list(of.entries(OWNER.public, 0, 100))


@settings(max_examples=50)
@given(
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)),
    st.integers(1, HOUR),
    st.integers(1, HOUR),
    st.booleans(),
)
def test_i2_two_leases_that_two_renters_hold_are_evidence_where_both_are(
    padding: tuple[int, int, int], start: int, length: int, is_second_turn: bool
) -> None:
    stem, left, right = padding
    feed = Feed(OWNER)
    below = [feed.open(), *(feed.add(statement(ctr=n, used=n)) for n in range(stem))]
    last = None
    if is_second_turn:
        first = grant(start=1, end=2)
        below.append(feed.add(first))
        last = turn_of(below[-1], first)
    other = feed.branch()
    shown = [feed.add(statement(ctr=9 + n, used=9)) for n in range(left)]
    shown.append(feed.add(grant(last, start=2, end=2 + HOUR)))
    hidden = [other.add(statement(ctr=19 + n, used=19)) for n in range(right)]
    hidden.append(other.add(grant(last, start=1 + start, end=1 + start + length, nonce=1)))
    assume(shown[-1].id != hidden[-1].id)
    renters = (ledger(signer(11)), ledger(signer(12)))
    for renter, branch in zip(renters, (shown, hidden), strict=True):
        assert set(take(renter, *below, *branch)) == {Taken.NEW}
        assert renter.evidence() == []
    take(renters[0], *hidden)
    take(renters[1], *shown)
    for renter in renters:
        assert {each.offender for each in renter.offences()} == {OWNER.public}
        assert "A4" in {each.rule for each in renter.offences()}


@pytest.mark.parametrize("used", range(20, 30))
def test_a_half_is_held_to_all_with_the_highest_counter(used: int) -> None:
    feed = Feed(OWNER)
    entries = [feed.open()]
    entries += [feed.add(statement(ctr=ctr, used=n)) for ctr, n in ((5, 10), (5, used), (6, 15))]
    other = Feed(OWNER)
    other.open()
    fork = other.add(statement(STRANGER))
    kept = []
    # With a known fork no entry is judged as one that only follows.
    for order in ([*entries, fork], [*entries[:3], fork, entries[3]]):
        here = opened_ledger(signer(9))
        take(here, *order)
        kept.append(here.evidence())
    assert kept[0] == kept[1]
    assert len(kept[0]) == 3


def forked() -> tuple[Entry, Entry]:
    feed = Feed(OWNER)
    feed.open()
    other = feed.branch()
    return feed.add(statement(used=1)), other.add(statement(used=2))


def signed_again(entry: Entry, nonce: bytes) -> Entry:
    """The same header with another signature, which holds too: its author chose another nonce."""
    hashed = bytearray(sha512(bytes([1]) * 32).digest()[:32])
    hashed[0] &= 248
    hashed[31] = (hashed[31] & 127) | 64
    message = preimage("entry", NET, entry.draft.hdr)
    secret_nonce = crypto_core_ed25519_scalar_reduce(sha512(nonce).digest())
    point = crypto_scalarmult_ed25519_base_noclamp(secret_nonce)
    challenge = crypto_core_ed25519_scalar_reduce(sha512(point + entry.feed + message).digest())
    key = crypto_core_ed25519_scalar_reduce(bytes(hashed) + bytes(32))
    product = crypto_core_ed25519_scalar_mul(challenge, key)
    proof = crypto_core_ed25519_scalar_add(secret_nonce, product)
    return Entry(draft=entry.draft, signature=Signature(point + proof))


@given(st.binary(min_size=1, max_size=8))
def test_i3_another_signature_over_one_header_changes_nothing(nonce: bytes) -> None:
    one, other = forked()
    twin = signed_again(one, nonce)
    assert twin.signature != one.signature
    here = opened_ledger(STRANGER)
    assert take(here, Feed(OWNER).open(), one, twin) == [Taken.NEW, Taken.NEW, Taken.KNOWN]
    assert prove_fork(one, twin) is None
    pair = TwoHeaders(1, one.draft.hdr, one.signature, twin.draft.hdr, twin.signature)
    with pytest.raises(PeerFault, match=r"evidence\.void"):
        check(encode(pair), NET)
    proofs = [prove_fork(each, other) for each in (one, twin)]
    assert proofs[0] != proofs[1]
    assert check(proofs[0] or b"", NET) == check(proofs[1] or b"", NET)


@given(st.data())
def test_i3_a_check_is_total_and_accuses_only_who_signed(data: st.DataObject) -> None:
    one, other = forked()
    overlapping = Feed(OWNER)
    overlapping.open()
    bad = overlapping.add(grant(opens=((500, 600, 0), (1_000, 1_000 + HOUR, 0))))
    raw = bytearray(
        data.draw(st.sampled_from([prove_fork(one, other) or b"", prove_bad_turn(UNIT, bad)]))
    )
    for _ in range(data.draw(st.integers(0, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    verdicts: list[object] = []
    for _ in range(2):
        try:
            verdicts.append(check(bytes(raw), NET))
        except PeerFault as fault:
            verdicts.append(fault.rule)
    assert verdicts[0] == verdicts[1]
    if not isinstance(verdicts[0], str):
        assert check(bytes(raw), NET).offender == OWNER.public
