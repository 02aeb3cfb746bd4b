"""A renter that holds its owners' ticks against their feeds."""

from ledger.bodies import Grant
from ledger.entry import Entry
from ledger.ledger import Ledger
from p2pnode.accounts import CosignedTick
from p2pnode.watch import Watch
from protocol.units import Digest
from tests.make_evidence import leased, sealed_tick, tick
from tests.make_ledger import OWNER, RENTER, Feed, ledger, release, statement, turn_of


class Renter:
    """A renter's ledger with an owner's lease to it, and what it has co-signed."""

    def __init__(self) -> None:
        self.here: Ledger = ledger(RENTER)
        self.ticks: dict[Digest, CosignedTick] = {}
        self.watch = Watch(self.here, self.ticks.get)
        self.owner: Feed
        self.granted: Entry
        self.grant: Grant
        self.owner, self.granted, self.grant = leased()
        self.take(Feed(OWNER).open())
        self.take(self.granted)

    def take(self, entry: Entry) -> None:
        self.here.ingest(entry.raw)
        self.watch.look_at_entry(entry)

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
