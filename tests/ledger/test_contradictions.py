"""What a replica proves by itself as entries come, and what an author refuses to sign."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import intake
from ledger.bodies import Body, Reason
from ledger.entry import Entry
from ledger.evidence import check
from ledger.judging import Offence
from ledger.ledger import Ledger, RunTaken, Taken
from ledger.store import MemoryStore
from protocol.errors import LocalFault, Unavailable
from protocol.lease import LeaseRequest
from protocol.units import Digest, NetId
from tests.make_evidence import capacity, changed, consent, ended, feed, leased, past, probe
from tests.make_ledger import (
    HOUR,
    OWNER,
    STRANGER,
    UNIT,
    UNIT2,
    Feed,
    at,
    consent_of,
    genesis,
    grant,
    lease_request,
    ledger,
    sealed,
    signer,
    statement,
    turn_of,
)


def rules_after(*entries: Entry) -> list[str]:
    """What a replica has proved once it has these."""
    here = ledger(STRANGER)
    for entry in (Feed(OWNER).open(), *entries):
        assert here.ingest(entry.raw) is not Taken.MISSING
    return [offence.rule for offence in here.offences()]


def of(*bodies: Body) -> list[Entry]:
    by = feed()
    return [by.add(body) for body in bodies]


@pytest.mark.parametrize(
    ("bodies", "rules"),
    [
        ((statement(ctr=1, used=5), statement(ctr=2, used=4)), ["A10"]),
        ((statement(ctr=2, used=5), statement(ctr=1, used=6)), ["A10"]),
        ((statement(ctr=1, used=5), statement(ctr=1, used=6)), ["A10"]),
        ((statement(ctr=1), statement(ctr=9), statement(ctr=5)), []),
        ((statement(ctr=1, used=1), statement(ctr=9, used=9), statement(ctr=5, used=10)), ["A10"]),
        ((statement(ctr=1), statement(STRANGER, ctr=1, used=1)), []),
        ((capacity(), capacity(UNIT2)), ["A12"]),
        ((capacity(), capacity(), capacity(UNIT2, Digest(b"e" * 32))), []),
        ((probe(), probe("fail")), ["A14"]),
        ((probe(), probe(), probe("fail", period=4)), []),
    ],
)
def test_what_contradicts_an_earlier_entry_is_proved(
    bodies: tuple[Body, ...], rules: list[str]
) -> None:
    assert rules_after(*of(*bodies)) == rules
    mine = ledger(OWNER)
    mine.append(genesis(OWNER), at(0))
    *before, last = bodies
    if rules:
        for body in before:
            mine.append(body, at(0))
        with pytest.raises(LocalFault, match="would contradict"):
            mine.append(last, at(0))


def test_a_broken_chain_is_proved_when_the_later_entry_comes() -> None:
    by, granted, body = leased()
    after = grant(turn_of(granted, body), start=2 * HOUR, end=3 * HOUR, nonce=1)
    wrong = changed(after, units=(changed(after.units[0], gprev=Digest(b"x" * 32)),))
    assert rules_after(granted, by.add(wrong)) == ["A6"]


def test_an_early_release_is_proved_from_either_side() -> None:
    by, granted, body = leased()
    freed = by.add(ended(granted, body, reason="end"))
    assert rules_after(granted, freed) == ["A7"]


def test_a_false_checkpoint_is_proved_and_a_true_one_is_not() -> None:
    for changes, rules in (
        ({}, []),
        ({"units": ()}, ["A15"]),
        ({"accounts": ()}, ["A15"]),
        ({"start": b"z", "units": (), "accounts": ()}, []),
        ({"upto_id": Digest(bytes(32))}, ["A15"]),
    ):
        hist = past()
        said = hist.feed.add(hist.checkpoint(**changes))
        assert rules_after(hist.granted, hist.owed, said) == rules


def test_a_row_below_what_the_author_has_written_since_is_false() -> None:
    hist = past()
    later_body = grant(turn_of(hist.granted, hist.grant), start=2 * HOUR, end=3 * HOUR, nonce=1)
    later = hist.feed.add(later_body)
    owed = hist.feed.add(statement(ctr=2, used=70_000))
    stale = hist.checkpoint(upto=owed.seq, upto_id=owed.id)
    units_only = changed(stale, start=b"u", accounts=())
    accounts_only = changed(stale, stop=b"u", units=())
    for body in (units_only, accounts_only):
        said = hist.feed.branch().add(body)
        assert rules_after(hist.granted, hist.owed, later, owed, said) == ["A15"]


def checks_of(
    last: Entry, *before: Entry, monkeypatch: pytest.MonkeyPatch
) -> tuple[RunTaken, list[str]]:
    """What becomes of the last of these entries, and the rules of the evidence checked for it."""
    here = ledger(STRANGER)
    for entry in (Feed(OWNER).open(), *before):
        assert here.ingest(entry.raw) is Taken.NEW
    rules: list[str] = []

    def counted(raw: bytes, net: NetId) -> Offence:
        rules.append((offence := check(raw, net)).rule)
        return offence

    monkeypatch.setattr(intake, "check", counted)
    return here.ingest_run([last, Feed(STRANGER).open()]), rules


def test_of_many_pairs_that_are_one_offence_one_is_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by = feed()
    halves = [by.add(statement(ctr=0, used=1)) for _ in range(40)]
    owed = [by.add(statement(signer(n), ctr=0)) for n in range(100, 140)]
    devices = [by.add(capacity()) for _ in range(20)]
    before = (*halves, *owed, *devices)
    upto = before[-1]
    blank = past().checkpoint(upto=upto.seq, upto_id=upto.id, units=(), accounts=())
    for body, rule in ((statement(ctr=0, used=9), "A10"), (capacity(UNIT2), "A12"), (blank, "A15")):
        done, checked = checks_of(by.branch().add(body), *before, monkeypatch=monkeypatch)
        assert checked == [rule]
        assert done == RunTaken(taken=(Taken.NEW,), fault=None, is_dear=True)


def test_a_checkpoint_over_many_accounts_reads_only_what_it_is_shown_false_by() -> None:
    reads = 0

    class Counted(MemoryStore):
        def get(self, key: bytes) -> bytes | None:
            nonlocal reads
            reads += 1
            return super().get(key)

    here, by = ledger(STRANGER, store=Counted()), feed()
    entries = [Feed(OWNER).open(), *(by.add(statement(signer(n), ctr=0)) for n in range(9, 209))]
    assert here.ingest_run(entries).taken == (Taken.NEW,) * 201
    last = entries[-1]
    blank = past().checkpoint(upto=last.seq, upto_id=last.id, units=(), accounts=())
    reads = 0
    assert here.ingest(by.add(blank).raw) is Taken.NEW
    assert [offence.rule for offence in here.offences()] == ["A15"]
    assert reads < 20


class Owner:
    """An honest owner of two units who follows a drawn calendar, and a replica that watches."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.mine: Ledger = ledger(OWNER)
        self.mine.append(genesis(OWNER), at(0))
        self.now = 0
        self.nonce = 0
        self.leases: list[tuple[Digest, LeaseRequest]] = []

    def lease(self, tier: str, start: int, length: int) -> bool:
        """Whether it was given."""
        unit = self.rng.choice([UNIT, UNIT2])
        turn = self.mine.state.turn(OWNER.public, unit)
        self.nonce += 1
        request = changed(
            lease_request(
                ((unit, 0 if turn is None else turn.ctr + 1),),
                start=start,
                end=start + length,
                nonce=self.nonce,
                issued=self.now,
            ),
            tier=tier,
        )
        try:
            granted = self.mine.grant(sealed(request), at(self.now))
        except Unavailable:
            return False
        self.leases.append((granted.id, request))
        return True

    def free(self) -> None:
        """End some lease in one of the ways that an owner may."""
        grant_id, request = self.rng.choice(self.leases)
        lease = self.mine.lease(grant_id)
        assert lease is not None
        reason: Reason = self.rng.choice(["consent", "preempted", "lapsed", "unpaid", "end"])
        at_ms = at(self.now) if reason != "preempted" else at(self.now + 30_000)
        signed = None
        if reason == "consent":
            [turn] = request.units
            signed = consent_of(grant_id, turn.unit, turn.ctr, self.now)
        try:
            self.mine.release(grant_id, at(self.now), at_ms=at_ms, reason=reason, consent=signed)
        except LocalFault:
            # Without right: the ledger does not sign it.
            assert reason in {"preempted", "lapsed", "end"}

    def step(self) -> None:
        self.now += self.rng.choice([0, 1, 1_000, 40_000, HOUR])
        soon = self.now + self.rng.choice([0, 500, 60_000])
        match self.rng.randrange(4):
            case 0:
                self.lease("gold", self.now + 24 * HOUR + self.rng.randrange(10 * HOUR), HOUR)
            case 1 | 2:
                self.lease("bronze", soon, self.rng.choice([1, 60_000, 3 * HOUR, 30 * HOUR]))
            case _ if self.leases:
                self.free()
            case _:
                pass


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32))
def test_an_owner_with_gold_for_tomorrow_and_bronze_today_is_never_accused(seed: int) -> None:
    owner = Owner(random.Random(seed))
    assert owner.lease("gold", 24 * HOUR, 2 * HOUR)
    for _ in range(30):
        owner.step()
    here = ledger(STRANGER)
    for raw in owner.mine.entries(OWNER.public, 0, 1_000):
        assert here.ingest(raw) is Taken.NEW
    assert here.evidence() == owner.mine.evidence() == []
    assert here.verify().broken is None
    assert [lease.is_forked for lease in here.state.leases()].count(True) == 0


def test_consent_for_another_time_is_not_signed_under() -> None:
    mine = ledger(OWNER)
    mine.append(genesis(OWNER), at(0))
    granted = mine.grant(sealed(lease_request()), at(0))
    with pytest.raises(LocalFault, match="would contradict"):
        mine.release(
            granted.id, at(5), at_ms=at(9), reason="consent", consent=consent(granted.id, 8)
        )
    freed = mine.release(
        granted.id, at(5), at_ms=at(9), reason="consent", consent=consent(granted.id, 9)
    )
    assert mine.referrers(granted.id) == [freed]
