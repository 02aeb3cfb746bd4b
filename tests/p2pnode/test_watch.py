"""A renter that holds its owners' ticks against their feeds."""

from ledger.bodies import Grant
from ledger.entry import Entry
from ledger.ledger import Ledger
from p2pnode.accounts import CosignedTick
from p2pnode.watch import LEASES_MAX, Watch
from protocol.units import Digest
from tests.make_evidence import leased, sealed_tick, tick
from tests.make_ledger import (
    HOUR,
    OWNER,
    RENTER,
    Feed,
    grant,
    ledger,
    release,
    statement,
    turn_of,
)


class Renter:
    """A renter's ledger with an owner's lease to it, and what it has co-signed."""

    def __init__(self) -> None:
        self.here: Ledger = ledger(RENTER)
        self.ticks: dict[Digest, CosignedTick] = {}
        self.reads = 0
        self.start()
        self.owner: Feed
        self.granted: Entry
        self.grant: Grant
        self.owner, self.granted, self.grant = leased()
        self.take(Feed(OWNER).open())
        self.take(self.granted)

    def start(self) -> None:
        """A life begins: all that is remembered is what was co-signed."""
        self.watch = Watch(self.here, self._read)

    def _read(self, lease: Digest) -> CosignedTick | None:
        self.reads += 1
        return self.ticks.get(lease)

    def take(self, entry: Entry) -> None:
        self.here.ingest(entry.raw)
        self.watch.look_at_entry(entry)

    def rent_again(self, nonce: int) -> None:
        """From its end on, while what was leased before is kept."""
        start = nonce * HOUR
        self.grant = grant(
            turn_of(self.granted, self.grant), start=start, end=start + HOUR, nonce=nonce
        )
        self.granted = self.owner.add(self.grant)
        self.take(self.granted)

    def sign(self, **said: int) -> bool:
        """Whether the tick fits; if so it is co-signed."""
        raw = sealed_tick(tick(self.granted.id, **said))
        if not self.watch.look_at_tick(raw):
            return False
        self.ticks[self.granted.id] = CosignedTick(tick=raw, by=b"")
        return True

    def rules(self) -> list[str]:
        return [offence.rule for offence in self.here.offences()]


def test_a_tick_dated_before_its_owners_entries_is_not_signed_and_accuses() -> None:
    renter = Renter()
    assert renter.sign(at_ms=0, height=1)
    assert not renter.sign(at_ms=-1, height=1)
    assert renter.rules() == ["A16"]


def test_an_entry_dated_before_a_tick_that_came_first_accuses() -> None:
    renter = Renter()
    assert renter.sign(at_ms=500, height=1)
    renter.take(renter.owner.branch().add(statement(), ts=500))
    assert renter.rules() == []
    renter = Renter()
    assert renter.sign(at_ms=500, height=1)
    renter.take(renter.owner.add(statement(), ts=499))
    assert renter.rules() == ["A16"]


def test_a_lease_said_to_be_unpaid_whose_use_was_metered_further_accuses() -> None:
    for used, rules in ((1_000, []), (1_001, ["A7"])):
        renter = Renter()
        assert renter.sign(at_ms=2_500, height=1, used=used)
        turn = turn_of(renter.granted, renter.grant)
        freed = release(turn, renter.granted, at_ms=2_000, ts=2_500)
        renter.take(renter.owner.add(freed, ts=2_500))
        assert renter.rules() == rules


def test_what_other_owners_write_is_nothing_to_a_tick() -> None:
    renter = Renter()
    assert renter.sign(at_ms=500, height=1)
    other = Feed(RENTER)
    renter.watch.look_at_entry(other.open())
    assert renter.rules() == []


def test_after_a_start_an_entry_is_held_against_what_was_cosigned_before() -> None:
    renter = Renter()
    assert renter.sign(at_ms=500, height=1)
    renter.start()
    renter.take(renter.owner.add(statement(), ts=499))
    assert renter.rules() == ["A16"]


def test_an_entry_is_held_against_the_latest_tick_of_its_owner_whatever_the_lease() -> None:
    renter = Renter()
    first = renter.granted
    renter.rent_again(2)
    assert renter.sign(at_ms=500, height=2)
    renter.granted = first
    assert renter.sign(at_ms=400, height=2)
    renter.take(renter.owner.add(statement(), ts=499))
    assert renter.rules() == ["A16"]


def test_of_an_owner_with_many_leases_a_few_ticks_are_read_and_those_once() -> None:
    renter = Renter()
    release_of_first = release(turn_of(renter.granted, renter.grant), renter.granted, at_ms=2_000)
    assert renter.sign(at_ms=0, height=1)
    for nonce in range(2, 2 + LEASES_MAX):
        renter.rent_again(nonce)
        renter.sign(at_ms=0, height=1)
    renter.start()
    renter.reads = 0
    for ctr in range(5):
        renter.take(renter.owner.add(statement(ctr=ctr)))
    assert renter.reads == LEASES_MAX
    renter.take(renter.owner.branch().add(release_of_first))
    assert renter.reads == LEASES_MAX + 1
